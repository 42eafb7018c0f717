"""The APIs that kquota ends, their versions, and requests and responses as frames.

Source: Kafka's message definitions (``clients/src/main/resources/common/message``), KIP-511 for ApiVersions, KIP-546.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from struct import Struct as Layout
from typing import Any, Final

from msgspec import Struct

from kquota.errors import MalformedMessageError, UnsupportedVersionError
from kquota.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kquota.wire.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kquota.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kquota.wire.messages.metadata import MetadataRequest, MetadataResponse
from kquota.wire.messages.resolve_client_quotas import (
    ResolveClientQuotasRequest,
    ResolveClientQuotasResponse,
    ResolveQuotasRequest,
    ResolveQuotasResponse,
)
from kquota.wire.messages.scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kquota.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kquota.wire.primitives import skip_tags
from kquota.wire.schema import Codec, codec

__all__ = [
    "ALTER_CLIENT_QUOTAS",
    "APIS",
    "API_VERSIONS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DESCRIBE_CLIENT_QUOTAS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_USER_SCRAM_CREDENTIALS",
    "METADATA",
    "RESOLVE_CLIENT_QUOTAS",
    "RESOLVE_QUOTAS",
    "TOPIC_APIS",
    "Api",
    "Request",
    "RequestHeader",
    "frame_request",
    "is_kip_546_resolve",
    "read_header",
    "read_request",
    "read_response",
    "response_parts",
    "skip_header_tags",
    "write_request",
    "write_response",
]

_HEADER: Final = Layout(">hhih")
_RESPONSE_HEADER: Final = Layout(">i")
_SIZE: Final = Layout(">i")

MAX_KIP_546_COMPONENTS: Final = 16


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its messages, the versions spoken, and from which of them on it is flexible (None: in none).

    From `client_throttles_since` on, a throttled client waits itself, and sends nothing more on the connection before
    (KIP-219; ``AbstractResponse.shouldClientThrottle``).
    """

    key: int
    name: str
    request: type[Struct]
    response: type[Struct]
    min_version: int
    max_version: int
    flexible_since: int | None
    client_throttles_since: int | None = None

    def speaks(self, version: int) -> bool:
        """Whether this version is spoken."""
        return self.min_version <= version <= self.max_version

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields (KIP-482)."""
        return self.flexible_since is not None and version >= self.flexible_since

    def has_tagged_response_header(self, version: int) -> bool:
        """As a flexible one has, but never ApiVersions: who asks cannot know yet what the broker speaks (KIP-511)."""
        return self.is_flexible(version) and self.key != API_VERSIONS.key

    def client_throttles(self, version: int) -> bool:
        """Whether the client itself waits for the throttle time of an answer."""
        return self.client_throttles_since is not None and version >= self.client_throttles_since

    def request_codec(self, version: int) -> Codec[Any]:
        """The codec of its requests."""
        return codec(self.request, version, flexible=self.is_flexible(version))

    def response_codec(self, version: int) -> Codec[Any]:
        """The codec of its responses."""
        return codec(self.response, version, flexible=self.is_flexible(version))


API_VERSIONS: Final = Api(18, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse, 0, 4, 3)
METADATA: Final = Api(3, "Metadata", MetadataRequest, MetadataResponse, 9, 13, 9)
DESCRIBE_CLUSTER: Final = Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse, 0, 2, 0)
DESCRIBE_CLIENT_QUOTAS: Final = Api(
    48, "DescribeClientQuotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse, 0, 1, 1
)
ALTER_CLIENT_QUOTAS: Final = Api(49, "AlterClientQuotas", AlterClientQuotasRequest, AlterClientQuotasResponse, 0, 1, 1)
DESCRIBE_USER_SCRAM_CREDENTIALS: Final = Api(
    50,
    "DescribeUserScramCredentials",
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    0,
    0,
    0,
)
RESOLVE_CLIENT_QUOTAS: Final = Api(
    50, "ResolveClientQuotas", ResolveClientQuotasRequest, ResolveClientQuotasResponse, 0, 0, None
)
"""KIP-546's own, under a key that Kafka gave away later: told apart by the bytes, see :func:`read_request`."""
CREATE_TOPICS: Final = Api(
    19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse, 2, 7, 5, client_throttles_since=3
)
DELETE_TOPICS: Final = Api(
    20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse, 1, 6, 4, client_throttles_since=2
)
CREATE_PARTITIONS: Final = Api(
    37, "CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse, 0, 3, 2, client_throttles_since=1
)
RESOLVE_QUOTAS: Final = Api(10546, "ResolveQuotas", ResolveQuotasRequest, ResolveQuotasResponse, 0, 0, 0)

APIS: Final = {
    api.key: api
    for api in (
        METADATA,
        API_VERSIONS,
        DESCRIBE_CLIENT_QUOTAS,
        ALTER_CLIENT_QUOTAS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        DESCRIBE_CLUSTER,
        RESOLVE_QUOTAS,
    )
}
"""By key, what a broker of ours advertises."""


TOPIC_APIS: Final = (CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS)
"""What only our client speaks: a quota server has no topics."""


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What stands before the body of every request. A null client id counts as an empty one."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request that was read."""

    header: RequestHeader
    api: Api
    body: Any


def read_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The header of a request, as it stands before any tagged fields, and the position after it.

    :param frame: without its size.
    :raises MalformedMessageError: there is none.
    """
    if len(frame) < _HEADER.size:
        raise MalformedMessageError(f"a request of {len(frame)} bytes has no header")
    api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
    end = _HEADER.size + max(length, 0)
    if end > len(frame):
        raise MalformedMessageError("the client id ends after the request")
    client_id = frame[_HEADER.size : end].decode("utf-8", "replace")
    return RequestHeader(api_key, api_version, correlation_id, client_id), end


def read_request(frame: bytes, *, max_elements: int = sys.maxsize) -> Request:
    """Read a request.

    50 v0 is KIP-546's resolve where the bytes after the client id are the count of at most 16 parts and the rest is
    exactly those, and DescribeUserScramCredentials otherwise; one of the latter that begins with three zero bytes ends
    there.

    :param frame: without its size.
    :param max_elements: of all lists in the body together: what bounds memory, as an empty element takes hundreds of
        bytes of it.
    :raises UnsupportedVersionError: the API, or the version of it, is not spoken. It carries the header.
    :raises TooManyElementsError: the body has more elements.
    :raises MalformedMessageError: these bytes are no such request.
    """
    header, at = read_header(frame)
    api = APIS.get(header.api_key)
    if api is None or not api.speaks(header.api_version):
        raise UnsupportedVersionError(header.api_key, header.api_version, header.correlation_id)
    if api is DESCRIBE_USER_SCRAM_CREDENTIALS:
        resolve = _read_kip_546_resolve(frame, at)
        if resolve is not None:
            return Request(header, RESOLVE_CLIENT_QUOTAS, resolve)
    if api.is_flexible(header.api_version):
        at = skip_header_tags(frame, at)
    body, _ = api.request_codec(header.api_version).read(frame, at, max_elements=max_elements)
    return Request(header, api, body)


def is_kip_546_resolve(frame: bytes) -> bool:
    """Whether a request 50 v0 is KIP-546's resolve, and not DescribeUserScramCredentials; as :func:`read_request`.

    :param frame: without its size.
    :raises MalformedMessageError: it has no header.
    """
    header, at = read_header(frame)
    return header.api_key == RESOLVE_CLIENT_QUOTAS.key and _read_kip_546_resolve(frame, at) is not None


def _read_kip_546_resolve(frame: bytes, at: int) -> Struct | None:
    if frame[at : at + 3] != b"\0\0\0" or len(frame) < at + 4 or frame[at + 3] > MAX_KIP_546_COMPONENTS:
        return None
    try:
        body, end = RESOLVE_CLIENT_QUOTAS.request_codec(0).read(frame, at)
    except MalformedMessageError:
        return None
    return body if end == len(frame) else None


def skip_header_tags(data: bytes, at: int) -> int:
    """Where the body begins, behind the tagged fields of a flexible header.

    :raises MalformedMessageError: these bytes are no such fields.
    """
    try:
        return skip_tags(data, at)
    except IndexError:
        raise MalformedMessageError("the message ends within its header") from None


def write_request(api: Api, version: int, correlation_id: int, client_id: str | None, body: Struct) -> bytes:
    """A request as a frame, its size included.

    :raises IllegalArgumentError: no request can hold this body.
    """
    return frame_request(api, version, correlation_id, client_id, api.request_codec(version).write(body))


def frame_request(api: Api, version: int, correlation_id: int, client_id: str | None, payload: bytes) -> bytes:
    """A request whose body was written before as a frame, its size included."""
    raw = b"" if client_id is None else client_id.encode()
    header = _HEADER.pack(api.key, version, correlation_id, -1 if client_id is None else len(raw)) + raw
    if api.is_flexible(version):
        header += b"\0"
    return b"".join((_SIZE.pack(len(header) + len(payload)), header, payload))


def write_response(api: Api, version: int, correlation_id: int, body: Struct) -> bytes:
    """A response as a frame, its size included. The body may be of another class that stands for the same bytes."""
    return b"".join(response_parts(api, version, correlation_id, body))


def response_parts(api: Api, version: int, correlation_id: int, body: Struct) -> list[bytes]:
    """As :func:`write_response`, as bytes that are to be sent one after the other."""
    tags = b"\0" if api.has_tagged_response_header(version) else b""
    parts = codec(type(body), version, flexible=api.is_flexible(version)).parts(body)
    size = _RESPONSE_HEADER.size + len(tags) + sum(map(len, parts))
    parts.insert(0, _SIZE.pack(size) + _RESPONSE_HEADER.pack(correlation_id) + tags)
    return parts


def read_response(api: Api, version: int, frame: bytes) -> tuple[int, Any]:
    """The correlation id of a response, and its body.

    :param frame: without its size.
    :raises MalformedMessageError: these bytes are no such response.
    """
    if len(frame) < _RESPONSE_HEADER.size:
        raise MalformedMessageError(f"a response of {len(frame)} bytes has no header")
    [correlation_id] = _RESPONSE_HEADER.unpack_from(frame)
    at = _RESPONSE_HEADER.size
    if api.has_tagged_response_header(version):
        at = skip_header_tags(frame, at)
    body, _ = api.response_codec(version).read(frame, at)
    return correlation_id, body
