"""Errors as the command line says them: the library names arguments, a user gives flags."""

import pytest

from kquota.cli import cli
from kquota.cli.error_text import FLAGS, error_text
from kquota.cli.running import run
from kquota.errors import InputError
from kquota.pipeline.ingest.reject_limit import RejectLimit


def test_an_argument_of_the_library_is_a_flag_here() -> None:
    with pytest.raises(InputError) as raised:
        RejectLimit.parse("many")
    assert "`max_rejected` many" in str(raised.value)
    assert error_text(raised.value).startswith("--max-rejected many: give a number of lines")


def test_other_words_between_backticks_stay() -> None:
    assert error_text(InputError("no table `requests`: see `kquota dataset`")) == (
        "no table `requests`: see `kquota dataset`"
    )


def test_every_flag_is_one_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    helps = []
    for command in (["analyze"], ["pipeline", "whatif"], ["serve"], ["gateway"]):
        assert run(cli, "kquota", [*command, "--help"]) == 0
        helps.append(capsys.readouterr().out)
    assert {name for name, flag in FLAGS.items() if f"{flag} " not in " ".join(helps)} == set()
