"""Quota groups: many users and client ids share one limit.

Who belongs to a group is a setting; how much the group may use is an ordinary quota, set with any Kafka tool on the
user ``group:NAME``. Who is in no group is limited as ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from kquota.errors import InputError
from kquota.metering.callback import ClientQuotaType, DefaultQuotaCallback, KafkaPrincipal
from kquota.quotas import USER, ClientQuotaEntity

__all__ = ["GROUPS_SETTING", "GROUP_TAG", "GroupQuotaCallback"]

GROUPS_SETTING: Final = "kquota.groups"
GROUP_TAG: Final = "group"
_EXAMPLE: Final = '{"payments": {"users": ["alice", "pay-*"], "client-ids": ["billing-*"]}}'
_FIELDS: Final = ("users", "client-ids")
_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    users: tuple[str, ...]
    client_ids: tuple[str, ...]

    def holds(self, user: str, client_id: str) -> bool:
        """Both have to match where both are given."""
        return (not self.users or any(fnmatchcase(user, pattern) for pattern in self.users)) and (
            not self.client_ids or any(fnmatchcase(client_id, pattern) for pattern in self.client_ids)
        )


class GroupQuotaCallback(DefaultQuotaCallback):
    """The first group that holds a client counts; the setting ``kquota.groups`` lists them in order, as JSON.

    Names may be patterns, with ``*``, ``?`` and ``[abc]``. A group of users and client ids holds those users with
    those client ids.
    """

    def __init__(self) -> None:
        super().__init__()
        self._groups: tuple[_Group, ...] = ()
        self._known: dict[tuple[str, str], str | None] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        """Read the groups.

        :raises InputError: they are not as they should be.
        """
        self._groups = _groups(configs.get(GROUPS_SETTING, "{}"))
        self._known.clear()

    def quota_metric_tags(
        self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str
    ) -> Mapping[str, str]:
        """The group, where there is one with a limit of this type; otherwise Kafka's own tags."""
        group = self._group_of(principal.name, client_id)
        if group is not None and self._group_limit(quota_type, group) is not None:
            return {GROUP_TAG: group}
        return super().quota_metric_tags(quota_type, principal, client_id)

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        """What is set on the user ``group:NAME`` itself, or as ever."""
        group = metric_tags.get(GROUP_TAG)
        return super().quota_limit(quota_type, metric_tags) if group is None else self._group_limit(quota_type, group)

    def quota_source(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> str | None:
        """The user ``group:NAME``, or as ever."""
        group = metric_tags.get(GROUP_TAG)
        if group is not None:
            return ClientQuotaEntity({USER: f"{GROUP_TAG}:{group}"}).to_text()
        rule = self.rule_of_tags(quota_type, metric_tags)
        return None if rule is None else rule.source.to_text()

    def _group_limit(self, quota_type: ClientQuotaType, group: str) -> float | None:
        return self.user_limit(quota_type, f"{GROUP_TAG}:{group}")

    def _group_of(self, user: str, client_id: str) -> str | None:
        client = user, client_id
        if client not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = (group.name for group in self._groups if group.holds(user, client_id))
            self._known[client] = next(found, None)
        return self._known[client]


def _groups(text: str) -> tuple[_Group, ...]:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise InputError(f"{GROUPS_SETTING}: this is not JSON: {error}; write it as {_EXAMPLE}") from None
    if not isinstance(found, dict):
        raise InputError(f"{GROUPS_SETTING}: write it as {_EXAMPLE}")
    groups = []
    for name, members in found.items():
        if not isinstance(members, dict) or not members or set(members) - set(_FIELDS):
            raise InputError(f"{GROUPS_SETTING}: {name}: users, client-ids or both are expected, as in {_EXAMPLE}")
        for field, patterns in members.items():
            if not isinstance(patterns, list) or not patterns or not all(isinstance(one, str) for one in patterns):
                raise InputError(f"{GROUPS_SETTING}: {name}.{field}: a list of names or patterns is expected")
        groups.append(_Group(name, tuple(members.get("users", ())), tuple(members.get("client-ids", ()))))
    return tuple(groups)
