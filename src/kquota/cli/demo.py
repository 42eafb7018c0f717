"""``kquota demo``: the main job on the sample capture of a real broker."""

import shlex
from pathlib import Path

import click

from kquota.cli.jobs import load_jobs, print_analysis, spark_options
from kquota.cli.targets import read_quotas
from kquota.errors import KquotaError
from kquota.quotas import MeterKey

__all__ = ["demo"]

_PACKAGED = Path(__file__).parents[1] / "_sample"
_CHECKOUT = Path(__file__).parents[3] / "examples"


@click.command(
    epilog="""\b
Examples:
  kquota demo
  kquota demo --out /tmp/demo"""
)
@click.option("--out", default="kquota-demo", show_default=True, metavar="DIR", help="Where the results go.")
@spark_options
def demo(*, out: str, master: str | None, quiet: bool) -> None:
    """Analyze the sample: some minutes in the request log of a real Apache Kafka with quotas at several levels."""
    log, quotas = _sample()
    jobs = load_jobs()
    click.echo(f"analyzing {log}\nunder     {quotas}\n", err=True)
    analysis = jobs.analyze(
        [str(log)],
        read_quotas(str(quotas)),
        jobs.LogSettings(cluster="sample"),
        jobs.JobOptions(out=Path(out), overwrite=True, master=master, quiet=quiet),
        max_rejected=jobs.RejectLimit.parse("0"),
    )
    print_analysis(analysis)
    click.echo("\nOpen the report in a browser. Why is the first of these limited as it is?")
    worst = MeterKey.from_text(analysis.meters[0].meter).tags
    names = " ".join(f"--name {shlex.quote(f'{kind}={name}')}" for kind, name in worst.items())
    click.echo(f"  kquota resolve --quotas {shlex.quote(str(quotas))} {names} --explain")


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
