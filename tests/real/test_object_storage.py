"""An object store holds datasets as a folder does: the same suite, commits, and what goes wrong."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Barrier, Thread
from urllib.request import Request, urlopen

import boto3
import pytest

from kquota.errors import InputError
from kquota.pipeline.dataset.dataset import Dataset
from kquota.pipeline.dataset.errors import ConflictError, NotADatasetError
from kquota.pipeline.dataset.steps import RECOMMEND_STEP, SHOWBACK_STEP, SWEEP_STEP, WHATIF_STEP, Step
from kquota.pipeline.storage.errors import (
    MissingPackageError,
    StorageFailedError,
    StorageRefusedError,
    UnsupportedStorageError,
)
from kquota.pipeline.storage.object_store import _client
from kquota.pipeline.storage.opening import open_storage
from kquota.pipeline.storage.port import FileInfo, Storage
from tests.kit.datasets import add_rows, analysed, left_over
from tests.kit.killed_runs import Place, trial
from tests.kit.s3 import BUCKET, KEY, SECRET, S3Server
from tests.kit.storage_contract import StorageContract

_NUMBERS = count()


@pytest.fixture
def url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A prefix that nobody else uses."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{next(_NUMBERS)}/data"


class TestObjectStorage(StorageContract):
    """What every storage does."""

    @pytest.fixture
    def storage(self, url: str) -> Storage:
        return open_storage(url)


def test_a_dataset(url: str) -> None:
    dataset = analysed(url, 1)
    dataset = analysed(url, 2)
    assert Dataset.open(url) == dataset
    assert dataset.read("usage")["requests"].to_pylist() == [2, 2]
    assert left_over(dataset) == []
    assert {"summary.json", "quotas.yaml", "report.html"} <= {file.path for file in dataset.storage.list()}


def test_of_runs_that_commit_at_the_same_time_each_gets_its_number(url: str) -> None:
    """As long as none changes what another has read."""
    dataset = analysed(url)
    steps = (SWEEP_STEP, WHATIF_STEP, RECOMMEND_STEP, SHOWBACK_STEP)
    ready = Barrier(len(steps))

    def work(step: Step) -> int:
        with dataset.run(step) as run:
            run.add(step.writes[0])
            ready.wait()
            return run.commit().version

    with ThreadPoolExecutor(len(steps)) as pool:
        versions = list(pool.map(work, steps))
    assert sorted(versions) == [2, 3, 4, 5]
    newest = Dataset.open(url)
    assert newest.tables >= {"curve", "whatif", "recommendations", "showback"}
    assert left_over(newest) == []


def test_a_run_whose_input_was_replaced_by_another_writer_fails(url: str) -> None:
    dataset = analysed(url, 1)
    with dataset.run(SWEEP_STEP) as run:
        add_rows(run, "curve", {"limit": 1.0})
        replaced = analysed(url, 2)
        with pytest.raises(ConflictError, match="run it again"):
            run.commit()
    assert Dataset.open(url) == replaced
    assert left_over(replaced) == []


def test_objects_that_stand_for_folders_are_no_files(url: str, s3_server: S3Server) -> None:
    """As consoles and Hadoop make them."""
    client = boto3.client("s3", endpoint_url=s3_server.endpoint)
    prefix = url.removeprefix(f"s3://{BUCKET}/")
    for key in (f"{prefix}/", f"{prefix}/usage/"):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"")
    assert open_storage(url).list() == []
    open_storage(url).put("usage/a", b"1")
    assert open_storage(url).list() == [FileInfo("usage/a", 1)]
    open_storage(url).delete(["usage/a"])
    analysed(url)


def test_an_object_is_no_dataset(url: str) -> None:
    storage = open_storage(url)
    storage.put("log", b"1")
    with pytest.raises(NotADatasetError, match="a file"):
        Dataset.open(f"{url}/log")
    with pytest.raises(InputError, match="Not a directory"):
        Dataset.create(f"{url}/log")


@pytest.mark.parametrize("name", ["date=2026-01-05/a b", "50% + ä.log", "[1] {x} ~#?.log"])
def test_keys_may_have_any_characters(url: str, name: str) -> None:
    storage = open_storage(url)
    storage.put(name, b"1")
    assert storage.list() == [FileInfo(name, 1)]
    assert storage.read(name) == b"1"
    storage.delete([name])
    assert storage.list() == []


def test_other_spellings_name_the_same_storage(url: str) -> None:
    same = {
        open_storage(url.replace("s3:", scheme) + slash).identity
        for scheme in ("s3:", "s3a:", "s3n:")
        for slash in ("", "/")
    }
    assert len(same) == 1


def test_workers_are_told_where_the_store_is_and_no_keys(url: str, s3_server: S3Server) -> None:
    sent = pickle.dumps(open_storage(url))
    assert s3_server.endpoint.encode() in sent
    assert SECRET.encode() not in sent
    assert KEY.encode() not in sent.replace(url.encode(), b"")


class TestWhatGoesWrong:
    """Is said in a line with what to do, and soon."""

    def test_a_bucket_that_is_not_there(self, url: str) -> None:
        for make in (Dataset.open, Dataset.create):
            with pytest.raises(StorageRefusedError, match=r"s3://absent/data: there is no such bucket"):
                make("s3://absent/data")

    @pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
    def test_wrong_keys(self, url: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        analysed(url)
        _client.cache_clear()
        monkeypatch.setenv(name, "wrong")
        with pytest.raises(StorageRefusedError, match=r"keys are not accepted: look at AWS_ACCESS_KEY_ID"):
            Dataset.open(url)

    def test_no_keys(self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        _client.cache_clear()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        with pytest.raises(StorageRefusedError, match="no keys were found: AWS_ACCESS_KEY_ID"):
            Dataset.open(url)

    def test_keys_of_a_profile(self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        analysed(url)
        _client.cache_clear()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        profiles = tmp_path / "credentials"
        profiles.write_text(f"[analysis]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
        monkeypatch.setenv("AWS_PROFILE", "analysis")
        assert Dataset.open(url).version == 1

    def test_an_endpoint_that_is_not_there(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(StorageFailedError, match=f"{endpoint}: it cannot be reached"):
            Dataset.open(url)

    def test_a_store_that_never_answers(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("kquota.pipeline.storage.object_store._READ_S", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
            with pytest.raises(StorageFailedError, match="does not answer in time"):
                Dataset.open(url)

    def test_a_store_that_fails_now_and_then_is_asked_again(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        analysed(url)
        for failures, is_read in ((3, True), (1000, False)):
            with failing_store(os.environ["AWS_ENDPOINT_URL"], failures) as endpoint, monkeypatch.context() as patch:
                patch.setenv("AWS_ENDPOINT_URL", endpoint)
                if is_read:
                    assert Dataset.open(url).version == 1
                else:
                    with pytest.raises(StorageFailedError, match="it fails, also when it is asked again"):
                        Dataset.open(url)

    @pytest.mark.parametrize("url", ["s3://", "s3:///data", "s3:/bucket/data", "gs://", "s3://bucket//data"])
    def test_urls_that_are_not_complete(self, url: str) -> None:
        with pytest.raises(UnsupportedStorageError):
            open_storage(url)

    @pytest.mark.parametrize(("url", "extra"), [("s3a://b/p", "s3"), ("gs://b/p", "gs"), ("hdfs://h:1/p", "hdfs")])
    def test_a_package_that_is_not_installed(self, url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in ("object_store", "hdfs"):
            monkeypatch.setattr(f"kquota.pipeline.storage.{module}.find_spec", lambda name: None)
        with pytest.raises(MissingPackageError, match=rf"pip install 'kquota\[{extra}\]'"):
            open_storage(url)


@contextmanager
def failing_store(endpoint: str, failures: int) -> Iterator[str]:
    """A proxy that answers the first requests by 503 Slow Down, and redirects later ones to the store."""
    left = iter(range(failures))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if next(left, None) is not None:
                self.send_response(503, "Slow Down")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            request = Request(endpoint + self.path, headers=dict(self.headers))
            with urlopen(request) as answer:
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_readers_see_whole_tables_while_two_write_and_are_killed(url: str, s3_server: S3Server, tmp_path: Path) -> None:
    """Ten times; `python -m benchmarks.check_dataset_commits --url` does it more often."""
    found = trial(Place(url, tmp_path, s3_server.environment), 10)
    assert found.problems == []
    assert found.kills.total() == 10
    assert 0 < found.committed.total() < 10
    assert found.survived > 0
    assert found.reads > 0
