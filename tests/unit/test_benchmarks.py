"""The benchmarks measure what they say: generated logs are what they claim, and the baselines agree on them."""

import base64
import csv
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_payload_module
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from benchmarks import baseline_duckdb, baseline_json
from benchmarks.bench_resolve import ENTITIES, clients, linear_scan, snapshot
from benchmarks.generate_log import Profile, ensure, generate, quotas
from benchmarks.measure import CommandFailedError
from benchmarks.results_page import RESULTS, write_readme
from benchmarks.sums import DifferentSumsError, check_sums
from kquota.files import read_quota_file
from kquota.quotas import QuotaResolver

PROFILE = Profile(lines=2_000, bad=12, clients=150, seed=7)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("generated") / "log"
    return out, generate(out, PROFILE)


@pytest.fixture(scope="module")
def outputs(log: tuple[Path, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("outputs")
    files = sorted(log[0].glob("*.log"))
    baseline_json.write(out / "json", *baseline_json.read(files))
    baseline_duckdb.run(out / "duckdb", files)
    return {"json": out / "json", "duckdb": out / "duckdb"}


def test_the_same_seed_gives_the_same_bytes(log: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert generate(tmp_path / "again", PROFILE) == log[1]
    assert (tmp_path / "again/kafka-request.0000.log").read_bytes() == (log[0] / "kafka-request.0000.log").read_bytes()
    other = Profile(lines=2_000, bad=12, clients=150, seed=8)
    assert generate(tmp_path / "other", other)["sums"] != log[1]["sums"]


def test_gz_holds_the_same_lines(log: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    generate(tmp_path / "gz", Profile(lines=2_000, bad=12, clients=150, seed=7, gz=True))
    packed = gzip.decompress((tmp_path / "gz/kafka-request.0000.log.gz").read_bytes())
    assert packed == (log[0] / "kafka-request.0000.log").read_bytes()


def test_good_lines_are_as_a_broker_writes_them(log: tuple[Path, dict[str, Any]]) -> None:
    """Prefix, suffix and JSON of every good line; as many bad ones as asked for; all kinds of requests."""
    lines = (log[0] / "kafka-request.0000.log").read_bytes().splitlines()
    assert len(lines) == PROFILE.lines
    bad, seen, throttled, times = 0, set(), set(), []
    for line in lines:
        try:
            entry = json.loads(line[50:-23])
            header = entry["requestHeader"]
            float(entry["localTimeMs"])
        except (ValueError, KeyError):
            bad += 1
            continue
        assert line[24:50] == b"] DEBUG Completed request:"
        assert line.endswith(b"} (kafka.request.logger)")
        assert list(entry)[:4] == ["isForwarded", "requestHeader", "request", "response"]
        # Compact and unescaped, as Jackson writes it: nothing is lost on the way through Python and back.
        assert json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() == line[50:-23]
        times.append(line[1:24])
        seen.add(header["requestApiKeyName"])
        if entry["response"] and entry["response"]["throttleTimeMs"] > 0:
            throttled.add(header["requestApiKeyName"])
    assert bad == PROFILE.bad
    assert times == sorted(times)
    assert seen >= {"PRODUCE", "FETCH", "METADATA", "API_VERSIONS", "FIND_COORDINATOR", "CREATE_TOPICS"}
    assert throttled >= {"PRODUCE", "FETCH"}


def _fields(value: object, at: str = "") -> list[str]:
    """The keys of a line in their order, each with the kind of value it has."""
    match value:
        case dict():
            return [path for key, inner in value.items() for path in (f"{at}.{key}", *_fields(inner, f"{at}.{key}"))]
        case list():
            return list(dict.fromkeys(path for inner in value for path in _fields(inner, f"{at}[]")))
        case bool() | str():
            return [f"{at}: {type(value).__name__}"]
        case _:
            return [] if value is None else [f"{at}: number"]


def _fields_by_version(path: Path) -> dict[tuple[str, int], list[list[str]]]:
    found: dict[tuple[str, int], list[list[str]]] = {}
    for line in path.read_bytes().splitlines():
        try:
            entry = json.loads(line[50:-23])
            header = entry["requestHeader"]
            float(entry["localTimeMs"])
        except (ValueError, KeyError):
            continue
        if "replicaState" not in entry["request"]:  # one broker alone has no followers
            found.setdefault((header["requestApiKeyName"], header["requestApiVersion"]), []).append(_fields(entry))
    return found


def test_lines_have_the_fields_of_a_real_broker_in_its_order(log: tuple[Path, dict[str, Any]]) -> None:
    """No line has a field, a type or an order that lines of the same API and version from a real 4.3.0 do not have."""
    golden = Path(__file__).parent.parent / "data/golden/4.3.0/kafka-request.log"
    real, generated = _fields_by_version(golden), _fields_by_version(log[0] / "kafka-request.0000.log")
    assert len(generated) > 15
    for name, lines in generated.items():
        known = {field for line in real[name] for field in line}
        for line in lines:
            assert not set(line) - known, name
            # Of some real line, what both have stands in the same order.
            assert any(
                [field for field in line if field in other] == [field for field in other if field in line]
                for other in real[name]
            ), name


def test_both_baselines_find_the_sums_that_the_generator_wrote_down(
    log: tuple[Path, dict[str, Any]], outputs: dict[str, Path]
) -> None:
    check_sums(log[1], outputs)
    for out in outputs.values():
        counts = json.loads((out / "summary.json").read_text())
        assert counts == {"lines": PROFILE.lines, "good": PROFILE.lines - PROFILE.bad, "rejected": PROFILE.bad}


def test_different_sums_are_found(log: tuple[Path, dict[str, Any]], outputs: dict[str, Path], tmp_path: Path) -> None:
    """One byte too many in one client's sum, or one cell a second late, is named."""
    for name, column in (("clients", "amount"), ("usage", "cell_start_ms")):
        out = tmp_path / name
        out.mkdir()
        for file in outputs["json"].iterdir():
            (out / file.name).write_bytes(file.read_bytes())
        with (out / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            rows = list(reader)
        changed = next(row for row in rows if row["key"] == "producer_byte_rate")
        changed[column] = str(int(changed[column]) + 1)
        with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        with pytest.raises(DifferentSumsError, match=changed["user"]):
            check_sums(log[1], {"duckdb": outputs["duckdb"], "changed": out})


def test_an_unfinished_log_is_written_anew_and_a_finished_one_kept(tmp_path: Path) -> None:
    profile = Profile(lines=50, clients=60)
    out, manifest = ensure(tmp_path, profile)
    written = (out / "kafka-request.0000.log").read_bytes()
    (out / "manifest.json").unlink()
    (out / "kafka-request.0000.log").write_bytes(b"half")
    assert ensure(tmp_path, profile) == (out, manifest)
    assert (out / "kafka-request.0000.log").read_bytes() == written
    with pytest.raises(FileExistsError):
        generate(out, profile)


def _encoded(payload: Any) -> int:
    buffer = io.BytesIO()
    entity_writer(type(payload))(buffer, payload)
    return len(buffer.getvalue())


def _uuid(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def _produce_frame_bytes(header: dict[str, Any], request: dict[str, Any]) -> int:
    """The request without its 4 size bytes, encoded by kio."""
    module: Any = load_payload_module(0, header["requestApiVersion"], EntityType.request)
    topics = tuple(
        module.TopicProduceData(
            **({"topic_id": _uuid(topic["topicId"])} if "topicId" in topic else {"name": topic["name"]}),
            partition_data=tuple(
                module.PartitionProduceData(index=i32(part["index"]), records=bytes(part["recordsSizeInBytes"]))
                for part in topic["partitionData"]
            ),
        )
        for topic in request["topicData"]
    )
    own_header = module.ProduceRequest.__header_schema__(
        request_api_key=i16(0),
        request_api_version=i16(header["requestApiVersion"]),
        correlation_id=i32(header["correlationId"]),
        client_id=header["clientId"],
    )
    body = module.ProduceRequest(
        transactional_id=request["transactionalId"],
        acks=i16(request["acks"]),
        timeout=i32Timedelta.parse(timedelta(milliseconds=request["timeoutMs"])),
        topic_data=topics,
    )
    return _encoded(own_header) + _encoded(body)


def _fetch_answer_bytes(header: dict[str, Any], response: dict[str, Any]) -> int:
    """Four and the body of the response, encoded by kio."""
    module: Any = load_payload_module(1, header["requestApiVersion"], EntityType.response)

    def aborted(found: list[dict[str, int]] | None) -> tuple[Any, ...] | None:
        if found is None:
            return None
        return tuple(
            module.AbortedTransaction(producer_id=i64(one["producerId"]), first_offset=i64(one["firstOffset"]))
            for one in found
        )

    topics = tuple(
        module.FetchableTopicResponse(
            **({"topic_id": _uuid(topic["topicId"])} if "topicId" in topic else {"topic": topic["topic"]}),
            partitions=tuple(
                module.PartitionData(
                    partition_index=i32(part["partitionIndex"]),
                    error_code=ErrorCode(part["errorCode"]),
                    high_watermark=i64(part["highWatermark"]),
                    last_stable_offset=i64(part["lastStableOffset"]),
                    log_start_offset=i64(part["logStartOffset"]),
                    aborted_transactions=aborted(part["abortedTransactions"]),
                    preferred_read_replica=part["preferredReadReplica"],
                    records=bytes(part["recordsSizeInBytes"]),
                )
                for part in topic["partitions"]
            ),
        )
        for topic in response["responses"]
    )
    body = module.FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(milliseconds=response["throttleTimeMs"])),
        error_code=ErrorCode(response["errorCode"]),
        session_id=i32(response["sessionId"]),
        responses=topics,
    )
    return 4 + _encoded(body)


def test_charged_sizes_are_those_of_the_encoded_messages(log: tuple[Path, dict[str, Any]]) -> None:
    """Produce and Fetch of every version in the log, and every client id, encoded by an independent codec."""
    seen: dict[tuple[int, int], int] = {}
    for line in (log[0] / "kafka-request.0000.log").read_bytes().splitlines():
        try:
            entry = json.loads(line[50:-23])
            header = entry["requestHeader"]
        except (ValueError, KeyError):
            continue
        version = header["requestApiVersion"]
        match header["requestApiKey"]:
            case 0:
                charged = baseline_json.produce_bytes(header, entry["request"])
                assert charged == _produce_frame_bytes(header, entry["request"])
            case 1:
                assert baseline_json.fetch_bytes(entry["response"]) == _fetch_answer_bytes(header, entry["response"])
            case _:
                continue
        seen[header["requestApiKey"], version] = seen.get((header["requestApiKey"], version), 0) + 1
    assert seen.keys() == {(0, version) for version in range(9, 14)} | {(1, version) for version in range(12, 19)}


def test_the_quotas_of_a_log_are_a_quota_file(log: tuple[Path, dict[str, Any]]) -> None:
    found = read_quota_file(quotas(log[1]), name="quotas.yaml").snapshot()
    assert len(found) > 10
    assert {len(entity.entries) for entity in found} == {1, 2}


@pytest.mark.parametrize("entities", ENTITIES[:2])
def test_the_linear_scan_finds_what_the_resolver_finds(entities: int) -> None:
    described = snapshot(entities)
    assert len(described) == entities
    resolver = QuotaResolver(described)
    levels = set()
    for user, client_id in clients(entities):
        resolved = resolver.resolve(user, client_id)
        levels |= {quota.level for quota in resolved.values()}
        limited = {key: (quota.value, quota.source) for key, quota in resolved.items() if quota.value is not None}
        assert limited == linear_scan(described, user, client_id)
    assert len(levels) > (1 if entities == 1 else 4)


def test_children_that_nobody_waits_for_are_measured(tmp_path: Path) -> None:
    """Spark's Python workers end without being waited for; their time counts all the same."""
    # The parent outlives the child by far, so that the child is seen running to its end.
    child = "import time; e = time.process_time() + 1.2\nwhile time.process_time() < e: pass"
    parent = (
        "import signal, subprocess, sys, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        f" subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(3)"
    )
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import pathlib, sys
from benchmarks.measure import measure
print(measure([sys.executable, "-c", {parent!r}], log=pathlib.Path({str(tmp_path / "log.txt")!r})).cpu_s)
""",
        encoding="utf-8",
    )
    found = _run(program)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) >= 0.7


def test_a_whole_process_tree_is_measured(tmp_path: Path) -> None:
    """A grandchild counts: its memory while it runs, and the CPU time it uses after its parent has ended."""
    seen = tmp_path / "seen"
    wait = f"import os, time\nwhile not os.path.exists({str(seen)!r}): time.sleep(0.01)\n"
    grandchild = f"x = bytearray(80 << 20)\n{wait}while time.process_time() < 0.7: pass"
    child = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {grandchild!r}])\n{wait}"
    program = tmp_path / "program.py"
    # In a process of its own: measuring adopts orphans, which is nothing for a test runner.
    program.write_text(
        f"""
import dataclasses, json, pathlib, sys
from benchmarks import measure
sample = measure._memory
def sample_and_tell(root):
    found = sample(root)
    if found[0] >= 80:
        pathlib.Path({str(seen)!r}).touch()
    return found
measure._memory = sample_and_tell
measured = measure.measure([sys.executable, "-c", {child!r}], log=pathlib.Path({str(tmp_path / "log.txt")!r}))
print(json.dumps(dataclasses.asdict(measured)))
""",
        encoding="utf-8",
    )
    found = _run(program)
    assert found.returncode == 0, found.stderr
    measured = json.loads(found.stdout)
    assert measured["cpu_s"] >= 0.7
    assert measured["peak_rss_mb"] >= 80
    assert measured["peak_pss_mb"] <= measured["peak_rss_mb"]
    assert measured["peak_processes"] == 2


def test_a_failing_command_is_named_with_its_output(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import pathlib, sys
from benchmarks.measure import measure
measure([sys.executable, "-c", "print(41 + 1); raise SystemExit(3)"], log=pathlib.Path({str(tmp_path / "log.txt")!r}))
""",
        encoding="utf-8",
    )
    found = _run(program)
    assert found.returncode != 0
    assert f"{CommandFailedError.__name__}: exit code 3" in found.stderr
    assert "42" in found.stderr


def _run(program: Path) -> subprocess.CompletedProcess[str]:
    root = Path(baseline_json.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        [sys.executable, str(program)], check=False, capture_output=True, text=True, env=environment, timeout=60
    )


def test_the_page_shows_every_result_file(tmp_path: Path) -> None:
    machine = {"cores": 2, "processor": "test", "memory_gb": 8.0, "python": "3.11", "load_1min": 0.1}
    resolve = {
        "command": "python -m benchmarks.bench_resolve",
        "machine": machine,
        "date": "2026-01-02",
        "median_ns": {"resolve": {"1": 1000.0, "1000": 1001.0}, "linear scan": {"1": 900.0, "1000": 99000.0}},
        "ratios": {"scan / resolve at 1000": 98.9},
    }
    (tmp_path / "resolve.json").write_text(json.dumps(resolve))
    write_readme(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "| resolve | 1,000 | 1,001 |" in page
    assert "- scan / resolve at 1000: 98.90" in page
    assert "2 cores, test, 8 GB" in page


def test_the_page_of_results_is_that_of_the_files_beside_it(tmp_path: Path) -> None:
    kept = tmp_path / "results"
    shutil.copytree(RESULTS, kept)
    write_readme(kept)
    assert (kept / "README.md").read_text(encoding="utf-8") == (RESULTS / "README.md").read_text(encoding="utf-8")
