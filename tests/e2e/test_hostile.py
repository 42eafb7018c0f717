"""A server under hostile frames: alive, memory flat, every connection ended, right answers in between.

``benchmarks/bench_hostile.py`` is the same at 200,000 frames and 5 million mutants.
"""

from __future__ import annotations

from random import Random

from kquota.admin import QuotaAdmin
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
from kquota.stores import open_store
from tests.kit.hostile import decoded, hostile_frames, mutants, poisonous_request, requests, send_and_end
from tests.kit.quota_server import running_server

WITNESS = ClientQuotaEntity({"user": "witness"})


def test_every_frame_that_starts_a_mutant_is_a_request() -> None:
    """Otherwise mutants would be refused at the door, and test nothing."""
    assert all(decoded(request[4:]) for request in requests())


def test_mutants_are_requests_or_refused() -> None:
    """Both happen."""
    found = [decoded(frame) for frame in mutants(1, 20_000)]
    assert 1_000 < sum(found) < 19_000


def test_a_server_outlives_hostile_frames() -> None:
    """Each connection ends, and who asks in between is answered."""
    witness = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "witness")])
    frames = list(hostile_frames(2, 3_000))
    with open_store("memory:") as store, running_server(store) as address, QuotaAdmin(str(address)) as admin:
        set_once = ClientQuotaAlteration(WITNESS, [ClientQuotaAlteration.Op("producer_byte_rate", 5.0)])
        admin.alter_client_quotas([set_once]).all()
        answers = 0
        for first in range(0, len(frames), 4):
            outcome = send_and_end((address.host, address.port), frames[first : first + 4], patience_s=30)
            assert outcome.ended, frames[first : first + 4]
            answers += outcome.answers
            if first % 400 == 0:
                assert admin.describe_client_quotas(witness).entities() == {WITNESS: {"producer_byte_rate": 5.0}}
        assert answers > 50  # some mutants are requests


def test_no_name_makes_a_server_mute() -> None:
    """However long it is and whatever it is made of: everything can be described afterwards."""
    random = Random(3)
    answers = 0
    with open_store("memory:") as store, running_server(store) as address, QuotaAdmin(str(address)) as admin:
        for _ in range(60):
            outcome = send_and_end((address.host, address.port), [poisonous_request(random)], patience_s=30)
            answers += outcome.answers
            assert outcome.ended
            assert len(admin.describe_client_quotas(ClientQuotaFilter.all()).entities()) == len(store.index().snapshot)
        assert store.index().snapshot  # some of these names can be sent back
        assert 30 < answers < 60  # and others cannot even be read
