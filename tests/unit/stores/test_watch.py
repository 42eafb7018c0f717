"""Stores that are followed: the contract on each kind, and what is one kind's own."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest

from kquota.errors import InputError, KafkaErrorCode, QuotaFileError, StoreError
from kquota.files import QuotaFile, write_yaml
from kquota.policy import alterations, difference
from kquota.quotas import QuotaIndex, QuotaSnapshot
from kquota.stores import Access, Look, QuotaWatch, open_store, open_watchable
from kquota.stores.file import FileStore
from kquota.stores.local import LocalStore
from kquota.stores.memory import MemoryKeeper
from kquota.stores.sqlite import SqliteKeeper
from tests.kit.eventually import PATIENCE_S
from tests.kit.manual_clock import ManualClock
from tests.kit.store_contract import (
    ALICE,
    BOB,
    PRODUCE,
    WatchableContract,
    Watched,
    everything,
    looks_until,
    set_to,
)

HOUR_MS = 3_600_000
DATA = Path(__file__).parents[2] / "data" / "quota_files"


def put_into(store: LocalStore) -> Callable[[QuotaSnapshot], None]:
    """Make quotas all that a store has."""

    def put(quotas: QuotaSnapshot) -> None:
        assert not any(store.alter(alterations(difference(everything(store), quotas, prune=True))).values())

    return put


class TestMemory(WatchableContract):
    @pytest.fixture
    def watched(self, monkeypatch: pytest.MonkeyPatch) -> Watched:
        keeper = MemoryKeeper()

        @contextmanager
        def failing() -> Iterator[None]:
            def read() -> QuotaIndex:
                raise StoreError("out of memory")

            with monkeypatch.context() as patch:
                patch.setattr(keeper, "read", read)
                yield

        return Watched(LocalStore(keeper), put_into(LocalStore(keeper)), failing)


class TestSqlite(WatchableContract):
    @pytest.fixture
    def watched(self, tmp_path: Path) -> Iterator[Watched]:
        """Others have another connection, as another process has."""
        path, away = tmp_path / "quotas.db", tmp_path / "away.db"

        @contextmanager
        def failing() -> Iterator[None]:
            path.rename(away)
            try:
                yield
            finally:
                away.rename(path)

        with LocalStore(SqliteKeeper(path)) as store, LocalStore(SqliteKeeper(path)) as other:
            yield Watched(store, put_into(other), failing)


class TestFile(WatchableContract):
    @pytest.fixture
    def watched(self, tmp_path: Path) -> Watched:
        """One editor puts a new file in the place of the old one, another writes over it."""
        path = tmp_path / "quotas.yaml"

        def put(quotas: QuotaSnapshot) -> None:
            text = write_yaml(QuotaFile.of(quotas))
            if len(quotas) == 1:
                path.write_text(text)
            else:
                (tmp_path / "new").write_text(text)
                (tmp_path / "new").rename(path)

        @contextmanager
        def failing() -> Iterator[None]:
            path.write_text("quotas: [")
            yield

        put({BOB: {PRODUCE: 8.0}})
        return Watched(FileStore(path), put, failing)


class TestQuotaWatch:
    """The iterator, whatever it looks at."""

    def test_a_look_tells_when_it_began(self) -> None:
        """What takes long is as old as its beginning."""
        clock = ManualClock(1000)

        def look() -> QuotaSnapshot:
            clock.advance(250)
            return {}

        watch = QuotaWatch(look, every_ms=HOUR_MS, clock=clock)
        assert next(watch) == Look(1000.0, {})
        watch.look_now()
        assert next(watch) == Look(1250.0, {})

    def test_what_nobody_expected_is_a_failed_look(self) -> None:
        """Whoever follows goes on all the same."""

        def look() -> QuotaSnapshot:
            raise ZeroDivisionError

        seen = next(QuotaWatch(look, every_ms=HOUR_MS)).seen
        assert isinstance(seen, StoreError)
        assert "ZeroDivisionError" in str(seen)

    def test_closing_ends_a_long_wait(self) -> None:
        watch = QuotaWatch(dict, every_ms=HOUR_MS)
        next(watch)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, watch, None)
            watch.close()
            assert waiting.result(PATIENCE_S) is None

    def test_a_look_that_was_under_way_when_it_was_closed_does_not_count(self) -> None:
        begun, go = Event(), Event()

        def look() -> QuotaSnapshot:
            begun.set()
            assert go.wait(PATIENCE_S)
            return {ALICE: {PRODUCE: 5.0}}

        watch = QuotaWatch(look, every_ms=HOUR_MS)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(list, watch)
            assert begun.wait(PATIENCE_S)
            watch.close()
            go.set()
            assert waiting.result(PATIENCE_S) == []

    def test_a_change_during_a_look_is_looked_at_again(self) -> None:
        """It may have come too late for the look."""
        watch: QuotaWatch
        values = iter([1.0, 2.0])

        def look() -> QuotaSnapshot:
            watch.look_now()
            return {ALICE: {PRODUCE: next(values)}}

        watch = QuotaWatch(look, every_ms=HOUR_MS)
        assert [next(watch).seen, next(watch).seen] == [{ALICE: {PRODUCE: 1.0}}, {ALICE: {PRODUCE: 2.0}}]


@pytest.mark.parametrize("url", ["memory:", "sqlite:///quotas.db"])
def test_what_a_store_changes_itself_is_seen_at_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No look is waited for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kquota.stores.local._LOOK_EVERY_MS", HOUR_MS)
    with open_store(url) as store, store.watch() as watch:
        assert next(watch).seen == {}
        store.alter([set_to(ALICE, producer_byte_rate=5)])
        assert next(watch).seen == {ALICE: {PRODUCE: 5.0}}


def test_closing_a_store_ends_those_who_follow_it() -> None:
    store = open_store("memory:")
    watch = store.watch()
    next(watch)
    store.close()
    assert list(watch) == []


def test_a_store_as_it_was_when_opened_cannot_be_followed(tmp_path: Path) -> None:
    """Rather than never to see a change."""
    url = f"sqlite:///{tmp_path / 'quotas.db'}"
    open_store(url).close()
    with open_store(url, access=Access.READ) as store, pytest.raises(StoreError, match="cannot be followed"):
        store.watch()


def test_another_process_changes_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'quotas.db'}"
    program = (
        "import sys; from kquota.stores import open_store; from kquota.quotas import *; "
        "op = ClientQuotaAlteration.Op('producer_byte_rate', 5.0); "
        "open_store(sys.argv[1]).alter([ClientQuotaAlteration(ClientQuotaEntity({'user': 'alice'}), [op])])"
    )
    with open_store(url) as store, store.watch() as watch:
        assert next(watch).seen == {}
        subprocess.run([sys.executable, "-c", program, url], check=True)
        assert looks_until(watch, bool) == {ALICE: {PRODUCE: 5.0}}


def test_where_a_file_of_a_store_did_not_change_it_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times a second that would be too much; SQLite tells by a number whether it did."""
    path = tmp_path / "quotas.db"
    with LocalStore(SqliteKeeper(path)) as store, store.watch() as watch:
        first = next(watch).seen
        for name in ("load", "history", "identity"):
            monkeypatch.delattr(f"kquota.stores.sqlite_file.{name}")
        watch.look_now()
        assert next(watch).seen is first
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("PRAGMA user_version = 99")
        watch.look_now()
        assert isinstance(next(watch).seen, StoreError)


class TestFileStore:
    """A quota file as a store."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "quotas.yaml"
        path.write_text(write_yaml(QuotaFile.of({ALICE: {PRODUCE: 5.0}})))
        return path

    @pytest.mark.parametrize("content", [b"", b"quotas: [", b'{"kquota": "plan"'])
    def test_a_file_that_cannot_be_used_is_refused_at_the_start(self, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        with pytest.raises(QuotaFileError, match=r"quotas\.yaml"):
            FileStore(path)

    def test_a_file_that_is_not_there_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"nothing\.yaml: cannot read the quotas: No such file"):
            FileStore(tmp_path / "nothing.yaml")

    def test_nobody_alters_it(self, path: Path) -> None:
        with FileStore(path) as store:
            [error] = store.alter([set_to(ALICE, producer_byte_rate=6)]).values()
            assert error is not None
            assert error.code == KafkaErrorCode.POLICY_VIOLATION
            assert everything(store) == {ALICE: {PRODUCE: 5.0}}

    def test_what_is_wrong_with_it_now_leaves_the_last_quotas(self, path: Path) -> None:
        """They are described, while those who follow are told each time, until it is mended."""
        with FileStore(path) as store, store.watch() as watch:
            next(watch)
            path.write_text("quotas: [")
            for _ in range(2):
                assert isinstance(looks_until(watch, lambda seen: not isinstance(seen, dict)), QuotaFileError)
            assert everything(store) == {ALICE: {PRODUCE: 5.0}}
            path.unlink()
            assert "No such file" in str(looks_until(watch, lambda seen: not isinstance(seen, QuotaFileError)))
            path.write_text(write_yaml(QuotaFile.of({BOB: {PRODUCE: 6.0}})))
            looks_until(watch, lambda seen: isinstance(seen, dict))
            assert everything(store) == {BOB: {PRODUCE: 6.0}}

    def test_a_file_that_is_being_written_does_not_count_yet(self, path: Path) -> None:
        """Half of it may be a quota file, too."""
        both = write_yaml(QuotaFile.of({ALICE: {PRODUCE: 5.0}, BOB: {PRODUCE: 6.0}}))
        half = write_yaml(QuotaFile.of({BOB: {PRODUCE: 7.0}}))
        with FileStore(path) as store:
            assert everything(store) == everything(store) == {ALICE: {PRODUCE: 5.0}}
            path.write_text(half)
            assert everything(store) == {ALICE: {PRODUCE: 5.0}}
            path.write_text(both)
            assert everything(store) == {ALICE: {PRODUCE: 5.0}}
            assert everything(store) == {ALICE: {PRODUCE: 5.0}, BOB: {PRODUCE: 6.0}}

    def test_what_was_written_when_it_was_opened_is_read_again(self, path: Path) -> None:
        """Its time may not show that it went on."""
        with FileStore(path) as store:
            store._content = b"half of it"
            assert everything(store) == {ALICE: {PRODUCE: 5.0}}
            assert store._content == path.read_bytes()


class TestOpenWatchable:
    """What the quotas of a gateway can be."""

    def test_each_kind(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("cluster").write_text(write_yaml(QuotaFile.of({ALICE: {PRODUCE: 5.0}})))
        cluster = open_store("memory:")
        open_store("sqlite:///quotas.db").close()

        def opened(place: str) -> object:
            store = open_watchable(place, cluster=lambda: cluster)
            store.close()
            return store

        assert opened("cluster") is cluster
        assert isinstance(opened("sqlite:///quotas.db"), LocalStore)
        assert isinstance(opened("memory:"), LocalStore)
        for place in ("./cluster", f"file://{tmp_path}/cluster"):
            assert isinstance(opened(place), FileStore)

    @pytest.mark.parametrize("place", ["sqlite:///nothing.db", "redis://localhost", "nothing.yaml"])
    def test_what_is_not_there(self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InputError, match=place.partition("/")[0]):
            open_watchable(place, cluster=lambda: open_store("memory:"))

    def test_what_a_file_says_beside_is_reported_once(self, tmp_path: Path) -> None:
        """Also where it is read again."""
        path, warnings = tmp_path / "rpk.yaml", list[str]()
        path.write_bytes((DATA / "rpk.yaml").read_bytes())
        with open_watchable(str(path), cluster=lambda: open_store("memory:"), warn=warnings.append) as store:
            before = everything(store)
            path.write_bytes(path.read_bytes().replace(b"2097152", b"3000000"))
            assert everything(store) == before
            assert everything(store) != before
        assert len(warnings) == 1
        assert "Kafka has no quotas by prefix" in warnings[0]
