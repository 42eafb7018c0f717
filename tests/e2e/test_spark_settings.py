"""Spark as the user set it up: its memory, and all else that kquota only has defaults for."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json
from kquota.pipeline.spark.session import start_session
spark = start_session(conf={conf!r})
heap = spark.sparkContext._jvm.java.lang.Runtime.getRuntime().maxMemory()
print(json.dumps(dict(spark.sparkContext.getConf().getAll()) | {{"heap": heap}}))
"""
DEFAULTS = (
    "spark.driver.memory 1300m\nspark.master local[1]\nspark.driver.extraJavaOptions -XX:+UseG1GC\nspark.app.name a\n"
)


def started(folder: Path, *, submit_args: str | None = None, conf: dict[str, str] | None = None) -> dict[str, str]:
    """The settings of a session in a process of its own; `heap` is how many bytes its JVM may use."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    environment["SPARK_CONF_DIR"] = str(folder)
    if submit_args is not None:
        environment["PYSPARK_SUBMIT_ARGS"] = submit_args
    program = PROGRAM.format(conf=conf)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "log4j" not in done.stderr  # Spark's log is for those who ask for it
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "defaults, submit_args, conf, memory",
    [
        ("", None, {}, "2g"),
        (DEFAULTS, None, {}, "1300m"),
        (DEFAULTS, "--driver-memory 1200m pyspark-shell", {}, "1200m"),
        (DEFAULTS, "--conf spark.driver.memory=1200m pyspark-shell", {"spark.driver.memory": "1100m"}, "1100m"),
    ],
    ids=["kquota", "spark-defaults.conf", "PYSPARK_SUBMIT_ARGS", "--conf"],
)
def test_the_memory_that_the_user_gives(
    tmp_path: Path, defaults: str, submit_args: str | None, conf: dict[str, str], memory: str
) -> None:
    """The nearest wins, and the JVM has it; the other settings stay as they are given, too."""
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    settings = started(tmp_path, submit_args=submit_args, conf=conf)
    assert settings["spark.driver.memory"] == memory
    mebibytes = int(memory[:-1]) * (1024 if memory[-1] == "g" else 1)
    assert 0.9 * mebibytes < int(settings["heap"]) / 2**20 <= mebibytes  # not all of it is counted
    if defaults:
        assert settings["spark.master"] == "local[1]"
        assert settings["spark.driver.extraJavaOptions"].endswith("-XX:+UseG1GC")
        assert settings["spark.app.name"] == "a"
    else:
        assert settings["spark.master"] == "local[*]"
        assert settings["spark.app.name"] == "kquota"
    assert settings["spark.sql.session.timeZone"] == "UTC"
