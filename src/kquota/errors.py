"""The one error tree, and Kafka's error codes as values.

    KquotaError                 exit 1   the work failed
    ├── InputError              exit 2   what was given cannot be used
    │   ├── IllegalArgumentError         a call that Kafka's own types would refuse; also a ValueError
    │   └── QuotaFileError               a quota file that does not parse; carries every problem found
    ├── StoreError              exit 1   where quotas are kept cannot be read or written
    ├── CallbackRefusedError    exit 1   a quota callback that cannot be set up
    ├── RetriableError                   whatever else it is, trying again may help
    ├── ApiFailedError          exit 1   a broker refused what was asked for; carries its ApiError
    │   └── RetriableApiError            ... for now; also a RetriableError
    │       └── ThrottlingQuotaExceededError  too many topic changes; says when to try again
    ├── NotAuthorizedError      exit 4   a broker does not let this client in, or not do this
    ├── ConnectionFailedError   exit 5   no connection, and nothing was sent
    │   └── UnreachableError             ... as nobody answers there now; also a RetriableError
    ├── RequestTimeoutError     exit 5   no answer, or none in time: it may have been done or not; also a RetriableError
    ├── ProtocolError           exit 5   the peer does not speak as it should
    │   ├── MalformedMessageError        bytes that are not the message they should be
    │   ├── FrameSizeError               a frame that announces an impossible size
    │   ├── TooManyElementsError         a message with more in its lists than its reader takes
    │   ├── ConnectionLimitError         a connection that asks for more than its server gives
    │   └── UnsupportedVersionError      an API, or a version of it, that is not spoken
    └── NotSupportedError       exit 6   the brokers are too old, or do not know what was asked for

Being over quota is not an error here, and neither is a refused alteration: both are values (:class:`ApiError`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from kquota.printable import printable

__all__ = [
    "ApiError",
    "ApiFailedError",
    "CallbackRefusedError",
    "ConnectionFailedError",
    "ConnectionLimitError",
    "FrameSizeError",
    "IllegalArgumentError",
    "InputError",
    "KafkaErrorCode",
    "KquotaError",
    "MalformedMessageError",
    "NotAuthorizedError",
    "NotSupportedError",
    "ProtocolError",
    "QuotaFileError",
    "QuotaFileProblem",
    "RequestTimeoutError",
    "RetriableApiError",
    "RetriableError",
    "StoreError",
    "ThrottlingQuotaExceededError",
    "TooManyElementsError",
    "UnreachableError",
    "UnsupportedVersionError",
]


class KafkaErrorCode(IntEnum):
    """The error codes of ``org.apache.kafka.common.protocol.Errors`` that requests about quotas and topics can meet."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    NETWORK_EXCEPTION = 13
    INVALID_TOPIC_EXCEPTION = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    SASL_AUTHENTICATION_FAILED = 58
    REASSIGNMENT_IN_PROGRESS = 60
    INVALID_FETCH_SESSION_EPOCH = 71
    TOPIC_DELETION_DISABLED = 73
    THROTTLING_QUOTA_EXCEEDED = 89
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115


_RETRIABLE = frozenset(
    {
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.REQUEST_TIMED_OUT,
        KafkaErrorCode.NETWORK_EXCEPTION,
        KafkaErrorCode.NOT_CONTROLLER,
        KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH,
        KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED,
        KafkaErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Those whose exception in Java is a ``RetriableException``."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """Why one entity, one topic, or one request, was refused: Kafka's error code and the message a client sees.

    ``code`` is a plain int when it is one that :class:`KafkaErrorCode` does not list. ``throttle_time_ms`` goes with
    ``THROTTLING_QUOTA_EXCEEDED``: how long to wait before trying again.
    """

    code: int
    message: str | None = None
    throttle_time_ms: int = 0

    @property
    def name(self) -> str:
        """Kafka's name of the code, such as ``INVALID_REQUEST``; ``ERROR_<code>`` for one we do not list."""
        try:
            return KafkaErrorCode(self.code).name
        except ValueError:
            return f"ERROR_{self.code}"

    @property
    def retriable(self) -> bool:
        """Whether Kafka's clients would try again."""
        return self.code in _RETRIABLE

    @property
    def is_unknown(self) -> bool:
        """Whether what was asked for may have been done all the same: there was no answer, or none in time."""
        return self.code == KafkaErrorCode.REQUEST_TIMED_OUT

    def to_exception(self) -> "KquotaError":
        """The exception for an error that a broker answered, with the exit code that goes with it."""
        match self.code:
            case (
                KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED
                | KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
                | KafkaErrorCode.SASL_AUTHENTICATION_FAILED
            ):
                return NotAuthorizedError(str(self))
            case KafkaErrorCode.UNSUPPORTED_VERSION:
                return NotSupportedError(str(self))
            case KafkaErrorCode.REQUEST_TIMED_OUT:
                return RequestTimeoutError(str(self))
            case KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED:
                return ThrottlingQuotaExceededError(self)
            case _:
                return RetriableApiError(self) if self.retriable else ApiFailedError(self)

    def __str__(self) -> str:
        return self.name if not self.message else f"{self.name}: {printable(self.message)}"


class KquotaError(Exception):
    """The root of everything kquota raises on purpose. ``exit_code`` is what a command ends with."""

    exit_code: ClassVar[int] = 1


class RetriableError(KquotaError):
    """What may come out otherwise when it is tried again (``org.apache.kafka.common.errors.RetriableException``)."""


class InputError(KquotaError):
    """What was given cannot be used: an option, a file, a directory, a client list."""

    exit_code: ClassVar[int] = 2


class IllegalArgumentError(InputError, ValueError):
    """A value that cannot even be put into a request (Java throws ``IllegalArgumentException`` or a null-pointer)."""

    code: ClassVar[KafkaErrorCode] = KafkaErrorCode.INVALID_REQUEST


@dataclass(frozen=True, slots=True)
class QuotaFileProblem:
    """One thing wrong with a quota file: ``line`` counts from 1, ``where`` is a path such as ``quotas[3].values``."""

    line: int | None
    column: int | None
    where: str
    reason: str

    def to_text(self, path: str) -> str:
        """The problem as one of the file at `path`: its place, then the reason."""
        numbers = [path] + [str(number) for number in (self.line, self.column) if number is not None]
        where = f"{self.where}: " if self.where else ""
        return f"{':'.join(numbers)}: {where}{self.reason}"


class QuotaFileError(InputError):
    """A quota file that cannot be used. ``problems`` holds everything found, in the order of the file."""

    SHOWN: ClassVar[int] = 20

    def __init__(self, path: str, problems: Iterable[QuotaFileProblem]) -> None:
        self.path = path
        self.problems = tuple(problems)
        super().__init__(path, self.problems)

    @property
    def line(self) -> int | None:
        """The line of the first problem."""
        return self.problems[0].line if self.problems else None

    @property
    def where(self) -> str:
        """The path of the first problem inside the file."""
        return self.problems[0].where if self.problems else ""

    @property
    def reason(self) -> str:
        """The reason of the first problem."""
        return self.problems[0].reason if self.problems else ""

    def __str__(self) -> str:
        lines = [problem.to_text(self.path) for problem in self.problems[: self.SHOWN]]
        hidden = len(self.problems) - len(lines)
        if hidden > 0:
            lines.append(f"{self.path}: ... and {hidden} more problem{'s' if hidden > 1 else ''}")
        return "\n".join(lines) or self.path


class StoreError(KquotaError):
    """Where quotas are kept cannot be read or written.

    ``for_clients`` is what clients of a server may know of it: no paths. Where ``is_unknown``, what was asked for may
    have been done or not; otherwise nothing was changed.
    """

    def __init__(
        self,
        message: str,
        *,
        for_clients: str = "the store of the quotas failed; the log of the server says why",
        is_unknown: bool = False,
    ) -> None:
        super().__init__(message)
        self.for_clients = for_clients
        self.is_unknown = is_unknown


class CallbackRefusedError(KquotaError):
    """A quota callback that cannot be set up; the one before it stays in use."""


class ApiFailedError(KquotaError):
    """A broker refused what was asked for."""

    def __init__(self, error: ApiError) -> None:
        self.error = error
        super().__init__(error)

    def __str__(self) -> str:
        return str(self.error)


class RetriableApiError(ApiFailedError, RetriableError):
    """A broker refused what was asked for, and may not the next time."""


class ThrottlingQuotaExceededError(RetriableApiError):
    """The quota of topic changes (``controller_mutation_rate``) is used up. Nothing was done; trying again helps."""

    @property
    def throttle_time_ms(self) -> int:
        """How long to wait before trying again."""
        return self.error.throttle_time_ms

    def __str__(self) -> str:
        return f"{self.error} Try again in {self.throttle_time_ms} ms"


class NotAuthorizedError(KquotaError):
    """A broker does not let this client in, or does not let it do this."""

    exit_code: ClassVar[int] = 4


class ConnectionFailedError(KquotaError):
    """There is no connection to a cluster. Nothing was sent."""

    exit_code: ClassVar[int] = 5


class UnreachableError(ConnectionFailedError, RetriableError):
    """Nobody answers there now."""


class RequestTimeoutError(RetriableError):
    """There was no answer, or none in time. What was asked for may have been done or not.

    Trying again is safe for what is the same when it is done twice, as all changes of quotas are.
    """

    exit_code: ClassVar[int] = 5


class NotSupportedError(KquotaError):
    """The brokers are too old for what was asked, or do not know it."""

    exit_code: ClassVar[int] = 6


class ProtocolError(KquotaError):
    """The peer does not speak Kafka's protocol as it should; the connection cannot be used any more."""

    exit_code: ClassVar[int] = 5


class MalformedMessageError(ProtocolError):
    """Bytes that are not the message that they should be."""


class FrameSizeError(ProtocolError):
    """A frame announces a size that is negative or too large: most likely the peer speaks something else."""

    def __init__(self, size: int, limit: int, head: bytes) -> None:
        self.size = size
        self.limit = limit
        self.head = head
        super().__init__(size, limit, head)

    def __str__(self) -> str:
        return f"a frame of {self.size} bytes is announced, {self.limit} are the most{self._guess()}"

    def _guess(self) -> str:
        if self.head[:2] == b"\x16\x03":
            return ": this is the beginning of TLS, on a plaintext port"
        if self.head[:2] == b"\x15\x03":
            return ": this is a TLS alert; the port speaks TLS"
        if self.head.startswith((b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"HTTP/")):
            return ": this is HTTP"
        return ""


class TooManyElementsError(ProtocolError):
    """A message whose lists have more elements, in all, than its reader takes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(limit)

    def __str__(self) -> str:
        return f"a message whose lists have more than {self.limit} elements in all"


class ConnectionLimitError(ProtocolError):
    """A connection that is closed because it asks for more than its server gives: `setting` names the limit."""

    def __init__(self, setting: str, limit: int) -> None:
        self.setting = setting
        self.limit = limit
        super().__init__(setting, limit)

    def __str__(self) -> str:
        return f"{self.setting}={self.limit} is reached"


class UnsupportedVersionError(ProtocolError):
    """An API, or a version of it, that is not spoken."""

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        super().__init__(api_key, api_version, correlation_id)

    def __str__(self) -> str:
        return f"version {self.api_version} of API {self.api_key} is not spoken"
