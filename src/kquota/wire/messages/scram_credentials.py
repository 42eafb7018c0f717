"""DescribeUserScramCredentials (50)."""

from msgspec import Struct

from kquota.wire.schema import Int8, Int16, Int32, String

__all__ = [
    "CredentialInfo",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "UserCredentials",
    "UserName",
]


class UserName(Struct, frozen=True, gc=False):
    """A user that is asked for."""

    name: String


class DescribeUserScramCredentialsRequest(Struct, frozen=True, gc=False):
    """Null or no users are all users."""

    users: list[UserName] | None


class CredentialInfo(Struct, frozen=True, gc=False):
    """`mechanism` 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512."""

    mechanism: Int8
    iterations: Int32


class UserCredentials(Struct, frozen=True, gc=False):
    """One user's credentials, without their secrets."""

    user: String
    error_code: Int16
    error_message: String | None
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Struct, frozen=True, gc=False):
    """One result per user."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[UserCredentials]
