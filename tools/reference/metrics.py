"""The page of metrics: a broker's own, as the metering engine and the gateway have them, and the gateway's."""

from itertools import groupby

from kquota.config import BrokerConfig
from kquota.gateway.metrics.families import FAMILIES
from kquota.metering.engine import QuotaManagers
from kquota.metering.metrics import Metric, read_limits, read_metrics
from kquota.net.prometheus import LIMIT_SOURCE, series_labels, series_name
from kquota.quotas import KAFKA, ClientQuotaEntity
from tools.reference.markdown import code, escaped, listed, table

PAGE = """\
# Metrics

What they mean, and how to ask Prometheus for them, has [a page](../metrics.md).

## Of a broker

What `kquota engine replay --metrics` and the gateway write. In Prometheus all are gauges. At the gateway they have the
label `broker` as well, and what is summed up over clients without series of their own has `other="true"`.

{broker}

A broker exports no limits; these are kquota's:

{limits}

## Of the gateway

{gateway}

`process_*`: memory, processor time and open files, as `prometheus-client` has them for any program.
"""

NOW_MS = 1_700_000_000_000


def metrics_page() -> str:
    """All metrics that there are after traffic of every kind."""
    managers = busy_managers()
    limits = sorted({one.group for one in read_limits(managers)}, key=list(groups(managers)).index)
    return PAGE.format(
        broker=table(["series", "labels", "MBean", "attribute", ""], broker_rows(managers)),
        limits=table(
            ["series", "labels"],
            [
                (code(series_name(one, "quota-limit")), listed([*series_labels(one, {}), LIMIT_SOURCE]))
                for one in limits
            ],
        ),
        gateway=table(
            ["series", "type", "labels", ""],
            [(code(one.name), one.kind, listed(one.labels), escaped(one.documentation)) for one in FAMILIES],
        ),
    )


def busy_managers() -> QuotaManagers:
    """With a limit of every key, and something recorded on it."""
    managers = QuotaManagers(BrokerConfig())
    for key in (one.name for one in KAFKA.keys):
        on = {"ip": None} if key == "connection_creation_rate" else {"user": "u", "client-id": "c"}
        managers.update_quota(key, ClientQuotaEntity(on), 1)
    for manager in (managers.produce, managers.fetch, managers.request):
        manager.record("u", "c", 1, NOW_MS)
    managers.controller_mutation.get_or_create_meter("u", "c").record(1, NOW_MS)
    managers.connections.accept("LISTENER", "10.0.0.1", NOW_MS)
    return managers


def groups(managers: QuotaManagers) -> dict[str, None]:
    """The types of MBeans, in their order."""
    return dict.fromkeys(one.group for one in read_metrics(managers, NOW_MS))


def broker_rows(managers: QuotaManagers) -> list[tuple[str, str, str, str, str]]:
    """A row for each attribute of an MBean; of those with several sets of tags, all sets."""
    order = list(groups(managers))
    found = sorted(read_metrics(managers, NOW_MS), key=lambda one: (order.index(one.group), one.name))
    rows = []
    for (group, name), metrics in groupby(found, key=lambda one: (one.group, one.name)):
        same = list(metrics)
        labels = list(series_labels(group, same[0].tags)) if same[0].tags else []
        mbeans = listed(dict.fromkeys(mbean(one) for one in same))
        rows.append((code(series_name(group, name)), listed(labels), mbeans, code(name), escaped(same[0].description)))
    return rows


def mbean(metric: Metric) -> str:
    """With the names of its tags in the place of their values."""
    tags = "".join(f",{tag}={tag.upper()}" for tag, value in metric.tags.items() if value)
    return f"kafka.server:type={metric.group}{tags}"
