"""``kquota demo``: the main job on the sample capture of a real broker, with the quotas on a quota server."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from kquota.cli.options.paths import as_url
from kquota.cli.options.spark import SparkOptions
from kquota.cli.options.taking import takes
from kquota.cli.options.targets import Target, read_quotas
from kquota.cli.pipeline.summary import print_analysis
from kquota.errors import KquotaError
from kquota.files import QuotaTimeline
from kquota.policy import alterations, difference
from kquota.quotas import MeterKey

__all__ = ["demo"]

_PACKAGED = Path(__file__).parents[2] / "_sample"
_CHECKOUT = Path(__file__).parents[4] / "examples"
_LISTENING: Final = "listening on "


@click.command(
    epilog="""\b
Examples:
  kquota demo
  kquota demo --out /tmp/demo"""
)
@click.option(
    "--out", callback=as_url, default="kquota-demo", show_default=True, metavar="URL", help="Where the results go."
)
@takes(spark=SparkOptions)
def demo(*, out: str, spark: SparkOptions) -> None:
    """Analyze the sample: some minutes in the request log of a real Apache Kafka with quotas at several levels.

    The quotas come from a quota server, to which they are sent first by Kafka's own requests.
    """
    log, quotas = _sample()
    from kquota.pipeline import jobs

    with _quota_server() as server:
        count = _apply(quotas, server)
        click.echo(
            f"a quota server on {server.bootstrap_server} (SQLite)\n"
            f"  got the {count} entities of {quotas} through Kafka's protocol\n"
            f"analyzing {log}\n  under the quotas of that server\n",
            err=True,
        )
        found = server.read()
    analysis = jobs.analyze(
        [str(log)],
        QuotaTimeline.always(found),
        jobs.LogSettings(cluster="sample"),
        spark.job(out, overwrite=True),
        max_rejected=jobs.RejectLimit.parse("0"),
    )
    print_analysis(analysis)
    click.echo("\nOpen the report in a browser. Why is the first of these limited as it is?")
    worst = MeterKey.from_text(analysis.meters[0].meter).tags
    names = " ".join(f"--name {shlex.quote(f'{kind}={name}')}" for kind, name in worst.items())
    click.echo(f"  kquota resolve --quotas {shlex.quote(str(quotas))} {names} --explain")


@contextmanager
def _quota_server() -> Iterator[Target]:
    """`kquota serve` on a free port with a new store, both gone at the end."""
    with TemporaryDirectory(prefix="kquota-demo-") as folder:
        command = [sys.executable, "-c", "from kquota.cli import main; main()", "serve", "--listen", "127.0.0.1:0"]
        log = Path(folder, "serve.log")
        with log.open("w") as stderr:
            server = subprocess.Popen(
                [*command, "--store", f"sqlite:///{Path(folder, 'quotas.db')}"],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        try:
            assert server.stdout is not None
            begin = server.stdout.readline()
            if not begin.startswith(_LISTENING):
                raise KquotaError(f"the quota server did not start:\n{log.read_text().rstrip()}")
            yield Target(bootstrap_server=begin.removeprefix(_LISTENING).strip())
        finally:
            server.terminate()
            server.communicate()


def _apply(quotas: Path, server: Target) -> int:
    """Set the quotas of the file on the server; the number of entities."""
    quotas_of_file = read_quotas(str(quotas)).snapshot()
    with server.open(writes=True) as store:
        results = store.alter(alterations(difference({}, quotas_of_file)))
    for error in results.values():
        if error is not None:
            raise error.to_exception()
    return len(results)


def _sample() -> tuple[Path, Path]:
    """The log and the quotas of the sample: in the package where it was installed, otherwise in the checkout."""
    for folder, quotas in (
        (_PACKAGED, _PACKAGED / "quotas.yaml"),
        (_CHECKOUT / "capture" / "sample", _CHECKOUT / "quotas.yaml"),
    ):
        log = folder / "kafka-request.log.gz"
        if log.is_file() and quotas.is_file():
            return _shortened(log), _shortened(quotas)
    raise KquotaError(f"the sample capture is missing: it belongs into {_PACKAGED} or {_CHECKOUT}")


def _shortened(path: Path) -> Path:
    """The path as one would type it here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
