"""Which limit binds a client, by which rule, and what it is counted against.

Source: ``ClientQuotaManager.DefaultQuotaCallback`` (tags first, then the limit of those tags), KIP-55's eight levels as
Kafka implements them, and KIP-55's static broker defaults below them:

    1 user, client-id        4 default user, client-id           7 client-id
    2 user, default client   5 default user, default client      8 default client-id
    3 user                   6 default user                      9 static broker default

Each key is resolved on its own. An ``ip`` has two levels: 1 the address, 2 the default. Types that a model adds stand
among these where the model says (:class:`~kquota.quotas.model.AddedType`).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, TypeVar

from kquota.errors import ApiError, IllegalArgumentError, KafkaErrorCode
from kquota.quotas.added_levels import AddedLevels
from kquota.quotas.address import canonical_ip
from kquota.quotas.entity import CLIENT_ID, IP, USER, ClientQuotaEntity, QuotaSnapshot
from kquota.quotas.meter import MeterKey
from kquota.quotas.model import CONSUMER_BYTE_RATE, KAFKA, PRODUCER_BYTE_RATE, QuotaModel
from kquota.quotas.resolved import STATIC, STATIC_LEVEL, Candidate, ResolvedQuota

__all__ = ["QuotaResolver"]

_UNLIMITED_STATIC: Final = 9.223372036854775807e18
"""``quota.producer.default`` and ``quota.consumer.default`` start at Long.MAX_VALUE: no limit."""

_BIT_CLIENT_ID, _BIT_USER, _BIT_USER_CLIENT_ID = 1, 2, 4
_USER = frozenset({USER})
_USER_CLIENT = frozenset({USER, CLIENT_ID})
_IP = frozenset({IP})
_IP_LEVELS: Final = 2


class QuotaResolver:
    """Answers for one snapshot. Building reads the snapshot once; resolving is a fixed number of look-ups per key, and
    so is :meth:`update`.

    ``static_defaults`` maps ``producer_byte_rate`` and ``consumer_byte_rate`` to the broker's
    ``quota.producer.default`` and ``quota.consumer.default``; Long.MAX_VALUE means none. Entities of other shapes than
    the ten that Kafka knows, and of types that `model` does not add, are left aside.
    """

    __slots__ = ("_added", "_entity_types", "_ip_tables", "_tables")

    def __init__(
        self,
        snapshot: QuotaSnapshot,
        *,
        static_defaults: Mapping[str, float] = MappingProxyType({}),
        model: QuotaModel = KAFKA,
    ) -> None:
        wrong = set(static_defaults) - {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE}
        if wrong:
            raise IllegalArgumentError(f"a broker has no static default for {', '.join(sorted(wrong))}")
        self._tables = {
            key.name: _KeyTable(key.name, static_defaults.get(key.name)) for key in model.keys if _USER in key.shapes
        }
        self._ip_tables = {key.name: _IpTable(key.name) for key in model.keys if _IP in key.shapes}
        self._entity_types = model.entity_types
        self._added: dict[str, AddedLevels] = {}
        for key in model.keys:
            own = [one for one in model.added if frozenset({one.name}) in key.shapes]
            if own:
                levels = STATIC_LEVEL if key.name in self._tables else _IP_LEVELS if key.name in self._ip_tables else 0
                self._added[key.name] = AddedLevels(own, kafka_levels=levels)
        for entity, values in snapshot.items():
            types = entity.entries.keys()
            tables: Mapping[str, _KeyTable] | Mapping[str, _IpTable] | Mapping[str, AddedLevels]
            if types == _IP:
                tables = self._ip_tables
            elif types and types <= _USER_CLIENT:
                tables = self._tables
            elif len(types) == 1:
                tables = self._added
            else:
                continue
            for name, value in values.items():
                table = tables.get(name)
                if table is not None:
                    table.add(entity, value)

    def update(self, key: str, entity: ClientQuotaEntity, value: float | None) -> None:
        """In the snapshot this value was set, or removed where it is None. Entities of other types than users and
        client ids are left aside. Raises KeyError for a key that is not a user or client-id key.
        """
        table, types = self._tables[key], entity.entries.keys()
        if types and types <= _USER_CLIENT:
            table.add(entity, value)

    def resolve(
        self, user: str, client_id: str, ip: str | None = None, *, added: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, ResolvedQuota]:
        """Every user and client-id key, the ip keys if an ``ip`` is given, and those of the ``added`` types, by name.

        ``user`` is the name of the principal without its type; an empty text is "none", as is an empty client id.
        ``added`` has the client's names of added types.
        """
        meters: dict[tuple[str, str], MeterKey] = {}
        resolved = {key: table.resolve(user, client_id, meters) for key, table in self._tables.items()}
        if ip is not None:
            for key, ip_table in self._ip_tables.items():
                resolved[key] = ip_table.resolve(ip)
        for key, levels in self._added.items():
            found = levels.merged(resolved.get(key) or _unlimited(key), added)
            if key in resolved or found.value is not None:
                resolved[key] = found
        return resolved

    def resolve_client(self, client: Mapping[str, str]) -> dict[str, ResolvedQuota] | ApiError:
        """As :meth:`resolve`, for the names of a client by entity type; Kafka's error for a type that is unknown."""
        for entity_type in client:
            if entity_type not in self._entity_types:
                message = f"Unhandled client quota entity type: {entity_type}"
                return ApiError(KafkaErrorCode.INVALID_REQUEST, message)
        return self.resolve(client.get(USER, ""), client.get(CLIENT_ID, ""), client.get(IP), added=client)

    def resolve_key(self, key: str, user: str, client_id: str) -> ResolvedQuota:
        """One user or client-id key. Raises KeyError for any other key."""
        found = self._tables[key].resolve(user, client_id, {})
        return self._added[key].merged(found, {}) if key in self._added else found

    def tags(self, key: str, user: str, client_id: str) -> tuple[str, str]:
        """The metric tags (user, client-id) that Kafka's default callback gives a request; ``""`` is no tag.

        They exist also where nothing limits the client. Raises KeyError for a key that is not a user or client-id key.
        """
        return self._tables[key].tags(user, client_id)

    def rule_of_tags(self, key: str, user_tag: str, client_tag: str) -> Candidate | None:
        """What of Kafka's levels limits usage that is counted on these tags; None where nothing does.

        Source: ``DefaultQuotaCallback.quotaLimit``, and the static default below it. Raises KeyError for a key that is
        not a user or client-id key.
        """
        return self._tables[key].rule_of_tags(user_tag, client_tag)

    def is_used(self, key: str) -> bool:
        """Whether anything is set for this key at all; where not, a broker counts nothing."""
        return bool(self._tables[key].mask)


_Rules: TypeAlias = tuple[Candidate, ...]
_Name = TypeVar("_Name", str, tuple[str, str])


def _rules(entity: ClientQuotaEntity, level: int, value: float | None) -> _Rules:
    return () if value is None else (Candidate(entity, level, value),)


def _put(level: dict[_Name, _Rules], name: _Name, rules: _Rules) -> None:
    """A level has no names without a rule."""
    if rules:
        level[name] = rules
    else:
        level.pop(name, None)


def _unlimited(key: str) -> ResolvedQuota:
    return ResolvedQuota(key, None, None, None, None, ())


class _KeyTable:
    """All rules of one user and client-id key, level by level, each as a tuple of one rule (or of none)."""

    __slots__ = ("key", "l1", "l2", "l3", "l4", "l5", "l6", "l7", "l8", "l9", "mask", "unlimited")

    def __init__(self, key: str, static_default: float | None) -> None:
        self.key = key
        self.mask = 0
        self.unlimited = _unlimited(key)
        self.l1: dict[tuple[str, str], _Rules] = {}  # by user and client-id
        self.l2: dict[str, _Rules] = {}  # by user
        self.l3: dict[str, _Rules] = {}  # by user
        self.l4: dict[str, _Rules] = {}  # by client-id
        self.l5: _Rules = ()
        self.l6: _Rules = ()
        self.l7: dict[str, _Rules] = {}  # by client-id
        self.l8: _Rules = ()
        self.l9: _Rules = ()
        # Compared as a double: that is what Long.MAX_VALUE becomes.
        if static_default is not None and float(static_default) != _UNLIMITED_STATIC:
            self.l9 = (Candidate(STATIC, STATIC_LEVEL, float(static_default)),)
            self.mask = _BIT_CLIENT_ID

    def add(self, entity: ClientQuotaEntity, value: float | None) -> None:
        """Take a rule, or drop it where its value is None."""
        entries = entity.entries
        user, client_id = entries.get(USER), entries.get(CLIENT_ID)
        if USER not in entries:
            if client_id is None:
                self.l8 = _rules(entity, 8, value)
            else:
                _put(self.l7, client_id, _rules(entity, 7, value))
        elif CLIENT_ID not in entries:
            if user is None:
                self.l6 = _rules(entity, 6, value)
            else:
                _put(self.l3, user, _rules(entity, 3, value))
        elif user is None:
            if client_id is None:
                self.l5 = _rules(entity, 5, value)
            else:
                _put(self.l4, client_id, _rules(entity, 4, value))
        elif client_id is None:
            _put(self.l2, user, _rules(entity, 2, value))
        else:
            _put(self.l1, (user, client_id), _rules(entity, 1, value))
        self.mask = (
            (_BIT_CLIENT_ID if self.l7 or self.l8 or self.l9 else 0)
            | (_BIT_USER if self.l3 or self.l6 else 0)
            | (_BIT_USER_CLIENT_ID if self.l1 or self.l2 or self.l4 or self.l5 else 0)
        )

    def tags(self, user: str, client_id: str) -> tuple[str, str]:
        """By the mask where only one kind of level is in use; otherwise by the first level that has an entry."""
        if self.mask in (0, _BIT_CLIENT_ID):
            return "", client_id
        if self.mask == _BIT_USER:
            return user, ""
        if self.mask == _BIT_USER_CLIENT_ID or (user, client_id) in self.l1 or user in self.l2:
            return user, client_id
        if user in self.l3:
            return user, ""
        if client_id in self.l4 or self.l5:
            return user, client_id
        if self.l6:
            return user, ""
        return "", client_id

    def rule_of_tags(self, user: str, client_id: str) -> Candidate | None:
        """The three kinds of tags look at levels of their own, without falling through."""
        if user and client_id:
            rules = self.l1.get((user, client_id), ()) or self.l2.get(user, ()) or self.l4.get(client_id, ()) or self.l5
        elif user:
            rules = self.l3.get(user, ()) or self.l6
        elif client_id:
            rules = self.l7.get(client_id, ()) or self.l8 or self.l9
        else:
            rules = ()
        return rules[0] if rules else None

    def resolve(self, user: str, client_id: str, meters: dict[tuple[str, str], MeterKey]) -> ResolvedQuota:
        """``meters`` keeps the meters made for this client, for the keys that follow."""
        if not self.mask:
            return self.unlimited
        if user and client_id:
            # The first entry of the walk is also the limit of the tags it gives, whatever the mask says: one pass
            # over the levels does both phases.
            rules = (
                self.l1.get((user, client_id), ())
                + self.l2.get(user, ())
                + self.l3.get(user, ())
                + self.l4.get(client_id, ())
                + self.l5
                + self.l6
                + self.l7.get(client_id, ())
                + self.l8
                + self.l9
            )
        else:
            # The tags decide which levels are asked at all; there is no falling through to other groups. That is why
            # a default for client ids never binds a client that sends none.
            user_tag, client_tag = self.tags(user, client_id)
            if user_tag:
                rules = self.l3.get(user_tag, ()) + self.l6
            elif client_tag:
                rules = self.l7.get(client_tag, ()) + self.l8 + self.l9
            else:
                rules = ()
        if not rules:
            return self.unlimited
        source, level, value = rules[0]
        if level in (1, 2, 4, 5):
            tags = user, client_id
        elif level in (3, 6):
            tags = user, ""
        else:
            tags = "", client_id
        meter = meters.get(tags)
        if meter is None:
            meter = meters[tags] = MeterKey({USER: tags[0], CLIENT_ID: tags[1]})
        return ResolvedQuota(self.key, value, source, level, meter, rules[1:])


class _IpTable:
    """All rules of one ip key. Addresses are compared as addresses, host names as text."""

    __slots__ = ("addresses", "default", "key", "unlimited")

    def __init__(self, key: str) -> None:
        self.key = key
        self.addresses: dict[str, Candidate] = {}
        self.default: Candidate | None = None
        self.unlimited = _unlimited(key)

    def add(self, entity: ClientQuotaEntity, value: float) -> None:
        name = entity.entries[IP]
        if name is None:
            self.default = Candidate(entity, 2, value)
        else:
            self.addresses[canonical_ip(name) or name] = Candidate(entity, 1, value)

    def resolve(self, ip: str) -> ResolvedQuota:
        address = canonical_ip(ip) or ip
        own, default = self.addresses.get(address), self.default
        winner = own or default
        if winner is None or not address:
            return self.unlimited
        overridden = (default,) if own is not None and default is not None else ()
        return ResolvedQuota(self.key, winner.value, winner.source, winner.level, MeterKey({IP: address}), overridden)
