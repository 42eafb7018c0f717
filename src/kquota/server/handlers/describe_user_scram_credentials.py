"""DescribeUserScramCredentials: nobody has any here. Kafka's tools ask for them with every description of users."""

from kquota.errors import KafkaErrorCode
from kquota.server.context import ServerContext
from kquota.server.messages import NO_MESSAGE, Messages, sendable_name
from kquota.wire.messages.scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserCredentials,
)

__all__ = ["handle"]


def handle(
    request: DescribeUserScramCredentialsRequest, _context: ServerContext
) -> DescribeUserScramCredentialsResponse:
    """All users: none. Users that are asked for by name: not found. Source: ``ScramImage.describe``."""
    counts: dict[str, int] = {}
    for user in request.users or ():
        counts[user.name] = counts.get(user.name, 0) + 1
    messages = Messages()
    results = [
        UserCredentials(
            sendable_name(name),
            KafkaErrorCode.RESOURCE_NOT_FOUND if count == 1 else KafkaErrorCode.DUPLICATE_RESOURCE,
            messages.sendable(
                f"Attempt to describe a user credential that does not exist: {name}"
                if count == 1
                else f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            ),
            [],
        )
        for name, count in counts.items()
    ]
    return DescribeUserScramCredentialsResponse(0, 0, NO_MESSAGE, results)
