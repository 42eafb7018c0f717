"""What is configured: kquota's own settings, and those settings of a broker that its quotas depend on.

Settings come from flags, then from the environment (``KQUOTA_<OPTION>``), then from the file given with ``--config``,
then from defaults. Each source is read once, at the start.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kquota.errors import InputError

__all__ = [
    "CALLBACK_SETTING",
    "BrokerConfig",
    "ConnectionLimits",
    "Setting",
    "Settings",
    "is_read_from_broker",
    "load_broker_config",
    "load_connection_limits",
    "load_settings",
    "read_properties",
]

SettingValue = str | int | float | bool | list[str]

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The broker settings that decide how its quotas work, with Kafka's defaults.

    A field is called like its setting, with underscores for dots. Source: ``QuotaConfig`` and ``SocketServerConfigs``;
    the two static defaults are KIP-55's, which Kafka dropped in 3.0.
    """

    quota_window_num: int = 11
    """How many windows the rates of bytes and of request time are taken over, the current one among them."""
    quota_window_size_seconds: int = 1
    """How long such a window is."""
    controller_quota_window_num: int = 11
    """The same for the rate of mutations: the token bucket holds the limit times all its windows."""
    controller_quota_window_size_seconds: int = 1
    """How long a window of mutations is."""
    quota_producer_default: int | None = None
    """Bytes per second for each client-id without any other rule; without it no limit (Kafka's Long.MAX_VALUE)."""
    quota_consumer_default: int | None = None
    """The same for what clients fetch."""
    num_io_threads: int = 8
    """Threads that handle requests; each has 100 per cent of request time."""
    num_network_threads: int = 3
    """Threads of each listener that read and write; the same."""
    num_partitions: int = 1
    """How many partitions a topic gets whose creation does not say it, and is charged as."""
    message_max_bytes: int = 1_048_588
    """The largest batch of records that the broker takes."""

    @property
    def static_defaults(self) -> dict[str, float]:
        """The static defaults that limit anything, by quota key: what ``QuotaResolver`` takes."""
        given = {
            "producer_byte_rate": self.quota_producer_default,
            "consumer_byte_rate": self.quota_consumer_default,
        }
        return {key: float(value) for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What clients may use of a server of ours. A field is called like its setting, with underscores for dots.

    The names are Kafka's but for two, which it does not have: ``socket.request.max.ms`` and ``request.max.elements``.
    The defaults are for this server rather than a broker, which takes 100 MiB of records in a request: the largest
    change of quotas that Kafka takes, of 10,000 values, is half a MiB.
    """

    socket_request_max_bytes: int = 4 * 1024 * 1024
    """The largest request. No request makes the server take more than ten times this memory."""
    socket_request_max_ms: int = 10_000
    """How long a request may take to arrive, from its first byte to its last."""
    request_max_elements: int = 40_000
    """How many elements the lists of one request may have in all: entities, their parts and values. 10,000 pairs of a
    user and a client-id with a value each have as many.
    """
    queued_max_request_bytes: int = 32 * 1024 * 1024
    """What has arrived of large requests that are not answered yet, all together; the next ones wait."""
    max_connections: int = 900
    """Beyond it connections are closed at once. The default is within the 1,024 open files of an ordinary process."""
    max_connections_per_ip: int = 250
    """The same, of one address."""
    connections_max_idle_ms: int = 600_000
    """A connection on which nothing moves for so long is closed."""


CALLBACK_SETTING: Final = "client.quota.callback.class"
_KAFKAS_RULES: Final = ("default", "kquota.metering.callback:DefaultQuotaCallback")
_BROKER_FIELDS: Final = {field.name.replace("_", "."): field.name for field in fields(BrokerConfig)}
_LIMIT_FIELDS: Final = {field.name.replace("_", "."): field.name for field in fields(ConnectionLimits)}
_KNOWN: Final = (*_BROKER_FIELDS, *_LIMIT_FIELDS, CALLBACK_SETTING)
_STATIC_DEFAULTS: Final = ("quota.producer.default", "quota.consumer.default")
_LONG_SETTINGS: Final = (*_STATIC_DEFAULTS, "queued.max.request.bytes")
_ENTITY_TYPES: Final = "entity_types"
_OURS: Final = ("quota.", "controller.quota.")


def load_broker_config(
    path: str | None = None, defines: Iterable[str] = (), *, has_callback: bool = False
) -> BrokerConfig:
    """The settings in a server.properties file, overridden by ``key=value`` texts (``-D``).

    Other settings of a broker are left aside. Under ``client.quota.callback.class`` its limits are not those of Kafka's
    rules, so it is refused, but for Kafka's own.

    :param has_callback: the caller takes limits from a callback, this one or another that it was given instead.
    :raises InputError: for a file that cannot be read, a value that a broker would refuse, a callback, and a ``-D``
        that looks like one of these settings mistyped.
    """
    given = _given(path, defines)
    callback, place = given.get(CALLBACK_SETTING, (_KAFKAS_RULES[0], ""))
    if callback not in _KAFKAS_RULES and not has_callback:
        raise InputError(
            f"{place}{CALLBACK_SETTING}={callback}: limits under a callback cannot be known from the quotas alone. "
            "`kquota callback test` and `kquota pipeline whatif --callback` try one on recorded traffic, `kquota "
            f"engine replay` on a trace; -D {CALLBACK_SETTING}=default goes by Kafka's own rules"
        )
    values = _numbers(given, _BROKER_FIELDS)
    return BrokerConfig(**values)  # type: ignore[arg-type] # only the two static defaults can be None


def load_connection_limits(
    path: str | None = None, defines: Iterable[str] = (), *, defaults: ConnectionLimits = ConnectionLimits()
) -> ConnectionLimits:
    """The limits of connections in the same file and texts, over the defaults. Raises as :func:`load_broker_config`."""
    values = _numbers(_given(path, defines), _LIMIT_FIELDS)
    return replace(defaults, **values)  # type: ignore[arg-type] # none of them can be None


def _given(path: str | None, defines: Iterable[str]) -> dict[str, tuple[str, str]]:
    """The value of each setting that is known, and the place that it comes from, for messages."""
    given: dict[str, tuple[str, str]] = {}
    if path is not None:
        for key, text in read_properties(path, "the broker's settings").items():
            if key in _KNOWN:
                given[key] = text.strip(), f"{path}: "
    for define in defines:
        key, equals, text = define.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError("-D ...: write it as key=value, such as -D quota.window.num=11")
        if key in _KNOWN:
            given[key] = text.strip(), "-D "
            continue
        close = get_close_matches(key, _KNOWN, 1, 0.85)
        if close or key.startswith(_OURS):
            raise InputError(
                f"-D {key}: a broker has no such setting" + (f"; did you mean {close[0]}?" if close else "")
            )
    return given


def _numbers(given: Mapping[str, tuple[str, str]], names: Mapping[str, str]) -> dict[str, int | None]:
    """The settings that `names` has, by its fields."""
    return {names[key]: _broker_value(key, *value) for key, value in given.items() if key in names}


def is_read_from_broker(key: str) -> bool:
    """Whether it is a setting that :func:`load_broker_config` reads, and that has no effect where others are taken."""
    return key in _BROKER_FIELDS


def read_properties(path: str, what: str) -> dict[str, str]:
    """The pairs of a Java properties file. Raises :class:`~kquota.errors.InputError`, which names `what` they are."""
    import javaproperties  # noqa: PLC0415 - only where there is such a file

    try:
        with Path(path).open("rb") as stream:
            return dict(javaproperties.load(stream))
    except OSError as error:
        raise InputError(f"{path}: cannot read {what}: {error.strerror}") from None
    except ValueError:
        # What cannot be read may be a password: it is not quoted.
        raise InputError(
            f"{path}: this is not a Java properties file: after \\u four hexadecimal digits are expected"
        ) from None


def _broker_value(key: str, text: str, place: str) -> int | None:
    largest = _LONG_MAX if key in _LONG_SETTINGS else _INT_MAX
    if not _INTEGER.fullmatch(text) or len(text) > 20 or not 1 <= int(text) <= largest:
        raise InputError(f"{place}{key}={text}: a broker takes a whole number from 1 to {largest} here")
    value = int(text)
    return None if key in _STATIC_DEFAULTS and value == _LONG_MAX else value


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that was set outside the command line, and where, for messages."""

    value: SettingValue
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment and the settings file say, before any command is known."""

    environment: Mapping[str, str]
    path: str | None
    table: Mapping[str, object]

    def lookup(self, command: tuple[str, ...], option: str) -> Setting | None:
        """The value for ``--option`` of ``command`` (such as ``("pipeline", "ingest")``).

        The environment goes before the file; in the file the table of the command before those around it.
        """
        variable = "KQUOTA_" + option.upper().replace("-", "_")
        if self.environment.get(variable):  # an empty one is as good as none
            return Setting(self.environment[variable], variable)
        tables = [self.table]
        for name in command:
            inner = tables[-1].get(name, {})
            tables.append(inner if isinstance(inner, Mapping) else {})
        for depth in range(len(tables) - 1, -1, -1):
            if option in tables[depth]:
                where = ".".join((*command[:depth], option))
                return Setting(self._value(tables[depth][option], where), f"{self.path}: {where}")
        return None

    @property
    def entity_types(self) -> Mapping[str, object]:
        """What the file adds to Kafka's entity types, by name."""
        table = self.table.get(_ENTITY_TYPES, {})
        return table if isinstance(table, Mapping) else {}

    def check_tables(self, commands: Collection[str], shared: Collection[str]) -> None:
        """Refuse what stands at the top of the file and is neither the table of a command nor a shared option."""
        commands = {*commands, _ENTITY_TYPES}
        for name, value in self.table.items():
            if name in (commands if isinstance(value, Mapping) else shared):
                continue
            if isinstance(value, Mapping):
                raise InputError(f"{self.path}: [{name}]: there is no such command{_closest(name, commands)}")
            hint = _closest(name, shared) or "; options of one command stand in its table, such as [resolve]"
            raise InputError(f"{self.path}: {name}: there is no such option for all commands{hint}")

    def check_options(self, command: tuple[str, ...], known: Collection[str]) -> None:
        """Refuse what stands in the table of ``command`` and is neither an option of it nor one of its steps."""
        table: object = self.table
        for name in command:
            table = table.get(name, {}) if isinstance(table, Mapping) else {}
        if not isinstance(table, Mapping):
            raise InputError(f"{self.path}: {'.'.join(command)} is a table: write [{'.'.join(command)}]")
        for name in table:
            if name not in known:
                where = ".".join((*command, name))
                raise InputError(f"{self.path}: {where}: there is no such option{_closest(name, known)}")

    def _value(self, value: object, where: str) -> SettingValue:
        if isinstance(value, (str, int, float, bool)):
            return value
        if isinstance(value, list) and all(isinstance(item, (str, int, float)) for item in value):
            return [str(item) for item in value]
        raise InputError(f"{self.path}: {where}: text, a number, true, false or a list of these is expected")


def load_settings(path: str | None, environment: Mapping[str, str]) -> Settings:
    """The settings of a TOML file (None: no file) and of the environment."""
    own = MappingProxyType({name: text for name, text in environment.items() if name.startswith("KQUOTA_")})
    if path is None:
        return Settings(own, None, MappingProxyType({}))
    import tomllib  # noqa: PLC0415 - only where there is such a file

    try:
        table = tomllib.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot read the settings: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: the settings are not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: this is not TOML: {error}") from None
    return Settings(own, path, table)


def _closest(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""
