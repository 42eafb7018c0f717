"""The format ``kquota``: quotas as they are set, as they bind a client, and their history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from kquota.admin import QuotaAdmin
from kquota.config import read_properties
from kquota.errors import InputError
from kquota.files import read_quota_file
from kquota.files.local_paths import local_path
from kquota.pipeline.data_sources.options import check_options
from kquota.quotas import CLIENT_ID, IP, USER, ClientQuotaEntity, ClientQuotaFilter, QuotaResolver, QuotaSnapshot
from kquota.stores import Access, HasHistory, open_store

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["QuotasDataSource"]

_ENTITY: Final = (("entity", pa.string()), (USER, pa.string()), ("client_id", pa.string()), (IP, pa.string()))
_QUOTAS: Final = pa.schema([*_ENTITY, ("key", pa.string()), ("value", pa.float64())])
_RESOLVED: Final = pa.schema(
    [
        *((name, pa.string()) for name in (USER, "client_id", IP, "key")),
        ("limit", pa.float64()),
        ("limit_source", pa.string()),
        ("level", pa.int32()),
        ("meter", pa.string()),
    ]
)
_HISTORY: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("principal", pa.string()),
        *_ENTITY,
        ("key", pa.string()),
        ("before", pa.float64()),
        ("after", pa.float64()),
    ]
)
_DEFAULT: Final = "<default>"
"""What Kafka's tools call the entity that stands for all that have none of their own."""

_Rows = Iterator[tuple[object, ...]]


class QuotasDataSource(DataSource):
    """Rows of one place: a quota file, the URL of a store, or with ``bootstrap_servers`` a cluster.

    Options: ``path`` (what `load` is given); ``bootstrap_servers`` and ``command_config``, a properties file of Kafka's
    tools; ``table``:

    * ``quotas`` (if none is given), a row for each entity and key: entity, user, client_id, ip, key, value;
    * ``resolved``, a row for each key that a client has a limit of: user, client_id, ip, key, limit, limit_source,
      level, meter. The client is that of the options ``user``, ``client_id`` and ``ip``;
    * ``history``, a row for each change of a store: number, at, principal, entity, user, client_id, ip, key, before,
      after. Numbers are those of its commits.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "kquota"

    def schema(self) -> StructType:
        """The columns of the table that is asked for.

        :raises InputError: there is no such table, or an option cannot be used.
        """
        return from_arrow_schema(self._table()[0])

    def reader(self, schema: StructType) -> _Reader:
        """What reads the table; it opens the place in a task of Spark's.

        :raises InputError: an option cannot be used.
        """
        del schema
        return _Reader(self._given(), *self._table())

    def _given(self) -> dict[str, str]:
        options = {name.lower(): value for name, value in self.options.items()}
        known = ("path", "bootstrap_servers", "command_config", "table", "user", "client_id", "ip")
        check_options(options, known, self.name())
        if ("path" in options) == ("bootstrap_servers" in options):
            raise InputError(
                "format kquota: give one place: .load('quotas.yaml'), .load('sqlite:///quotas.db') or "
                ".option('bootstrap_servers', 'host:9092').load()"
            )
        return options

    def _table(self) -> tuple[pa.Schema, Callable[[Mapping[str, str]], _Rows]]:
        name = self._given().get("table", "quotas")
        if name not in _TABLES:
            raise InputError(f"format kquota, option table: there is no {name}; there are {', '.join(_TABLES)}")
        return _TABLES[name]


class _Reader(DataSourceReader):
    """One task reads everything: quotas are few."""

    def __init__(
        self, options: Mapping[str, str], schema: pa.Schema, rows: Callable[[Mapping[str, str]], _Rows]
    ) -> None:
        self._options, self._schema, self._rows = options, schema, rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows of the table, as one Arrow batch.

        :raises InputError: the place is not there, or cannot say this.
        """
        del partition
        rows = list(self._rows(self._options))
        columns = zip(*rows, strict=True) if rows else [()] * len(self._schema)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _snapshot(options: Mapping[str, str]) -> QuotaSnapshot:
    """The quotas of the place."""
    place = options.get("path", "")
    if not place:
        file = options.get("command_config")
        properties: Mapping[str, Any] = {} if file is None else read_properties(file, "option command_config")
        with QuotaAdmin(options["bootstrap_servers"], **properties) as admin:
            return admin.describe_client_quotas(ClientQuotaFilter.all()).entities()
    if "://" in place and not place.lower().startswith("file:"):
        with open_store(place, access=Access.READ, option="path") as store:
            return store.index().snapshot
    path = Path(local_path(place))
    try:
        return read_quota_file(path.read_bytes(), name=place).snapshot()
    except FileNotFoundError:
        raise InputError(f"format kquota: there is no file {path}") from None


def _quotas(options: Mapping[str, str]) -> _Rows:
    for entity, values in _snapshot(options).items():
        for key, value in values.items():
            yield (*_names(entity), key, value)


def _resolved(options: Mapping[str, str]) -> _Rows:
    client = [options.get(name) for name in (USER, "client_id", IP)]
    if client == [None] * 3:
        raise InputError("format kquota, table resolved: say whose limits: option user, client_id or ip")
    user, client_id, ip = client
    for key, found in QuotaResolver(_snapshot(options)).resolve(user or "", client_id or "", ip).items():
        if found.meter is not None and found.source is not None:
            yield (*client, key, found.value, found.source.to_text(), found.level, found.meter.to_text())


def _history(options: Mapping[str, str]) -> _Rows:
    if "path" not in options:
        raise InputError("format kquota, table history: a cluster keeps none; load the URL of a store")
    with open_store(options["path"], access=Access.READ, option="path") as store:
        assert isinstance(store, HasHistory)
        for commit in store.history():
            for change in commit.changes:
                at_us = commit.at_ms * 1000
                names = _names(change.entity)
                yield (commit.number, at_us, commit.principal, *names, change.key, change.before, change.after)


def _names(entity: ClientQuotaEntity) -> tuple[str | None, ...]:
    """Its text, and the names that it has by type."""
    of_type = {kind: _DEFAULT if name is None else name for kind, name in entity.entries.items()}
    return entity.to_text(), *(of_type.get(kind) for kind in (USER, CLIENT_ID, IP))


_TABLES: Final[Mapping[str, tuple[pa.Schema, Callable[[Mapping[str, str]], _Rows]]]] = {
    "quotas": (_QUOTAS, _quotas),
    "resolved": (_RESOLVED, _resolved),
    "history": (_HISTORY, _history),
}
