"""The program as a whole: help, errors, exit codes, and what it loads."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from kquota import __version__
from kquota.cli import COMMANDS, cli, run
from kquota.errors import InputError, KquotaError

QUOTAS = "- entity: {user: alice}\n  values: {producer_byte_rate: 1}\n"


@pytest.fixture
def quotas(tmp_path: Path) -> str:
    path = tmp_path / "q.yaml"
    path.write_text(QUOTAS)
    return str(path)


def kquota(*arguments: str, report: str = "") -> subprocess.CompletedProcess[str]:
    """The program in a process of its own, with ``report`` run at its end."""
    program = f"import atexit, sys; atexit.register(lambda: {report or 'None'}); import kquota.cli; kquota.cli.main()"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


LOADED = "print(*sorted(sys.modules), file=sys.stderr)"
NEVER = {
    "altair", "asyncio", "cryptography", "jinja2", "kafka",
    "msgspec", "numpy", "pandas", "pyarrow", "pyspark", "rich", "socket", "ssl",
    "sqlite3", "javaproperties", "urllib.request",
}  # fmt: skip


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_load_no_command(arguments: list[str]) -> None:
    result = kquota(*arguments, report=LOADED)
    loaded = set(result.stderr.split())
    assert result.returncode == 0
    assert "kquota.cli" in loaded
    assert {name for name in loaded if name.startswith("kquota.cli.")} == {"kquota.cli.running"}
    assert not loaded & (NEVER | {"yaml", "kquota.quotas", "kquota.files", "kquota.config"})


def test_resolve_and_describe_load_only_what_they_need(quotas: str) -> None:
    for arguments in (["resolve", "--name", "user=alice"], ["describe"]):
        result = kquota(*arguments, "--quotas", quotas, report=LOADED)
        assert result.returncode == 0
        assert result.stdout.startswith("user=alice")
        loaded = set(result.stderr.split())
        assert "kquota.files.reader" in loaded
        assert not loaded & NEVER
        assert not {name for name in loaded if name.startswith("kquota.pipeline")}


def test_importing_the_package_loads_nothing_of_it() -> None:
    program = "import sys, kquota; print(*[m for m in sys.modules if m.startswith('kquota.')])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for name, lazy in COMMANDS.items():
        assert f"  {name} " in text
        assert lazy.short_help.split()[0] in text
    assert "Examples:" in text


@pytest.mark.parametrize(
    "name", ["resolve", "describe", "alter", "export", "plan", "apply", "rollback", "history", "lint"]
)
def test_the_help_of_a_command_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And they use only options that it has; the short line of the table is about the same thing."""
    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    options = {opt for param in command.params for opt in param.opts} | {"--help"}
    examples = [line for line in text.splitlines() if line.strip().startswith(f"kquota {name} ")]
    assert len(examples) >= 3
    for line in examples:
        assert {word for word in line.split() if word.startswith("-") and word != "-"} <= options


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"kquota {__version__}\n"


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Commands:" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["resolve"], ["resolve", "--nonsense"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("Usage: kquota")


def raising(monkeypatch: pytest.MonkeyPatch, error: BaseException | None, result: object = None) -> None:
    """Make ``kquota describe`` a command that ends so."""

    @click.command()
    def command() -> object:
        if error is not None:
            raise error
        return result

    import kquota.cli.quotas.describe

    monkeypatch.setattr(kquota.cli.quotas.describe, "describe", command)


@pytest.mark.parametrize(
    "error, code, message",
    [
        (KquotaError("it broke"), 1, "kquota: error: it broke\n"),
        (InputError("not that"), 2, "kquota: error: not that\n"),
        (KeyboardInterrupt(), 130, "kquota: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "kquota: error: No space left on device\n"),
        (OSError(errno.EACCES, "Permission denied", "/x"), 1, "kquota: error: /x: Permission denied\n"),
    ],
)
def test_errors_have_one_form_and_their_exit_code(
    error: BaseException, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, error)
    assert run(["describe"]) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", message)


def test_verbose_shows_where_an_error_comes_from(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raising(monkeypatch, InputError("not that"))
    assert run(["-v", "describe"]) == 2
    error = capsys.readouterr().err
    assert "Traceback" in error
    assert error.endswith("kquota: error: not that\n")


@pytest.mark.parametrize("result, code", [(None, 0), (3, 3), (0, 0)])
def test_a_command_may_return_its_exit_code(result: object, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    raising(monkeypatch, None, result)
    assert run(["describe"]) == code


def test_a_command_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(COMMANDS, "demo", COMMANDS["demo"]._replace(module="kquota.cli.absent"))
    assert run(["demo"]) == 2
    assert capsys.readouterr().err == "kquota: error: this installation has no `kquota demo`\n"


def test_a_closed_pipe_is_quiet(tmp_path: Path, quotas: str) -> None:
    """Like any tool before ``head``: no traceback, and the exit code of a closed pipe."""
    clients = tmp_path / "clients.csv"
    clients.write_text("user,client-id\n" + "alice,x\n" * 20_000)
    read_end, write_end = os.pipe()
    program = "import kquota.cli; kquota.cli.main()"
    arguments = ["resolve", "--quotas", quotas, "--from", str(clients), "--format", "jsonl"]
    started = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert os.read(read_end, 10)
    os.close(read_end)
    _, error = started.communicate()
    assert (started.returncode, error) == (141, b"")


def test_a_full_disk_is_reported(quotas: str) -> None:
    if not Path("/dev/full").exists():  # only Linux has it
        return
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-c", "import kquota.cli; kquota.cli.main()", "describe", "--quotas", quotas],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith("kquota: error: No space left on device")


def test_data_goes_to_standard_output_and_everything_else_to_standard_error(quotas: str, tmp_path: Path) -> None:
    """Also when clients break off in the middle of a file."""
    clients = tmp_path / "clients.csv"
    clients.write_text("user,client-id\nalice,x\nbroken\n")
    result = kquota("resolve", "--quotas", quotas, "--from", str(clients), "--format", "jsonl")
    assert result.returncode == 2
    assert result.stdout.count("\n") == 1
    assert result.stderr.startswith(f"kquota: error: {clients}:3: there are 1 cells")
