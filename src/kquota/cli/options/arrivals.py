"""Options for how clients behave that a limit holds up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kquota.cli.pipeline.jobs import load_pipeline

if TYPE_CHECKING:
    from kquota.pipeline.simulation.arrivals import Arrivals

__all__ = ["ArrivalChoice", "arrival_options"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class ArrivalChoice:
    """What was chosen; the pipeline is loaded when it is needed."""

    model: str
    in_flight: int | None

    def load(self) -> Arrivals:
        """The arrival model.

        :raises KquotaError: Spark's Python packages are not installed.
        """
        arrivals = load_pipeline("simulation.arrivals")
        chosen: Arrivals = arrivals.Arrivals(arrivals.ArrivalModel(self.model), self.in_flight)
        return chosen


def arrival_options(command: F) -> F:
    """``--arrivals`` and ``--in-flight``. The command gets them as one :class:`ArrivalChoice`, called `arrivals`."""

    @wraps(command)
    def with_arrivals(*, arrivals: str, in_flight: int | None, **options: Any) -> Any:
        if in_flight is not None and arrivals == "open":
            raise click.UsageError(
                "--in-flight goes with --arrivals closed: with open arrivals clients wait for nothing."
            )
        return command(arrivals=ArrivalChoice(arrivals, in_flight), **options)

    decorated: Any = with_arrivals
    decorated = click.option(
        "--in-flight",
        type=click.IntRange(1),
        metavar="N",
        help="Closed arrivals: requests in flight on a connection.  [default: 5 for produce, 1 for all others]",
    )(decorated)
    return click.option(  # type: ignore[no-any-return] # what click makes of a function is one
        "--arrivals",
        type=click.Choice(["open", "closed"]),
        default="open",
        show_default=True,
        help="open: requests come as they were recorded, and queue up while they are held up. "
        "closed: clients wait for their answers, so that all that comes after is later, too.",
    )(decorated)
