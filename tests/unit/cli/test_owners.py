"""Names of owners that are asked for."""

import pytest

from kquota.cli.options.owners import check_owners
from kquota.errors import InputError
from kquota.policy import UNOWNED, OwnerMap, OwnerRule


def of(*owners: str) -> OwnerMap:
    return OwnerMap(OwnerRule(owner, {"user": owner}, {}) for owner in owners)


def test_names_that_there_are() -> None:
    """Those of the map, and that of what nobody owns."""
    check_owners([], of())
    check_owners(["search", "shop", UNOWNED], of("shop", "search", ""))


def test_a_name_that_is_nobodys_is_told_with_a_few_that_are_somebodys() -> None:
    with pytest.raises(InputError, match=r"--owner x: there is no such owner; there are a, b$"):
        check_owners(["a", "x"], of("b", "a"))
    with pytest.raises(InputError, match=r"there are o00, .*, o07 and 1,192 more$"):
        check_owners(["x"], of(*(f"o{number:02}" for number in range(1200))))


def test_without_owners_there_is_none_to_ask_for() -> None:
    with pytest.raises(InputError, match=r"--owner unowned: no owners are known: give --owners FILE, or quotas"):
        check_owners([UNOWNED], of())
