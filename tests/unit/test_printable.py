"""Text of others, safe to show."""

from __future__ import annotations

import json

import pytest

from kquota.cli.output import align
from kquota.errors import ApiError
from kquota.files import dump_json
from kquota.printable import printable, without_login

EVIL = "\x1b]0;pwned\x07\x9b2J\x7f\u202egpj\u2066\r\nkquota: done"
CONTROLS = "\x1b\x07\x9b\x7f\u202e\u2066\r\n"


@pytest.mark.parametrize("text", ["", "producer_byte_rate", 'Größe "x" \\ %0A, \u200d\u00a0', "日本語 🙂"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_what_a_terminal_obeys_is_written_as_an_escape() -> None:
    shown = printable(EVIL)
    assert shown == r"\u001b]0;pwned\u0007\u009b2J\u007f\u202egpj\u2066\u000d\u000akquota: done"


def test_an_error_of_a_broker_is_one_printable_line() -> None:
    """Its message, for programs, is what the broker sent."""
    error = ApiError(42, EVIL)
    assert not set(str(error)) & set(CONTROLS)
    assert error.message == EVIL


def test_json_reads_the_escapes_back() -> None:
    text = dump_json({EVIL: EVIL})
    assert not set(text) & set(CONTROLS)
    assert json.loads(text) == {EVIL: EVIL}


def test_tables_show_and_do_not_obey() -> None:
    assert not set("".join(align([["user=a", EVIL, "1"], ["", "key", "2"]]))) & set(CONTROLS)


def test_a_url_is_shown_without_its_login() -> None:
    assert without_login("postgres://ann:TOPSECRET@db:5432/q?x=@") == "postgres://***@db:5432/q?x=@"
    assert without_login("sqlite:///a@b.db") == "sqlite:///a@b.db"
