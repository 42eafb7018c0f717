"""``kquota engine``: the metering engine on written traffic."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import click

from kquota.cli.targets import broker_options
from kquota.config import load_broker_config
from kquota.errors import InputError
from kquota.files import dump_json
from kquota.metering.engine import replay as replay_trace

__all__ = ["engine"]

_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def engine() -> None:
    """Try the metering engine: what a broker would do with given traffic."""


@engine.command(
    epilog="""\b
Examples:
  kquota engine replay trace.jsonl
  kquota engine replay trace.jsonl -D quota.window.num=21
  generate | kquota engine replay - --broker-config server.properties

\b
A trace, one object a line:
  {"op": "quota", "entity": {"user": "alice"}, "key": "producer_byte_rate", "value": 1000}
  {"op": "record", "t_ms": 1700000000000, "user": "alice", "client-id": "c", "key": "producer_byte_rate", "value": 9000}
  {"op": "time", "t_ms": 1700000005000}
A quota's value of null removes it; "unrecord" takes back; "strict": true rejects mutations over the limit."""
)
@click.argument("trace", metavar="TRACE")
@broker_options
def replay(*, trace: str, broker_config: str | None, defines: tuple[str, ...]) -> None:
    """Replay a trace (- is standard input): for each record a line of JSON, with its meter, limit and throttle time."""
    config = load_broker_config(broker_config, defines)
    for answer in replay_trace(_operations(trace), config):
        sys.stdout.write(dump_json(answer) + "\n")


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(path).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise InputError(f"{path}: cannot read the trace: {error.strerror}") from None
    with stream:
        yield stream


def _operations(path: str) -> Iterator[Mapping[str, Any]]:
    """The objects of the lines; empty lines are passed over.

    :raises InputError: the file cannot be read, or a line is no object.
    """
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
            except ValueError as error:
                raise InputError(f"{path}:{number}: this is not JSON: {error}") from None
            if not isinstance(found, dict):
                raise InputError(f'{path}:{number}: an object is expected, such as {{"op": "time", "t_ms": 0}}')
            value = found.get("value")
            if isinstance(value, str):  # JSON has no numbers that are none
                if value not in _SPECIAL:
                    raise InputError(f"{path}:{number}: value: a number is expected, not {value!r}")
                found["value"] = _SPECIAL[value]
            yield found
