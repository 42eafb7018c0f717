"""The managers of each broker in a what-if with a callback: made on workers, from what travels there."""

import pickle

from kquota.config import BrokerConfig
from kquota.metering.cluster import Cluster
from kquota.pipeline.limits.counting import CONTROLLER
from kquota.pipeline.simulation.limiters import CallbackSetup
from kquota.quotas import ClientQuotaEntity


def test_a_callback_has_the_static_defaults_and_the_cluster() -> None:
    """As on the broker that it is made for."""
    setup = CallbackSetup(
        "partitions",
        ".",
        {},
        {ClientQuotaEntity({"user": "acme_"}): {"producer_byte_rate": 800.0}},
        BrokerConfig(quota_producer_default=1000),
        Cluster.of_leaders("c", {("acme_t", 0): 1, ("acme_t", 1): 2, ("acme_t", 2): 2, ("acme_t", 3): 2}),
    )
    there: CallbackSetup = pickle.loads(pickle.dumps(setup))
    assert there == setup
    assert [there.managers(broker_id).produce.limit("acme_a", "c") for broker_id in (1, 2)] == [200, 600]
    assert there.managers(1).produce.limit("bob", "c") == 1000


def test_mutations_are_counted_by_a_controller_that_no_log_names() -> None:
    """It counts those of the whole cluster, so that the whole limit holds there."""
    setup = CallbackSetup(
        "partitions",
        ".",
        {},
        {ClientQuotaEntity({"user": "acme_"}): {"controller_mutation_rate": 8.0}},
        BrokerConfig(),
        Cluster.of_leaders("c", {("acme_t", 0): 1, ("acme_t", 1): 2}),
    )
    assert setup.managers(CONTROLLER).controller_mutation.limit("acme_a", "c") == 8
