"""How clients behave while a limit delays them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from kquota.cli.options.taking import option

if TYPE_CHECKING:
    from kquota.pipeline.simulation.arrivals import Arrivals

__all__ = ["ArrivalOptions"]


@dataclass(frozen=True, slots=True)
class ArrivalOptions:
    """``--arrivals`` and ``--in-flight``."""

    arrivals: Literal["open", "closed"] = option(
        "--arrivals",
        type=click.Choice(["open", "closed"]),
        default="open",
        show_default=True,
        help="open: requests come as they were recorded, and queue up while the client is throttled. "
        "closed: clients wait for their answers, so that all that comes after is later, too.",
    )
    in_flight: int | None = option(
        "--in-flight",
        type=click.IntRange(1),
        metavar="N",
        help="Closed arrivals: requests in flight on a connection.  [default: 5 for produce, 1 for all others]",
    )

    def __post_init__(self) -> None:
        if self.in_flight is not None and self.arrivals == "open":
            raise click.UsageError(
                "--in-flight goes with --arrivals closed: with open arrivals clients wait for nothing."
            )

    def load(self) -> Arrivals:
        """The arrival model; the pipeline is loaded for it."""
        from kquota.pipeline.simulation.arrivals import ArrivalModel, Arrivals

        return Arrivals(ArrivalModel(self.arrivals), self.in_flight)
