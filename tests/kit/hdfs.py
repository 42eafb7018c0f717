"""A small HDFS: a name node and a data node in one Java, by Hadoop's own test jar and the Hadoop of pyspark."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from examples.capture.jars import KafkaUnavailable, fetched_jars, java
from tests.kit.eventually import eventually
from tests.kit.not_run import not_run

__all__ = ["hdfs"]

_HADOOP: Final = "3.4.1"
"""That of pyspark."""
_JARS: Final = (
    ("org.apache.hadoop", "hadoop-client-minicluster", _HADOOP),
    ("junit", "junit", "4.13.2"),
    ("org.hamcrest", "hamcrest-core", "1.3"),
    ("commons-logging", "commons-logging", "1.3.0"),
)
_START_S: Final = 90.0


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of its root, which anybody may write to."""
    folder = tmp_path_factory.mktemp("hdfs")
    try:
        jars = fetched_jars(f"hdfs-{_HADOOP}", _JARS, with_dependencies=False)
        program = java()
    except KafkaUnavailable as error:
        not_run("KAFKA", str(error))
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    hadoop = [*(Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar")]
    logging = [*(Path(spec.origin).parent / "jars").glob("slf4j-api-*.jar")]
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [one.getsockname()[1], other.getsockname()[1]]
    written = folder / "core-site.xml"
    command: list[str | Path] = [program, "-Xmx512m", f"-Dtest.build.data={folder}", f"-Dhadoop.log.dir={folder}"]
    command += ["-cp", ":".join(map(str, [*jars.glob("*.jar"), *hadoop, *logging]))]
    command += ["org.apache.hadoop.test.MiniDFSClusterManager", "-nnport", str(ports[0]), "-httpport", str(ports[1])]
    command += ["-datanodes", "1", "-format", "-writeConfig", str(written), "-Ddfs.permissions.enabled=true"]
    with (folder / "hdfs.log").open("wb") as log:
        # It ends with its standard input.
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder)
    try:
        eventually(lambda: written.exists() or server.poll() is not None, True, patience_s=_START_S)
        assert server.poll() is None, (folder / "hdfs.log").read_text()[-4000:]
        yield f"hdfs://127.0.0.1:{ports[0]}"
    finally:
        server.kill()
        server.communicate()
