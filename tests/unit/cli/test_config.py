"""Settings: flags over environment over file over defaults; and the broker's own settings."""

from pathlib import Path

import pytest

from kquota.cli import run
from kquota.config import BrokerConfig, load_broker_config, load_settings
from kquota.errors import InputError

QUOTAS = "- entity: {user: alice}\n  values: {producer_byte_rate: 1}\n"


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    path = tmp_path / "q.yaml"
    path.write_text(QUOTAS)
    return str(path)


def settings_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "kquota.toml"
    path.write_text(text)
    return str(path)


def test_flags_go_over_the_environment_over_the_file(
    tmp_path: Path, quotas: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of a command goes over what stands at the top of the file."""
    config = settings_file(tmp_path, f'format = "csv"\nquotas = "{quotas}"\n')
    base = ["--config", config, "describe"]

    def first_line(arguments: list[str]) -> str:
        assert run(arguments) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert first_line(["describe", "--quotas", quotas]).startswith("user=alice  producer_byte_rate")
    assert first_line(base) == "entity,key,value"
    settings_file(tmp_path, f'format = "csv"\nquotas = "{quotas}"\n[describe]\nformat = "yaml"\n')
    assert first_line(base) == "quotas:"
    monkeypatch.setenv("KQUOTA_FORMAT", "jsonl")
    assert first_line(base) == '{"entity": {"user": "alice"}, "values": {"producer_byte_rate": 1}}'
    assert first_line([*base, "--format", "csv"]) == "entity,key,value"
    monkeypatch.setenv("KQUOTA_CONFIG", config)
    assert first_line(["describe", "--format", "csv"]) == "entity,key,value"


def test_flags_and_lists_can_be_set(
    tmp_path: Path, quotas: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A list in the file, one text a line in the environment."""
    config = settings_file(tmp_path, '[describe]\nname = ["user=alice", "client-id=x"]\n')
    assert run(["--config", config, "describe", "--quotas", quotas]) == 0
    assert capsys.readouterr().out == ""
    settings_file(tmp_path, '[describe]\nname = "user=alice"\nstrict = true\n')
    assert run(["--config", config, "describe", "--quotas", quotas]) == 0
    assert capsys.readouterr().out.startswith("user=alice")
    monkeypatch.setenv("KQUOTA_NAME", "user=alice\nclient-id=x y")
    assert run(["resolve", "--quotas", quotas]) == 0
    assert capsys.readouterr().out.startswith("user=alice,client-id=x%20y\n")


@pytest.mark.parametrize(
    "text, message",
    [
        ("[describe]\nfromat = 'csv'", ": describe.fromat: there is no such option; did you mean format?"),
        ("[descrbe]\nformat = 'csv'", ": [descrbe]: there is no such command; did you mean describe?"),
        ("fromat = 'csv'", ": fromat: there is no such option for all commands; did you mean format?"),
        ("explain = true", "options of one command stand in its table, such as [resolve]"),
        ("describe = 5", ": describe: there is no such option for all commands"),
        ("[describe]\nformat = 2024-01-01", ": describe.format: text, a number, true, false or a list"),
        ("format =", ": this is not TOML: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_key(
    tmp_path: Path, quotas: str, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings_file(tmp_path, text)
    assert run(["--config", config, "describe", "--quotas", quotas]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"kquota: error: {config}")
    assert message in error


@pytest.mark.parametrize("where", ["environment", "file"])
def test_a_bad_value_is_named_with_its_origin(
    tmp_path: Path, quotas: str, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = settings_file(tmp_path, "[describe]\nformat = 'xml'\n" if where == "file" else "")
    if where == "environment":
        monkeypatch.setenv("KQUOTA_FORMAT", "xml")
    assert run(["--config", config, "describe", "--quotas", quotas]) == 2
    error = capsys.readouterr().err
    assert "'xml' is not one of" in error
    origin = "KQUOTA_FORMAT" if where == "environment" else f"{config}: describe.format"
    assert error.endswith(f"The value is from {origin}.\n")


def test_a_settings_file_that_cannot_be_read(tmp_path: Path, quotas: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", str(tmp_path / "none"), "describe", "--quotas", quotas]) == 2
    assert "cannot read the settings: No such file" in capsys.readouterr().err
    (tmp_path / "latin").write_bytes(b"# caf\xe9")
    assert run(["--config", str(tmp_path / "latin"), "describe", "--quotas", quotas]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_steps_have_tables_of_their_own(tmp_path: Path) -> None:
    """The table of a step goes over that of its command, and that over the top."""
    path = settings_file(tmp_path, "a = 1\nb = 1\nc = 1\n[pipeline]\na = 2\nb = 2\n[pipeline.ingest]\na = 3\n")
    settings = load_settings(path, {"KQUOTA_E_F": "env", "KQUOTA_B": "", "OTHER_D": "x"})
    command = ("pipeline", "ingest")
    values = [setting.value if (setting := settings.lookup(command, option)) else None for option in "abcd"]
    assert values == [3, 2, 1, None]
    found = settings.lookup(command, "e-f")
    assert found is not None
    assert (found.value, found.origin) == ("env", "KQUOTA_E_F")
    a = settings.lookup(command, "a")
    assert a is not None
    assert a.origin == f"{path}: pipeline.ingest.a"


def properties(tmp_path: Path, text: str) -> str:
    path = tmp_path / "server.properties"
    path.write_text(text)
    return str(path)


def test_broker_settings_have_kafkas_defaults() -> None:
    assert load_broker_config() == BrokerConfig(11, 1, 11, 1, None, None, 8, 3, 1)
    assert BrokerConfig().static_defaults == {}


def test_broker_settings_are_read_and_overridden(tmp_path: Path) -> None:
    """Java's properties syntax; other settings of the broker are left aside; -D goes over the file."""
    path = properties(
        tmp_path,
        """\
# a broker
broker.id=1
log.dirs=/var/lib/kafka
listeners = PLAINTEXT://:9092
quota.window.num : 5
quota.window.size.seconds\\
   = 2
controller.quota.window.num=+7
quota.producer.default=1048576
quota.consumer.default = 9223372036854775807
num.io.threads=16
""",
    )
    config = load_broker_config(path, ["num.io.threads=4", "num.partitions = 3", "log.retention.ms=5", "foo=bar"])
    assert config == BrokerConfig(
        quota_window_num=5,
        quota_window_size_seconds=2,
        controller_quota_window_num=7,
        quota_producer_default=1048576,
        quota_consumer_default=None,
        num_io_threads=4,
        num_partitions=3,
    )
    assert config.static_defaults == {"producer_byte_rate": 1048576.0}


@pytest.mark.parametrize(
    "key, value, largest",
    [
        ("quota.window.num", "0", 2**31 - 1),
        ("quota.window.num", "ten", 2**31 - 1),
        ("quota.window.size.seconds", "1.5", 2**31 - 1),
        ("num.io.threads", "-1", 2**31 - 1),
        ("num.network.threads", "2147483648", 2**31 - 1),
        ("quota.producer.default", "9223372036854775808", 2**63 - 1),
        ("quota.consumer.default", "", 2**63 - 1),
        ("quota.consumer.default", "9" * 5000, 2**63 - 1),
    ],
)
def test_a_value_that_no_broker_takes_is_refused(tmp_path: Path, key: str, value: str, largest: int) -> None:
    message = f"{key}={value}: a broker takes a whole number from 1 to {largest} here"
    path = properties(tmp_path, f"{key}={value}\n")
    with pytest.raises(InputError) as caught:
        load_broker_config(path)
    assert str(caught.value) == f"{path}: {message}"
    with pytest.raises(InputError) as caught:
        load_broker_config(None, [f"{key}={value}"])
    assert str(caught.value) == f"-D {message}"


@pytest.mark.parametrize(
    "define, message",
    [
        ("quota.window.nun=5", "a broker has no such setting; did you mean quota.window.num?"),
        ("quota_window_num=5", "did you mean quota.window.num?"),
        ("num.io.thread=5", "did you mean num.io.threads?"),
        ("quota.fetch.default=5", "a broker has no such setting"),
        ("quota.window.num", "write it as key=value"),
        ("=5", "write it as key=value"),
    ],
)
def test_a_define_that_looks_mistyped_is_refused(define: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^-D ") as caught:
        load_broker_config(None, [define])
    assert message in str(caught.value)


def test_properties_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the broker's settings"):
        load_broker_config(str(tmp_path / "none"))
    with pytest.raises(InputError, match="not a Java properties file"):
        load_broker_config(properties(tmp_path, "a=\\u12zz\n"))
