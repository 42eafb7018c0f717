"""The worked examples in docstrings: each gives what is written below it."""

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "kquota.metering.statistics",
        "kquota.pipeline.calibration.broker_replay",
        "kquota.pipeline.simulation.cell_queue",
        "kquota.pipeline.simulation.cells",
        "kquota.pipeline.simulation.compiled_meter",
        "kquota.pipeline.simulation.mutation_waits",
    ],
)
def test_an_example_gives_what_is_written_below_it(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
