"""ApiVersions (18): which APIs and versions a broker speaks."""

from typing import Annotated

from msgspec import Struct

from kquota.wire.schema import Int16, Int32, String, Versions

__all__ = ["ApiVersion", "ApiVersionsRequest", "ApiVersionsResponse"]


class ApiVersionsRequest(Struct, frozen=True, gc=False):
    """Empty before version 3."""

    client_software_name: Annotated[String, Versions(since=3)] = ""
    client_software_version: Annotated[String, Versions(since=3)] = ""


class ApiVersion(Struct, frozen=True, gc=False):
    """One API with the versions spoken, ends included."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class ApiVersionsResponse(Struct, frozen=True, gc=False):
    """Since version 3 Kafka's has tagged fields about features; here there are none."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Annotated[Int32, Versions(since=1)] = 0
