"""Random requests that ask which quotas there are: well-formed, for what is there, is not there, or cannot be."""

from __future__ import annotations

from typing import Final

from kquota.quotas import CLIENT_ID, IP, USER, MatchType
from kquota.wire.apis import DESCRIBE_USER_SCRAM_CREDENTIALS
from kquota.wire.messages.client_quotas import Component
from kquota.wire.messages.scram_credentials import DescribeUserScramCredentialsRequest, UserName
from tests.kit.request_parts import CLIENT_IDS, NON_ASCII, UNKNOWN_TYPES, USERS, Makers, Parts, Unsent

__all__ = ["MAKERS"]

MAKERS: Final = Makers()
_of_class = MAKERS.of_class


@_of_class("describe: everything, or nothing")
def _describe_everything(parts: Parts) -> list[Unsent]:
    return [parts.describe()]


@_of_class("describe: exact")
def _describe_exact(parts: Parts) -> list[Unsent]:
    user = Component(USER, MatchType.EXACT, parts.one_of([*USERS[1:], "", "nobody"]))
    client_id = parts.component(CLIENT_ID)
    return [parts.describe(*parts.one_of([[user], [user, client_id], [client_id, user]]))]


@_of_class("describe: default")
def _describe_default(parts: Parts) -> list[Unsent]:
    types = parts.one_of([[USER], [CLIENT_ID], [IP], [USER, CLIENT_ID]])
    return [parts.describe(*(Component(entity_type, MatchType.DEFAULT, None) for entity_type in types))]


@_of_class("describe: any name")
def _describe_specified(parts: Parts) -> list[Unsent]:
    types = parts.one_of([[USER], [CLIENT_ID], [IP], [USER, CLIENT_ID]])
    return [parts.describe(*(Component(entity_type, MatchType.SPECIFIED, None) for entity_type in types))]


@_of_class("describe: any legal filter")
def _describe_legal(parts: Parts) -> list[Unsent]:
    return [parts.describe(*parts.components())]


@_of_class("describe: duplicate component")
def _describe_duplicate(parts: Parts) -> list[Unsent]:
    components = parts.components()
    components += [parts.component(components[0].entity_type)]
    parts.random.shuffle(components)
    return [parts.describe(*components)]


@_of_class("describe: unknown match type")
def _describe_unknown_match_type(parts: Parts) -> list[Unsent]:
    component = Component(USER, parts.one_of([3, 4, 127, -1, -128]), parts.one_of([None, "alice", ""]))
    return [parts.describe(component, *parts.one_of([[], [parts.component(CLIENT_ID)]]))]


@_of_class("describe: a name where none may be, or none where one must")
def _describe_wrong_match(parts: Parts) -> list[Unsent]:
    match_type = parts.one_of(list(MatchType))
    name = None if match_type is MatchType.EXACT else parts.one_of(["", "alice", "<default>"])
    return [parts.describe(Component(parts.one_of([USER, CLIENT_ID, IP]), match_type, name))]


@_of_class("describe: empty or unknown entity type")
def _describe_unknown_type(parts: Parts) -> list[Unsent]:
    component = Component(parts.one_of(["", *UNKNOWN_TYPES]), parts.one_of([0, 1, 2, 3]), parts.one_of([None, "x"]))
    components = [component, *parts.one_of([[], parts.components()])]
    parts.random.shuffle(components)
    return [parts.describe(*components)]


@_of_class("describe: ip with user or client id")
def _describe_ip_with_others(parts: Parts) -> list[Unsent]:
    components = [parts.component(IP), parts.component(parts.one_of([USER, CLIENT_ID]))]
    parts.random.shuffle(components)
    return [parts.describe(*components)]


@_of_class("describe: several bad components")
def _describe_several_bad(parts: Parts) -> list[Unsent]:
    types = ["", USER, USER, CLIENT_ID, IP, "group"]
    components = [
        Component(entity_type, parts.one_of([-1, 0, 1, 2, 3]), parts.one_of([None, "", "alice"]))
        for entity_type in parts.random.sample(types, parts.random.randint(2, 5))
    ]
    return [parts.describe(*components)]


@_of_class("DescribeUserScramCredentials")
def _scram_credentials(parts: Parts) -> list[Unsent]:
    """No user has any on either server."""
    names = [
        name or "" for name in parts.random.choices([*USERS, *CLIENT_IDS, *NON_ASCII], k=parts.random.randint(0, 4))
    ]
    users = parts.one_of([None, [UserName(name) for name in names]])
    codec = DESCRIBE_USER_SCRAM_CREDENTIALS.request_codec(0)
    body = codec.write(DescribeUserScramCredentialsRequest(users))
    return [Unsent(api_key=DESCRIBE_USER_SCRAM_CREDENTIALS.key, version=0, body=body)]
