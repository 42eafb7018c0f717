"""``kquota export``: all quotas as a quota file."""

from __future__ import annotations

import sys

import click

from kquota.cli.options.targets import Target, target_options
from kquota.files import write_json, write_yaml

__all__ = ["export"]


@click.command(
    epilog="""\b
Examples:
  kquota export --bootstrap-server localhost:9092 > quotas.yaml
  kquota export --bootstrap-server broker:9093 --command-config admin.properties --format json
  kquota export --store sqlite:///kquota.db"""
)
@target_options(files=True)
@click.option(
    "--format", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="How to write it."
)
def export(*, target: Target, format: str) -> None:
    """Write all quotas as a quota file, which kquota apply reads again: exactly the same values, sorted."""
    file = target.read()
    sys.stdout.write(write_json(file) if format == "json" else write_yaml(file))
