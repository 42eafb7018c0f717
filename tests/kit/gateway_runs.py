"""Unmodified clients at work through a gateway, or straight, while brokers and the gateway fail: what became of it all.

One run has a topic of its own, into which the clients write at the same time, each under its own client id. Meanwhile
things happen to the brokers and to the gateway; then what was acknowledged is held against what is in the topic.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.kit.kafka_cluster import KafkaCluster
from tests.kit.killable_gateway import KillableGateway
from tests.kit.log_check import Line, check, summary, without_repetitions
from tests.kit.topic_log import read_log
from tests.kit.workload import CLIENTS, ClientProgram, Fault, Programs, Summary, read_until, run_to_end

PARTITIONS: Final = 3
# The Python clients know the others only with packages of their own; what they are to read is sent with gzip.
COMPRESSION: Final = {"java": "zstd", "librdkafka": "lz4", "franz-go": "snappy", "sarama": "zstd"}
BROKER_FAULTS: Final = ("broker restarted", "broker killed", "leaders moved")
GATEWAY_FAULTS: Final = ("gateway killed", "gateway stopped")
FAULTS: Final = (*BROKER_FAULTS, *GATEWAY_FAULTS)
MODES: Final = ("idempotent", "plain", "transact")
ABORT_EVERY: Final = 3

_numbers = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is done. ``mode`` is one of `MODES`, ``faults`` are of `FAULTS`, in their order."""

    listener: str = "PLAINTEXT"
    mode: str = "idempotent"
    faults: Sequence[str] = ()
    clients: Sequence[str] = CLIENTS
    readers: Sequence[str] = ()
    """Clients that read meanwhile, each as a group of its own."""
    records: int = 600
    """Each client's."""
    rate: int = 100
    """Records per second and client."""
    size: int = 200
    """Bytes of a value."""
    byte_rate: int | None = None
    """The gateway's quotas, see `KillableGateway`."""
    is_direct: bool = False
    """Without a gateway."""

    def __str__(self) -> str:
        throttled = ", throttled" if self.byte_rate else ""
        where = "direct" if self.is_direct else "gateway"
        return f"{where}, {self.listener}, {self.mode}{throttled}: {', '.join(self.faults) or 'no faults'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run."""

    acknowledged: int
    failed: int
    log: int
    """Records in the topic, those of aborted transactions left out."""
    duplicated: Mapping[str, int]
    """By client, those that have any."""
    reordered: int
    unacknowledged: int
    seconds: float
    """Of the slowest client."""
    throttled: int = 0
    """How often kafka-python, which says so, was throttled."""
    problems: Sequence[str] = ()
    """A sentence for each thing that must not be."""
    errors: Sequence[str] = ()
    """Why clients gave records up."""


def do(run: Run, cluster: KafkaCluster, programs: Programs, folder: Path) -> Outcome:
    """Do it, and leave the cluster whole. Files go into ``folder``, which is made.

    :raises AssertionError: a client did not end, a fault could not be caused, or a reader did not read everything.
    """
    folder.mkdir(parents=True)
    topic = f"run-{next(_numbers)}"
    cluster.create_topic(topic, PARTITIONS)
    with contextlib.ExitStack() as running:
        running.callback(cluster.start_missing)
        gateway = None
        bootstrap, security = cluster.bootstrap(run.listener), cluster.security(run.listener)
        if not run.is_direct:
            gateway = KillableGateway.of(cluster, run.listener, folder / "gateway", byte_rate=run.byte_rate)
            running.enter_context(gateway)
            bootstrap, security = gateway.bootstrap, gateway.security
        shared = {"bootstrap.servers": bootstrap, "topic": topic, "partitions": PARTITIONS, **security}
        isolation = "read_committed" if run.mode == "transact" else "read_uncommitted"

        def start(kind: str, client: str, settings: dict[str, object]) -> ClientProgram:
            more = {**shared, **settings, "client.id": f"{kind}-{client}"}
            return running.enter_context(ClientProgram(programs, client, folder, more))

        def member(client: str, kind: str = "reader") -> ClientProgram:
            group = {"group.id": f"{topic}-{client}", "isolation.level": isolation}
            return start(kind, client, {"mode": "consume", **group})

        senders = [start("sender", client, _sent(run, client, topic)) for client in run.clients]
        readers = {client: [member(client)] for client in run.readers}
        summaries = run_to_end(senders, faults=_faults(run, cluster, gateway, topic))
        cluster.start_missing()
        log = read_log(cluster.bootstrap(), topic, PARTITIONS)
        if "kafka-python" in readers:
            # When its coordinator is killed, it can stop reading for good: a second one takes its place.
            readers["kafka-python"].append(member("kafka-python", "second"))
        read = {client: without_repetitions(read_until(group, len(log))) for client, group in readers.items()}
        mistakes = [] if gateway is None else gateway.mistakes()
    outcome = judged(run, [line for sender in senders for line in sender.lines()], log, summaries)
    different = [client for client, lines in read.items() if summary(lines) != summary(log)]
    found = [f"the {client} group read something else than is there" for client in different]
    throttled = sum(one.last_errors(10_000_000).count("throttled by broker") for one in senders)
    return replace(outcome, throttled=throttled, problems=[*outcome.problems, *found, *mistakes[:3]])


def judged(run: Run, acknowledged: Sequence[Line], log: Sequence[Line], summaries: Sequence[Summary]) -> Outcome:
    """What is in the topic, beside what was acknowledged."""
    findings = check(acknowledged, log)
    problems = findings.problems(duplicates=None if run.mode == "plain" else 0)
    failed = sum(one.failed for one in summaries)
    if run.mode == "idempotent" and (failed or not len(acknowledged) == len(log) == run.records * len(run.clients)):
        problems.append(f"{len(acknowledged)} acknowledged, {len(log)} in the log, {failed} failed")
    return Outcome(
        acknowledged=len(acknowledged),
        failed=failed,
        log=len(log),
        duplicated=Counter(line.producer.removeprefix("sender-") for line in findings.duplicated),
        reordered=len(findings.reordered),
        unacknowledged=len(findings.unacknowledged),
        seconds=max(one.seconds for one in summaries),
        problems=problems,
        errors=sorted({error for one in summaries for error in one.errors}),
    )


def _sent(run: Run, client: str, topic: str) -> dict[str, object]:
    sent: dict[str, object] = {"records": run.records, "rate": run.rate, "size": run.size}
    # The payload repeats itself: compressed it would stay below any quota that lets a run end.
    is_plain = run.byte_rate is not None
    sent["compression.type"] = "none" if is_plain else "gzip" if run.readers else COMPRESSION.get(client, "gzip")
    if run.mode == "transact":
        transactional = {"transactional.id": f"{topic}-{client}", "abort.every": ABORT_EVERY}
        return {**sent, "mode": "transact", **transactional}
    return {**sent, "mode": "produce", "enable.idempotence": str(run.mode == "idempotent").lower()}


def _faults(run: Run, cluster: KafkaCluster, gateway: KillableGateway | None, topic: str) -> list[Fault]:
    """Evenly over the progress of all clients; a broker is started again half a step after it was killed."""

    def action(name: str) -> Callable[[], object]:
        if name in GATEWAY_FAULTS:
            assert gateway is not None, "a run without a gateway"
            return gateway.kill_and_start if name == "gateway killed" else gateway.restart
        if name == "leaders moved":
            return lambda: cluster.move_leaders(topic)
        number = 1 + next(_numbers) % len(cluster.nodes)
        return (lambda: cluster.restart(number)) if name == "broker restarted" else (lambda: cluster.kill(number))

    step = run.records * len(run.clients) // (len(run.faults) + 1)
    found = []
    for index, name in enumerate(run.faults, 1):
        found.append(Fault(index * step, name, action(name)))
        if name == "broker killed":
            found.append(Fault(index * step + step // 2, "broker started", cluster.start_missing))
    return found
