"""`tools/run_page.py`: what a page says that its commands print is compared with what they print."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.run_page import SERVER, Command, Shell, console_commands, merged, run_page


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path)
    yield opened
    opened.close()


def test_commands_and_what_they_print_are_told_apart() -> None:
    assert console_commands("$ one \\\n    --two\nout\n$ three\n") == [
        Command("one \\\n    --two", ["out"]),
        Command("three"),
    ]


@pytest.mark.parametrize(
    "expected, printed, shown",
    [
        ([], ["a"], ["a"]),
        (["a"], ["a", "b"], ["a", "b"]),
        (["x", "...", "y"], ["a", "b", "c"], ["a", "...", "c"]),
        (["x", "..."], ["a", "b", "c"], ["a", "..."]),
        (["..."], ["a"], ["..."]),
        (["x", "...", "y"], ["a", "b"], ["a", "...", "b"]),
        (
            ["...", "2 rows", "", "...", "end"],
            ["log", "3 rows", "", "a", "b", "END"],
            ["...", "3 rows", "", "...", "END"],
        ),
        (["...", "2 rows", "..."], ["log", "2 rows", "a"], ["...", "2 rows", "..."]),
    ],
)
def test_an_elision_keeps_as_many_lines_as_the_page_shows(
    expected: list[str], printed: list[str], shown: list[str]
) -> None:
    assert merged(expected, printed) == shown


def test_a_page_gets_what_is_printed_now(shell: Shell) -> None:
    page = """\
# Title

```console
$ export WORD=new
```

```console
$ printf 'no end'
$ echo $WORD; echo two; echo three >&2
old
...
$ cat
```

```sh
false
```

```python
print(1 + 1)
```

```text
3
```

```python
import sys
```
"""
    after = run_page(page, shell)
    assert after == page.replace("'no end'\n", "'no end'\nno end\n").replace("old", "new").replace("\n3\n", "\n2\n")
    assert run_page(after, shell) == after


def test_a_page_says_in_comments_what_is_needed_and_what_is_not_run(shell: Shell) -> None:
    page = """\
<!-- before
mkdir there
echo text > there/file
-->

```console
$ cat there/file
text
```

<!-- not run: it fails -->
```console
$ false
```
"""
    assert run_page(page, shell) == page


def test_a_command_that_fails_ends_the_run(shell: Shell) -> None:
    with pytest.raises(RuntimeError, match="exit code 7 of: echo why; "):
        run_page("```console\n$ echo why; (exit 7)\n```\n", shell)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        run_page("```python\n1 / 0\n```\n", shell)


def test_a_server_has_an_address_of_its_own_and_is_ended(shell: Shell) -> None:
    """It is waited for until it has said as much as the page shows; where it listens, the page's address stands."""
    page = f"""\
```console
$ {sys.executable} -c "import os, time; print('on', os.environ['KQUOTA_LISTEN'], flush=True); time.sleep(600)" &
on {SERVER}
$ echo {SERVER}
{SERVER}
```
"""
    assert run_page(page, shell) == page
