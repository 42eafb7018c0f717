"""How the pipeline runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kquota.cli.options.paths import as_url
from kquota.cli.options.taking import option
from kquota.config import BrokerConfig

if TYPE_CHECKING:
    from kquota.pipeline.dataset.spark_run import JobOptions

__all__ = ["OutOptions", "SparkOptions", "dataset_option"]


def _spark_settings(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(
                f"{text}: write it as KEY=VALUE, with a key such as spark.driver.memory", ctx, param
            )
        settings[key] = value
    return settings


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The session that a command starts, and whether it says what it does."""

    master: str | None = option(
        "--master",
        metavar="URL",
        help="Spark master.  [default: what spark-submit or Spark's settings say, otherwise local[*]]",
    )
    conf: Mapping[str, str] = option(
        "--conf",
        multiple=True,
        callback=_spark_settings,
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.driver.memory=8g, over those of spark-defaults.conf. Repeatable.",
    )
    quiet: bool = option("-q", "--quiet", is_flag=True, help="Do not show progress.")

    def job(self, out: str, broker: BrokerConfig | None = None, *, overwrite: bool = False) -> JobOptions:
        """How a job runs that writes to the dataset `out`."""
        from kquota.pipeline.dataset.spark_run import JobOptions

        return JobOptions(
            out, overwrite, broker or BrokerConfig(), master=self.master, conf=self.conf, quiet=self.quiet
        )


@dataclass(frozen=True, slots=True)
class OutOptions:
    """Where a new dataset goes."""

    out: str = option(
        "--out",
        callback=as_url,
        required=True,
        metavar="URL",
        help="Where the results go, a path or a URL such as s3://bucket/results: missing, empty, or with --overwrite.",
    )
    overwrite: bool = option("--overwrite", is_flag=True, help="Replace the results that kquota wrote to --out before.")


dataset_option = click.option(
    "--dataset",
    callback=as_url,
    required=True,
    metavar="URL",
    help="A dataset that `kquota pipeline ingest` or `kquota analyze` wrote; the step's tables are added to it.",
)
