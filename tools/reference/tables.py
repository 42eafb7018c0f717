"""The page of tables: their grain and columns, the steps that write them, and the fields of summary.json."""

from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from kquota.pipeline.dataset.steps import ANALYZE_STEP, DOCUMENTS, STEPS, written_by
from kquota.pipeline.dataset.summary import Summary
from kquota.pipeline.dataset.tables import ALL_TABLES, Table
from tools.reference.markdown import attribute_docs, code, escaped, listed, summary_of, table

PAGE = """\
# Tables

What `kquota analyze`, and the steps of `kquota pipeline`, write: Parquet (snappy), times in UTC. Other tools read these
tables, so names, types and units are a contract; what changes is in the [changelog](../../CHANGELOG.md).

- **Null is unknown**, and an empty text is known to be empty. Sums are of what is known, and null where nothing is.
- **Names** in `user`, `client_id` and `ip` are raw: the principal without its type, a client id that is null on the
  wire is empty.
- **Meters, rules and entities** are written in one text: `user=alice,client-id=etl`, the default as `user=<default>`,
  names encoded as Kafka does it in URLs (a user *named* `<default>` is `user=%3Cdefault%3E`), types in the order user,
  client-id, ip; a static default of the broker's settings is `static`.
- **A throttle** is counted on the key of its request's API: Produce on `producer_byte_rate`, Fetch on
  `consumer_byte_rate`, changes of topics on `controller_mutation_rate`, all others on `request_percentage`.

The unit *amount* depends on the key, and *limit* is the same per second:

| key | amount | limit |
| --- | --- | --- |
| `producer_byte_rate` | bytes: the request without its 4 bytes of size | bytes per second |
| `consumer_byte_rate` | bytes: the answer and its 4 bytes of size; of a throttled fetch 0 | bytes per second |
| `request_percentage` | percent-seconds of one thread, an estimate | per cent of one thread |
| `controller_mutation_rate` | partitions created and deleted | partitions per second |
| `connection_creation_rate` | connections, an estimate | connections per second |

## Which step writes what

`kquota analyze` is {analyze} in one run. A step that is run again replaces what it wrote; `resolve` under other quotas
drops what was judged by those before.

{steps}

{tables}

## summary.json

{about_summary} A field of a step that has not run is left out.

{summary}
"""

TYPE_NAMES = {pa.int32(): "int", pa.int64(): "long", pa.float64(): "double", pa.string(): "string"}


def tables_page() -> str:
    """All tables: first those that every analysis has, then those of steps that are run on their own."""
    structs: list[type[msgspec.Struct]] = [Summary]
    parts: list[str] = []
    for struct in structs:  # grows by those that are found in fields
        if struct is not Summary:
            parts += [f"### {struct.__name__}", summary_of(struct)]
        parts.append(fields_of(struct, structs))
    return PAGE.format(
        analyze=listed([one.name for one in STEPS if set(one.writes) <= set(ANALYZE_STEP.writes)]),
        steps=steps(),
        tables="\n\n".join(section(one) for one in ALL_TABLES.values()),
        about_summary=summary_of(Summary),
        summary="\n\n".join(parts),
    )


def steps() -> str:
    """The declared steps."""

    def names(of: tuple[str, ...]) -> str:
        return ", ".join(f"`{one}`" if one in DOCUMENTS else f"[`{one}`](#{one})" for one in of)

    rows = [
        (
            f"[`{one.name}`](commands.md#kquota-pipeline-{one.name})",
            names(one.reads),
            names(one.optional),
            names(one.writes),
        )
        for one in STEPS
    ]
    return table(["step", "reads", "and, where it is there", "writes"], rows)


def section(one: Table) -> str:
    """Grain and columns of a table."""
    lines = [f"## {one.name}", f"One row per {one.grain}. Written by `{written_by(one.name).name}`."]
    if one.partition_by:
        lines[1] += f" Partitioned by {', '.join(map(code, one.partition_by))}, which is in the paths of the files."
    rows = [(code(column.name), type_name(column.type), column.unit, escaped(column.doc)) for column in one.fields]
    return "\n\n".join([*lines, table(["column", "type", "unit", ""], rows)])


def type_name(of: pa.DataType) -> str:
    """As Spark's SQL calls it."""
    if pa.types.is_list(of):
        return f"array of {type_name(of.value_type)}"
    return TYPE_NAMES.get(of) or {"date32[day]": "date", "bool": "boolean"}[str(of)]


def fields_of(struct: type[msgspec.Struct], structs: list[type[msgspec.Struct]]) -> str:
    """The fields of a struct; the structs in them are added to `structs`."""
    docs, hints = attribute_docs(struct), get_type_hints(struct)
    rows = [(code(name), json_type(hints[name], structs), docs[name]) for name in struct.__struct_fields__]
    return table(["field", "type", ""], rows)


def json_type(hint: object, structs: list[type[msgspec.Struct]]) -> str:
    """What JSON has for a type."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(json_type(one, structs) for one in arguments)
    if get_origin(hint) in (list, tuple):
        return f"list of {json_type(arguments[0], structs)}"
    if get_origin(hint) is dict:
        return f"object of {json_type(arguments[1], structs)}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint not in structs:
            structs.append(hint)
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return {int: "integer", float: "number", str: "text", bool: "true or false", type(None): "null"}[hint]  # type: ignore[index]
