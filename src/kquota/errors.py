"""The one error tree, and Kafka's error codes as values.

    KquotaError                 exit 1   the work failed
    └── InputError              exit 2   what was given cannot be used
        ├── IllegalArgumentError         a call that Kafka's own types would refuse; also a ValueError
        └── QuotaFileError               a quota file that does not parse; carries every problem found

Being over quota is not an error here, and neither is a refused alteration: both are values (:class:`ApiError`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

__all__ = [
    "ApiError",
    "IllegalArgumentError",
    "InputError",
    "KafkaErrorCode",
    "KquotaError",
    "QuotaFileError",
    "QuotaFileProblem",
]


class KafkaErrorCode(IntEnum):
    """The error codes of ``org.apache.kafka.common.protocol.Errors`` that quota requests can meet."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    REQUEST_TIMED_OUT = 7
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    SASL_AUTHENTICATION_FAILED = 58
    INVALID_FETCH_SESSION_EPOCH = 71
    THROTTLING_QUOTA_EXCEEDED = 89


_RETRIABLE = frozenset(
    {
        KafkaErrorCode.REQUEST_TIMED_OUT,
        KafkaErrorCode.NOT_CONTROLLER,
        KafkaErrorCode.INVALID_FETCH_SESSION_EPOCH,
        KafkaErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


@dataclass(frozen=True, slots=True)
class ApiError:
    """Why one entity, or one request, was refused: Kafka's error code and the message a client sees.

    ``code`` is a plain int when it is one that :class:`KafkaErrorCode` does not list.
    """

    code: int
    message: str | None = None

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

    def __str__(self) -> str:
        return self.name if not self.message else f"{self.name}: {self.message}"


class KquotaError(Exception):
    """The root of everything kquota raises on purpose. ``exit_code`` is what a command ends with."""

    exit_code: ClassVar[int] = 1


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
        lines = [self._line(problem) for problem in self.problems[: self.SHOWN]]
        hidden = len(self.problems) - len(lines)
        if hidden > 0:
            lines.append(f"{self.path}: ... and {hidden} more problem{'s' if hidden > 1 else ''}")
        return "\n".join(lines) or self.path

    def _line(self, problem: QuotaFileProblem) -> str:
        place = self.path
        if problem.line is not None:
            place += f":{problem.line}"
            if problem.column is not None:
                place += f":{problem.column}"
        where = f"{problem.where}: " if problem.where else ""
        return f"{place}: {where}{problem.reason}"
