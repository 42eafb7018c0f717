"""Tests that need something this machine may not have: not run at home, a failure where it was promised."""

import os
from typing import NoReturn

import pytest


def not_run(requirement: str, reason: str) -> NoReturn:
    """End the running test as not run, or as failed where `KQUOTA_REQUIRE_<requirement>=1` promises that it can run."""
    variable = f"KQUOTA_REQUIRE_{requirement}"
    if os.environ.get(variable) == "1":
        pytest.fail(f"{reason} ({variable}=1 says that it must)", pytrace=False)
    pytest.skip(f"not run: {reason}")
