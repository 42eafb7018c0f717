"""Whose settings Spark has: the user's, wherever they are, before those that suit the work."""

from pathlib import Path

import click
import pytest

from kquota.cli import cli, run
from kquota.errors import InputError
from kquota.pipeline.spark.session import _settings_of_files, start_session
from kquota.pipeline.spark.shuffle import bucket_count


@pytest.fixture
def conf_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    return tmp_path


def test_settings_where_there_are_none(conf_dir: Path) -> None:
    assert not list(conf_dir.iterdir())
    assert _settings_of_files() == {}


def test_settings_of_files(conf_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As spark-submit reads them: what it is given goes before its file of defaults, another file in its place."""
    (conf_dir / "spark-defaults.conf").write_text(
        "# ours\nspark.master                 spark://master:7077\nspark.sql.session.timeZone=Asia/Tokyo\n"
    )
    assert _settings_of_files() == {"spark.master": "spark://master:7077", "spark.sql.session.timeZone": "Asia/Tokyo"}
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS",
        "--master local[3] --conf spark.ui.enabled=true -c 'spark.x=a b=c' --conf=spark.y=1 --verbose "
        "--driver-java-options '-XX:+UseG1GC -Da=b' pyspark-shell",
    )
    assert _settings_of_files() == {
        "spark.master": "local[3]",
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.ui.enabled": "true",
        "spark.x": "a b=c",
        "spark.y": "1",
        "spark.driver.extraJavaOptions": "-XX:+UseG1GC -Da=b",
    }
    (conf_dir / "other.conf").write_text("spark.z 2\n")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {conf_dir / 'other.conf'} pyspark-shell")
    assert _settings_of_files() == {"spark.z": "2"}


def test_settings_that_come_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a driver that runs already; spark-submit takes them."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(InputError, match=r"spark.driver.memory: spark-submit has started the driver: give it that"):
        start_session(conf={"spark.sql.ansi.enabled": "true", "spark.driver.memory": "8g"})


class Databricks:
    """What a session of theirs answers."""

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.sql.shuffle.partitions": "auto"}


def test_partitions_that_are_no_number() -> None:
    """Databricks has `auto` there: rows are dealt as by Spark's own default."""
    assert bucket_count(Databricks()) == 4 * 200  # type: ignore[arg-type]


def spark_commands() -> list[tuple[str, ...]]:
    """All that run on Spark."""
    found: list[tuple[str, ...]] = []
    for name in cli.list_commands(click.Context(cli)):
        command = cli.get_command(click.Context(cli), name)
        commands = command.commands if isinstance(command, click.Group) else {"": command}
        for inner, one in commands.items():
            if one is not None and any(option.name == "master" for option in one.params):
                found.append((name, inner) if inner else (name,))
    return found


@pytest.mark.parametrize("command", spark_commands(), ids=str)
@pytest.mark.parametrize("setting", ["spark.driver.memory", "driver.memory=8g", "=", ""])
def test_a_setting_of_another_form(command: tuple[str, ...], setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command, "--conf", setting]) == 2
    error = capsys.readouterr().err
    assert "--conf" in error
    assert "write it as KEY=VALUE" in " ".join(error.split())


def test_every_command_on_spark_takes_settings() -> None:
    assert len(spark_commands()) >= 11
