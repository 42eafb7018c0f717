"""Capture what a real broker and its clients say about client quotas.

Starts an Apache Kafka, sets limits with the broker's own tool, runs real Java clients against it with the request log
on, and saves the log, the limits, what each client counted and the broker's quota metrics of each second.
See README.md beside this file.

    python -m examples.capture.capture --out DIR
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import yaml

from examples.capture.broker import NODE_ID, Broker, running_broker
from examples.capture.jars import UTF8_ENVIRONMENT, KafkaUnavailable, has_compiler, java
from examples.capture.processes import BrokerFailed

HERE: Final = Path(__file__).parent
WARM_UP_S: Final = 20
ENTITY_TYPES: Final = {"user": "users", "client-id": "clients", "ip": "ips"}


def capture(
    out: Path,
    *,
    version: str,
    seconds: float,
    seed: int,
    limits: list[dict[str, Any]],
    workload: Mapping[str, Any],
    warm_up_s: float = WARM_UP_S,
    metrics: bool = True,
) -> None:
    """One capture into the directory ``out``, which must not be there yet or be empty.

    Without ``metrics`` nobody reads the broker's meters: a reading moves the window of one that was idle for long.
    ``limits`` as under ``quotas:`` of a quota file, ``workload`` as in workload.yaml. Raises KafkaUnavailable where no
    Kafka can be run, BrokerFailed where the broker or one of its tools fails, CalledProcessError where the clients do.
    """
    if not has_compiler():
        raise KafkaUnavailable(f"the clients need a Java with a compiler, and {java()} has none: install a full JDK")
    users = {client["user"] for client in workload["clients"]}
    passwords = {user: f"{user}-secret" for user in sorted(users) if user.isascii()}
    with tempfile.TemporaryDirectory(prefix="capture-") as work:
        folder = Path(work)
        with running_broker(version, folder, passwords=passwords, log_requests=False, heap_mb=1024) as broker:
            say("warming up")
            warm = {**workload, "clients": [one for one in workload["clients"] if one["kind"] != "create-topics"]}
            run_clients(broker, plan(broker, warm, seconds=warm_up_s, seed=seed))
            say(f"setting {len(limits)} limits")
            for limit in limits:
                set_limit(broker, limit)
            dumped = described_limits(broker)
            if sorted(map(canonical, dumped)) != sorted(map(canonical, limits)):
                raise BrokerFailed(f"the broker describes other limits than were set: {dumped}")
            broker.log_requests()
            say(f"running {len(workload['clients'])} clients for {seconds:g} s")
            with polled_metrics(broker, folder / "jmx.csv") if metrics else contextlib.nullcontext():
                start = datetime.now(UTC)
                measured = {key: value for key, value in workload.items() if key not in ("topics", "prefill")}
                counted = run_clients(broker, plan(broker, measured, seconds=seconds, seed=seed))
                end = datetime.now(UTC)
        save(out, broker, dumped, counted, {"seconds": seconds, "seed": seed, "start": start, "end": end})


def plan(broker: Broker, workload: Mapping[str, Any], *, seconds: float, seed: int) -> dict[str, Any]:
    """What Workload.java reads."""
    clients = [
        {**client, "password": broker.passwords[client["user"]]} if client["user"] in broker.passwords else client
        for client in workload["clients"]
    ]
    addresses = {"bootstrap": broker.plaintext, "sasl": broker.sasl}
    return {**workload, **addresses, "seconds": seconds, "seed": seed, "clients": clients}


def run_clients(broker: Broker, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each client counted."""
    command = [str(java()), "-Xmx512m", "-Dfile.encoding=UTF-8", "-cp", f"{broker.jars}/*", str(HERE / "Workload.java")]
    done = subprocess.run(
        command,
        input=json.dumps(plan),
        stdout=subprocess.PIPE,
        stderr=None,
        check=True,
        encoding="utf-8",
        env=UTF8_ENVIRONMENT,
    )
    counted: list[dict[str, Any]] = json.loads(done.stdout)
    return counted


def set_limit(broker: Broker, limit: Mapping[str, Any]) -> None:
    """Set the values of one entity; a value of None removes it. Raises BrokerFailed."""
    arguments = ["--alter"]
    for entity_type, option in ENTITY_TYPES.items():  # ConfigCommand wants the user before the client id
        if entity_type in limit["entity"]:
            name = limit["entity"][entity_type]
            arguments += ["--entity-type", option]
            arguments += ["--entity-default"] if name is None else ["--entity-name", name]
    values = limit["values"]
    if removed := [key for key, value in values.items() if value is None]:
        arguments += ["--delete-config", ",".join(removed)]
    if added := [f"{key}={value}" for key, value in values.items() if value is not None]:
        arguments += ["--add-config", ",".join(added)]
    broker.configs(*arguments)


# "Quota configs for user-principal 'ml', the default client-id are consumer_byte_rate=300000.0"
_DESCRIBED: Final = re.compile(
    r"Quota configs for (?P<entity>.+) are (?P<values>[a-z_]+=[^\s,]+(?:, [a-z_]+=[^\s,]+)*)"
)
_PART: Final = re.compile(
    r"(?P<default>the default )?(?P<type>user-principal|client-id|ip)"
    r"(?: '(?P<name>.*?)')?(?:, (?=(?:the default )?client-id)|$)"
)


def described_limits(broker: Broker) -> list[dict[str, Any]]:
    """All limits as ConfigCommand describes them, in the form of a quota file."""
    limits = []
    for types in (("users",), ("clients",), ("users", "clients"), ("ips",)):
        arguments = [argument for entity_type in types for argument in ("--entity-type", entity_type)]
        for found in _DESCRIBED.finditer(broker.configs("--describe", *arguments)):
            entity = {
                part["type"].removesuffix("-principal"): None if part["default"] else part["name"]
                for part in _PART.finditer(found["entity"])
            }
            values = dict(pair.split("=") for pair in found["values"].split(", "))
            limits.append({"entity": entity, "values": {key: number(values[key]) for key in sorted(values)}})
    return limits


def number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def canonical(limit: Mapping[str, Any]) -> str:
    return json.dumps(limit, sort_keys=True)


@contextlib.contextmanager
def polled_metrics(broker: Broker, csv: Path) -> Iterator[None]:
    """The quota metrics of each second, written into ``csv`` as long as the block runs."""
    with csv.open("wb") as output:
        command = [str(java()), "-Xmx128m", str(HERE / "JmxPoll.java"), str(broker.jmx_port)]
        poll = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, env=UTF8_ENVIRONMENT)
        try:
            yield
        finally:
            poll.communicate()  # closes its input, which ends it


def save(
    out: Path, broker: Broker, limits: list[dict[str, Any]], counted: list[dict[str, Any]], told: Mapping[str, Any]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    # Without name and time in its header, the same log always gives the same file.
    with (
        broker.request_log.open("rb") as log,
        (out / "kafka-request.log.gz").open("wb") as packed,
        gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as lines,
    ):
        shutil.copyfileobj(log, lines)
    if (broker.folder / "jmx.csv").exists():
        shutil.copy(broker.folder / "jmx.csv", out / "jmx.csv")
    quotas = "".join(f"\n  - {json.dumps(limit, ensure_ascii=False)}" for limit in limits) or " []"
    (out / "quotas.yaml").write_text(f"# What the broker's own kafka-configs described.\nquotas:{quotas}\n", "utf-8")
    (out / "clients.json").write_text(json.dumps(counted, indent=1, ensure_ascii=False) + "\n", "utf-8")
    settings = "".join(f"{key}={value}\n" for key, value in broker.properties.items())
    (out / "server.properties").write_text(settings.replace(str(broker.folder), "/var/lib/kafka"), "utf-8")
    java_version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True).stderr
    manifest = {
        "kafka": broker.version,
        "java": java_version.splitlines()[0],
        "timezone": "UTC",
        "broker_id": NODE_ID,
        **{key: value.isoformat() if isinstance(value, datetime) else value for key, value in told.items()},
    }
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.capture.capture", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="directory for the capture: new or empty")
    parser.add_argument("--seconds", type=float, default=180, help="how long the clients run (default: 180)")
    parser.add_argument("--seed", type=int, default=1, help="of the sizes and pauses of the clients (default: 1)")
    parser.add_argument("--kafka", default="4.3.0", metavar="VERSION", help="the broker's version (default: 4.3.0)")
    parser.add_argument(
        "--quotas", type=Path, default=HERE / "limits.yaml", help="the limits, a quota file (default: limits.yaml here)"
    )
    parser.add_argument(
        "--workload", type=Path, default=HERE / "workload.yaml", help="the clients (default: workload.yaml here)"
    )
    parser.add_argument(
        "--warm-up",
        type=float,
        default=WARM_UP_S,
        metavar="SECONDS",
        help=f"how long the clients run before the log begins (default: {WARM_UP_S})",
    )
    parser.add_argument(
        "--no-metrics",
        action="store_true",
        help="do not read the broker's metrics each second: a reading moves the window of a meter that was idle",
    )
    arguments = parser.parse_args()
    if arguments.out.exists() and any(arguments.out.iterdir()):
        parser.error(f"{arguments.out} is not empty")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the broker is stopped on the way out
    limits = yaml.safe_load(arguments.quotas.read_text(encoding="utf-8"))["quotas"]
    workload = yaml.safe_load(arguments.workload.read_text(encoding="utf-8"))
    try:
        capture(
            arguments.out,
            version=arguments.kafka,
            seconds=arguments.seconds,
            seed=arguments.seed,
            limits=limits,
            workload=workload,
            warm_up_s=arguments.warm_up,
            metrics=not arguments.no_metrics,
        )
    except (KafkaUnavailable, BrokerFailed, subprocess.CalledProcessError) as error:
        say(f"error: {error}")
        return 1
    say(f"captured into {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
