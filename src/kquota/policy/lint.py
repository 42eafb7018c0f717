"""What quotas say that Kafka takes and nobody means: rules that bind nobody, names that match nobody, limits too low.

Every rule has its paragraph in ``docs/lint.md``, with an example that is a test.
"""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

from kquota.config import BrokerConfig
from kquota.files.quota_file import QuotaFile
from kquota.policy.findings import Finding, Severity, in_order
from kquota.policy.name_lint import lint_names
from kquota.policy.shadowing import Reach, rules_by_key, shadow, users_with_rules
from kquota.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    KAFKA,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    ClientQuotaEntity,
    QuotaSnapshot,
    ValueType,
    format_number,
)

__all__ = ["lint"]

_DEFAULTS: Final = BrokerConfig()
_REQUEST_TIMEOUT_S: Final = 30
"""``request.timeout.ms`` of Kafka's clients: they give up on what takes longer."""
_SHOWN: Final = 3


def lint(file: QuotaFile, *, broker: BrokerConfig = _DEFAULTS) -> tuple[Finding, ...]:
    """What is wrong with the quotas of `file`, or may surprise, sorted by entity.

    :param broker: the broker's settings, by which limits are judged; by default Kafka's own.
    """
    snapshot = file.snapshot()
    findings: list[Finding] = []
    for key, rules in rules_by_key(snapshot).items():
        findings += _reach(key, rules)
    for entity, values in snapshot.items():
        for key, value in values.items():
            findings += _value(entity, key, value, broker)
    findings += lint_names(snapshot)
    findings += _static_defaults(snapshot, broker)
    for one in file.left_out:
        line = "" if one.line is None else f"line {one.line}: "
        findings.append(Finding("not-carried", Severity.WARNING, None, None, f"{line}{one.reason}"))
    return in_order(findings)


def _static_defaults(snapshot: QuotaSnapshot, broker: BrokerConfig) -> Iterator[Finding]:
    """KIP-55 deprecated them, and Kafka 3.0 dropped them (KAFKA-12591)."""
    default = ClientQuotaEntity({CLIENT_ID: None})
    for key, value in broker.static_defaults.items():
        if key not in snapshot.get(default, {}):
            name = f"quota.{key.removesuffix('_byte_rate')}.default"
            text = (
                f"{name}={format_number(value)} of the broker's settings limits nobody from Kafka 3.0 on, which has no "
                f"such setting; set {key} on {default.to_text()}, which every Kafka has"
            )
            yield Finding("static-default", Severity.INFO, None, key, text)


def _reach(key: str, rules: set[ClientQuotaEntity]) -> Iterator[Finding]:
    users = users_with_rules(rules)
    pairs: dict[str, set[str]] = {}
    for entity in rules:
        user, client_id = entity.entries.get(USER), entity.entries.get(CLIENT_ID)
        if user is not None and client_id is not None:
            pairs.setdefault(client_id, set()).add(user)
    for entity in rules:
        above = shadow(entity, rules)
        client_id = entity.entries.get(CLIENT_ID)
        if above is not None and above.left is Reach.NOBODY:
            first = above.by.to_text()
            text = f"binds nobody: {first} takes precedence over it for every user, ANONYMOUS included; remove it"
            # For one client id it can have precedence over the default of users, but not over one for all client ids.
            if client_id is not None and above.by.entries.get(CLIENT_ID) is None:
                text += f", or set it on {ClientQuotaEntity({USER: None, CLIENT_ID: client_id}).to_text()}"
            yield Finding("unreachable", Severity.WARNING, entity, key, text)
        elif above is not None:
            yield Finding(
                "overridden",
                Severity.WARNING,
                entity,
                key,
                f"binds only clients that send no client id: {above.by.to_text()} takes precedence over it for all "
                "others; remove one of the two",
            )
        elif client_id is not None and entity.entries.get(USER) is None:
            yield from _taken(entity, key, client_id, users, pairs.get(client_id, set()))


def _taken(
    entity: ClientQuotaEntity, key: str, client_id: str, users: list[str], with_pair: set[str]
) -> Iterator[Finding]:
    """A rule on a client id, and users with own rules, which take precedence over it where the pair has no rule."""
    shown = list(islice((user for user in users if user not in with_pair), _SHOWN))
    if not shown:
        return
    count = len(users) - len(with_pair.intersection(users))
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    names = f"user{'s' if count > 1 else ''} {', '.join(map(_quoted, shown))}{more}"
    pair = ClientQuotaEntity({USER: shown[0], CLIENT_ID: client_id})
    yield Finding(
        "overridden",
        Severity.INFO,
        entity,
        key,
        f"does not bind {names}: a rule of the user takes precedence over it; if it should, set it on {pair.to_text()} "
        "too",
    )


def _value(entity: ClientQuotaEntity, key: str, value: float, broker: BrokerConfig) -> Iterator[Finding]:
    known = KAFKA.key(key)
    if known is None:
        return
    refusal = known.refusal(value)
    shown = format_number(value)
    if math.isnan(value) and key == CONNECTION_CREATION_RATE:
        text = "NaN lets nobody connect: Kafka takes it and makes it 0; remove the value, or write a number"
        yield Finding("nan-limit", Severity.ERROR, entity, key, text)
    elif math.isnan(value):
        text = "NaN limits nobody: Kafka takes it and then never throttles; remove the value, or write a number"
        yield Finding("nan-limit", Severity.WARNING, entity, key, text)
    elif value <= 0:
        text = f"{shown} is refused: a limit is greater than 0; remove the value for no limit, or write a small number"
        yield Finding("not-positive", Severity.ERROR, entity, key, text)
    elif known.value_type is ValueType.LONG and value % 1.0 and math.isfinite(value):
        text = f"a byte rate is a whole number, {shown} is refused; write {format_number(float(round(value) or 1))}"
        if refusal is None:
            text = f"{shown} is no whole number, and kept as it is; write {format_number(float(round(value)))}"
        severity = Severity.WARNING if refusal is None else Severity.ERROR
        yield Finding("fractional-byte-rate", severity, entity, key, text)
    elif refusal is not None:
        yield Finding("refused", Severity.ERROR, entity, key, f"{shown} is refused: {refusal}")
    else:
        yield from _size(entity, key, value, broker)


def _size(entity: ClientQuotaEntity, key: str, value: float, broker: BrokerConfig) -> Iterator[Finding]:
    """Limits under what one request takes, and above what there is."""
    # A rate that has seen nothing is taken over all its windows but the current one.
    window_s = (broker.quota_window_num - 1) * broker.quota_window_size_seconds
    largest = broker.message_max_bytes
    match key:
        case _ if key == CONSUMER_BYTE_RATE and value * window_s < largest:
            enough = (
                f"set {format_number(math.ceil(largest / window_s))} or more"
                if window_s
                else "set quota.window.num to 2 or more"
            )
            text = (
                f"lets {format_number(value * window_s)} bytes pass at once, and a batch may have {largest} "
                "(message.max.bytes): a consumer that meets a larger one gets empty answers again and again; "
                f"{enough}"
            )
            yield Finding("under-one-fetch", Severity.WARNING, entity, key, text)
        case _ if key == PRODUCER_BYTE_RATE and largest / value - window_s > _REQUEST_TIMEOUT_S:
            enough = format_number(math.ceil(largest / (window_s + _REQUEST_TIMEOUT_S)))
            text = (
                f"one request of {largest} bytes (message.max.bytes) makes its client wait for "
                f"{largest / value - window_s:,.0f} s, and clients give up after {_REQUEST_TIMEOUT_S} "
                f"(request.timeout.ms); set {enough} or more"
            )
            yield Finding("under-one-request", Severity.WARNING, entity, key, text)
        case _ if key == CONTROLLER_MUTATION_RATE:
            seconds = broker.controller_quota_window_num * broker.controller_quota_window_size_seconds
            if value * seconds < 1:
                enough = format_number(math.ceil(1000 / seconds) / 1000)
                text = (
                    f"a full bucket holds {value * seconds:.3g} partitions ({seconds} s): after each topic the next is "
                    f"refused for {1 / value - seconds:,.0f} s or more; set {enough} or more"
                )
                yield Finding("under-one-mutation", Severity.WARNING, entity, key, text)
        case _ if key == REQUEST_PERCENTAGE:
            threads = broker.num_io_threads + broker.num_network_threads
            if value > 100 * threads:
                text = (
                    f"binds nobody: {threads} threads (num.io.threads {broker.num_io_threads}, num.network.threads "
                    f"{broker.num_network_threads}) have {100 * threads} %, and this is {format_number(value)} %"
                )
                yield Finding("above-capacity", Severity.INFO, entity, key, text)


def _quoted(name: str) -> str:
    return ClientQuotaEntity({USER: name}).to_text().removeprefix("user=")
