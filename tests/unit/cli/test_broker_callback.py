"""``client.quota.callback.class`` among a broker's settings: no command passes over it in silence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kquota.cli import cli, run
from kquota.config import CALLBACK_SETTING, load_broker_config
from kquota.errors import InputError

TAKE_LIMITS_FROM_IT = {("engine", "replay"), ("callback", "test"), ("gateway",)}
BESIDE_WHAT_IS_REQUIRED = {
    ("analyze",): ["x.log", "--quotas", "x"],
    ("lint",): ["x"],
    ("pipeline", "ingest"): ["x.log"],
    ("pipeline", "resolve"): ["--quotas", "x"],
    ("plan",): ["--quotas", "x"],
    ("resolve",): ["--quotas", "x", "--name", "user=a"],
}


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from commands(inner, (*path, name))


WITH_BROKER_SETTINGS = {
    path: command
    for path, command in commands(cli)
    if {"--broker-config", "--define"} & {option for one in command.params for option in one.opts}
}


def required(command: click.Command) -> list[str]:
    options = [one for one in command.params if one.required]
    return [text for one in options for text in ([one.opts[0], "x"] if isinstance(one, click.Option) else ["x"])]


@pytest.mark.parametrize("from_file", [False, True])
@pytest.mark.parametrize("path", sorted(WITH_BROKER_SETTINGS.keys() - TAKE_LIMITS_FROM_IT), ids=" ".join)
def test_a_callback_is_refused_where_limits_are_by_kafkas_rules(
    path: tuple[str, ...], from_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every command that takes a broker's settings, whichever way; and it says what can try the callback."""
    setting = f"{CALLBACK_SETTING}=com.example.Quotas"
    file = tmp_path / "server.properties"
    file.write_text(f"{setting}\n")
    given = ["--broker-config", str(file)] if from_file else ["-D", setting]
    arguments = [*path, *required(WITH_BROKER_SETTINGS[path]), *BESIDE_WHAT_IS_REQUIRED.get(path, []), *given]
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert f"{file if from_file else '-D'}" in told
    assert f"{setting}: limits under a callback cannot be known from the quotas alone" in told
    assert "kquota callback test" in told


def test_there_are_such_commands() -> None:
    """Those that are known now, so that the test above is not one of none."""
    assert WITH_BROKER_SETTINGS.keys() >= {("serve",), ("resolve",), ("analyze",), ("pipeline", "whatif"), ("plan",)}
    assert WITH_BROKER_SETTINGS.keys() >= TAKE_LIMITS_FROM_IT | BESIDE_WHAT_IS_REQUIRED.keys()


@pytest.mark.parametrize("name", ["default", "kquota.metering.callback:DefaultQuotaCallback"])
def test_kafkas_own_rules_may_be_named(name: str, tmp_path: Path) -> None:
    """Also over what the broker's file says."""
    file = tmp_path / "server.properties"
    file.write_text(f"{CALLBACK_SETTING}=com.example.Quotas\nquota.window.num=5\n")
    assert load_broker_config(str(file), [f"{CALLBACK_SETTING}={name}"]).quota_window_num == 5
    assert load_broker_config(str(file), has_callback=True).quota_window_num == 5
    with pytest.raises(InputError, match=r"did you mean client\.quota\.callback\.class"):
        load_broker_config(None, ["client.quota.callback.clas=x"])
    assert load_broker_config(None, ["client.quota.callback.static.produce=1"]) == load_broker_config()


def test_the_engine_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the file, too; one that is not there is refused."""
    trace, file = tmp_path / "trace.jsonl", tmp_path / "server.properties"
    record = {"op": "record", "t_ms": 0, "user": "u", "client-id": "c", "key": "producer_byte_rate", "value": 1}
    trace.write_text(json.dumps(record) + "\n")
    file.write_text(f"{CALLBACK_SETTING}=com.example.Quotas\n")
    assert run(["engine", "replay", str(trace), "--broker-config", str(file)]) == 2
    assert "client.quota.callback.class=com.example.Quotas: write it as package.module:Class" in capsys.readouterr().err
    named = f"{CALLBACK_SETTING}=examples.callbacks.by_prefix:ByClientIdPrefix"
    assert run(["engine", "replay", str(trace), "--broker-config", str(file), "-D", named]) == 0
