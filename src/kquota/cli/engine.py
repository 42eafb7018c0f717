"""``kquota engine``: the metering engine on written traffic."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from kquota.cli.options.broker import BrokerOptions
from kquota.cli.options.callback_settings import import_from_here
from kquota.cli.options.paths import reading
from kquota.cli.options.taking import takes
from kquota.clock import SystemClock
from kquota.errors import InputError
from kquota.files import dump_json
from kquota.metering.guard import CallbackGuard
from kquota.metering.meters import BucketMeter, SpreadMeter
from kquota.metering.replay import Replay

__all__ = ["engine"]

_FAULTS_SHOWN: Final = 10
_MUTATION_METERS: Final = {"token-bucket": BucketMeter, "spread-rate": SpreadMeter}
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
  kquota engine replay trace.jsonl --metrics replay.prom
  kquota engine replay trace.jsonl -D client.quota.callback.class=my_callbacks:ByPrefix

\b
A trace, one object a line:
  {"op": "quota", "entity": {"user": "alice"}, "key": "producer_byte_rate", "value": 1000}
  {"op": "record", "t_ms": 1700000000000, "user": "alice", "client-id": "c", "key": "producer_byte_rate", "value": 9000}
  {"op": "time", "t_ms": 1700000005000}
A quota's value of null removes it; "unrecord" takes back; "strict": true rejects mutations over the limit.
For a callback, "principal-type" says of which type the user's principal is, if not User.

\b
Another callback from here on (a class or an installed name, null for Kafka's own rules), as -D names the first one:
  {"op": "callback", "class": "groups", "configs": {"kquota.groups": "{\\"pay\\": {\\"users\\": [\\"alice\\"]}}"}}

\b
Who leads which partition from here on, for callbacks (kquota callback cluster writes it for a cluster that is there):
  {"op": "cluster", "partitions": [{"topic": "acme_orders", "partition": 0, "leader": 1, "replicas": [1, 2]}]}

\b
Connections are counted one by one, for the ip, and for the listener if one is named:
  {"op": "quota", "entity": {"ip": "10.0.0.7"}, "key": "connection_creation_rate", "value": 5}
  {"op": "record", "t_ms": 1700000005000, "ip": "10.0.0.7", "key": "connection_creation_rate", "value": 1}

\b
Request time without a look at the limit (the network's), and of requests that are exempt; all metrics as a line:
  {"op": "record_no_throttle", "t_ms": 1700000005000, "user": "alice", "client-id": "c", "key": "request_percentage", "value": 0.5}
  {"op": "exempt", "t_ms": 1700000005000, "value": 0.5}
  {"op": "metrics", "t_ms": 1700000005000}"""  # noqa: E501 - a line of a trace
)
@click.argument("trace", metavar="TRACE")
@click.option(
    "--metrics", metavar="FILE", help="Write the metrics at the trace's last time to FILE, in Prometheus' text format."
)
@click.option(
    "--mutation-statistic",
    type=click.Choice([*_MUTATION_METERS]),
    default="token-bucket",
    show_default=True,
    help="What partitions created and deleted are counted on: Kafka's token bucket, or the spread rate that KIP-599's "
    "page had before it.",
)
@takes(broker=BrokerOptions)
def replay(
    *,
    trace: str,
    metrics: str | None,
    mutation_statistic: str,
    broker: BrokerOptions,
) -> None:
    """Replay a trace (- is standard input): for each record a line of JSON, with its meter, limit and throttle time."""
    config = broker.load(has_callback=True)
    import_from_here()
    faults = _Faults()
    replayed = Replay(
        config,
        broker.for_callback(),
        guard=lambda callback: CallbackGuard(callback, monotonic_ms=SystemClock().monotonic_ms, report=faults.report),
        report=lambda words: click.echo(f"kquota: {words}", err=True),
        mutation_meter=_MUTATION_METERS[mutation_statistic],
    )
    write_metrics = None if metrics is None else _metrics_writer(metrics)
    for answer in replayed.answers(_operations(trace)):
        sys.stdout.write(dump_json(answer) + "\n")
    if write_metrics is not None:
        write_metrics(replayed)


class _Faults:
    """Reports the first faults of a callback; the others are like them."""

    def __init__(self) -> None:
        self._reported = 0

    def report(self, words: str) -> None:
        self._reported += 1
        if self._reported <= _FAULTS_SHOWN:
            click.echo(f"kquota: {words}", err=True)
        elif self._reported == _FAULTS_SHOWN + 1:
            click.echo("kquota: more faults of callbacks are not shown", err=True)


def _metrics_writer(path: str) -> Callable[[Replay], None]:
    """Known to be possible before the trace is replayed.

    :raises InputError: the metrics cannot go there.
    """
    if path == "-":
        raise InputError("--metrics -: the answers are written to standard output; name a file for the metrics")
    from kquota.net.prometheus import exposition

    def write(broker: Replay) -> None:
        try:
            Path(path).write_bytes(exposition(broker.managers, broker.now_ms))
        except OSError as error:
            raise InputError(f"--metrics {path}: cannot write the metrics: {error.strerror}") from None

    return write


def _operations(path: str) -> Iterator[Mapping[str, Any]]:
    """The objects of the lines; empty lines are passed over.

    :raises InputError: the file cannot be read, or a line is no object.
    """
    with reading(path, "trace"), click.open_file(path, "rb") as stream:
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
