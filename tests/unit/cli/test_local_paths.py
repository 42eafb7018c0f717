"""Paths that are given: a URL names no local folder."""

from pathlib import Path

import click
import pytest

from kquota.cli import cli, run
from kquota.errors import InputError
from kquota.files.local_paths import local_path
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.ingest.metrics.metric_files import MetricInputs, find_metric_files
from kquota.pipeline.ingest.request_log.log_files import find_log_files

URLS = ["s3a://bucket/key", "hdfs://name:8020/x", "abfss://c@a.dfs.core.windows.net/x", "dbfs:/x", "file://other/x"]


@pytest.mark.parametrize("url", URLS)
def test_urls_that_are_not_served(url: str) -> None:
    with pytest.raises(InputError, match="URLs are not served here: give a path"):
        local_path(url)


@pytest.mark.parametrize(
    "text, path",
    {
        "report": "report",
        "/a//b": "/a//b",
        "-": "-",
        "a:b": "a:b",
        "./s3a:/x": "./s3a:/x",
        "logs/2026-01-02T03:04:05/*": "logs/2026-01-02T03:04:05/*",
        "file:///a/b c%20d": "/a/b c%20d",
        "FILE:/a": "/a",
        "file://localhost/a": "/a",
    }.items(),
)
def test_paths_as_they_are(text: str, path: str) -> None:
    """Also those of a URL of this machine, and names in which there is a colon."""
    assert local_path(text) == path


def options_with_paths(command: click.Command | None, *place: str) -> list[tuple[tuple[str, ...], str]]:
    """Every option of a command for a file or a dataset; not where quotas are sent to, or plans are from."""
    if isinstance(command, click.Group):
        return [found for name, one in command.commands.items() for found in options_with_paths(one, *place, name)]
    return [
        (place, option.opts[-1])
        for option in (command.params if command is not None else ())
        if isinstance(option, click.Option)
        and ({"FILE", "DIR"} & set(str(option.metavar).split("|")) or option.opts[-1] in ("--dataset", "--out"))
        and option.name not in ("command_config", "file")
    ]


PIPELINE = [
    found
    for name in ("analyze", "pipeline", "demo", "callback", "plan")
    for found in options_with_paths(cli.get_command(click.Context(cli), name), name)
]


@pytest.mark.parametrize("place, option", PIPELINE, ids=str)
def test_every_option_of_the_pipeline_refuses_them(
    place: tuple[str, ...],
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the option's name, before anything is read or written."""
    monkeypatch.chdir(tmp_path)
    assert run([*place, option, "dbfs:/x"]) == 2
    error = capsys.readouterr().err
    assert option in error
    assert "dbfs: URLs are not served" in " ".join(error.split())
    assert not list(tmp_path.iterdir())


def test_there_are_such_options() -> None:
    assert len(PIPELINE) > 30
    assert {option for _, option in PIPELINE} >= {"--out", "--dataset", "--baseline", "--owners", "--quotas"}


@pytest.mark.parametrize("pattern", ["dbfs:/logs/*.log", "3=dbfs:/logs/*.log"])
def test_logs_and_metrics(pattern: str) -> None:
    with pytest.raises(InputError, match="URLs of this kind are not served"):
        find_log_files([pattern])
    with pytest.raises(InputError, match="URLs of this kind are not served"):
        find_metric_files(MetricInputs(prometheus=(pattern,)))


def test_logs_by_a_url_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.log").touch()
    assert [file.path for file in find_log_files([f"file://{tmp_path}/*.log"])] == [str(tmp_path / "a.log")]


def test_a_dataset_by_a_url(tmp_path: Path) -> None:
    """Of this machine, and of others."""
    assert Dataset.create(f"file://{tmp_path}").url == str(tmp_path)
    for make in (Dataset.create, Dataset.open):
        for url in ("dbfs:/x", "file://other/x"):
            with pytest.raises(InputError, match="URLs of this kind are not served"):
                make(url)
        for url in URLS:
            with pytest.raises(InputError, match="URLs of this kind are not served"):
                make(Path(url))  # `pathlib` makes a relative path of it
