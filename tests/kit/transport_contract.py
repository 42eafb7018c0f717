"""What every way to a cluster does: to be inherited by tests with a fixture called `admin`."""

from concurrent.futures import ThreadPoolExecutor

from kquota.admin import AlterClientQuotasOptions, QuotaAdmin
from kquota.errors import ApiError
from kquota.quotas import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent
from tests.kit.eventually import eventually

__all__ = ["TransportContract"]

CAROL = ClientQuotaEntity({"user": "carol"})
ONLY_CAROL = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "carol")])
KEY = "producer_byte_rate"


def _set_to(value: float | None) -> ClientQuotaAlteration:
    return ClientQuotaAlteration(CAROL, [ClientQuotaAlteration.Op(KEY, value)])


class TransportContract:
    """Small and large answers, many at once, errors as values."""

    def test_what_was_altered_is_described(self, admin: QuotaAdmin) -> None:
        """And gone when it is removed."""
        admin.alter_client_quotas([_set_to(5e6)]).all()
        eventually(lambda: admin.describe_client_quotas(ONLY_CAROL).entities(), {CAROL: {KEY: 5e6}})
        admin.alter_client_quotas([_set_to(None)]).all()
        eventually(lambda: admin.describe_client_quotas(ONLY_CAROL).entities(), {})

    def test_what_is_refused_is_a_value(self, admin: QuotaAdmin) -> None:
        """Nothing is changed by it, and nothing by validating."""
        [error] = admin.alter_client_quotas([_set_to(-1.0)]).values().values()
        assert isinstance(error, ApiError)
        admin.alter_client_quotas([_set_to(5e6)], AlterClientQuotasOptions(validate_only=True)).all()
        assert admin.describe_client_quotas(ONLY_CAROL).entities() == {}

    def test_many_threads_may_ask_at_once(self, admin: QuotaAdmin) -> None:
        """Each gets its own answer."""
        users = [f"user-{number}" for number in range(200)]

        def resolved(user: str) -> list[ClientQuotaEntity]:
            return list(admin.resolve_client_quotas([ClientQuotaEntity({"user": user})]).config())

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(resolved, users)) == [[ClientQuotaEntity({"user": user})] for user in users]

    def test_a_long_name_goes_there_and_back(self, admin: QuotaAdmin) -> None:
        """Longer than one piece of a network: in a request that changes nothing, whose result names it."""
        long = ClientQuotaEntity({"user": "x" * 30_000})
        alteration = ClientQuotaAlteration(long, [ClientQuotaAlteration.Op(KEY, 5e6)])
        result = admin.alter_client_quotas([alteration], AlterClientQuotasOptions(validate_only=True))
        assert result.values() == {long: None}
