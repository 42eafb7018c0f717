"""How a command line runs: errors in one form, exit codes, a closed pipe, an interruption."""

import os
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.core import ParameterSource

from kquota.errors import KquotaError
from kquota.printable import printable

__all__ = ["run", "warn"]

PIPE_CLOSED: Final = 128 + 13
INTERRUPTED: Final = 128 + 2
_ADVICE: Final = {
    **dict.fromkeys(
        ("pyspark", "pyarrow", "numpy", "pandas", "numba"),
        ", and this runs on Spark: pip install 'kquota[spark,report]'",
    ),
    "prometheus_client": ": pip install 'kquota[server]'",
}
"""By package that only some commands need, what to do where it is not installed."""


def run(command: click.Command, name: str, arguments: Sequence[str]) -> int:
    """Run `command`; the exit code. Errors go to standard error in one form, a closed pipe goes quietly."""
    verbose = "-v" in arguments or "--verbose" in arguments
    try:
        code = _invoke(command, name, arguments)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        _show_origin(error)
        return error.exit_code
    except KquotaError as error:
        if verbose:
            _show_traceback()
        from kquota.cli.error_text import error_text  # what most commands need not load

        _echo_error(name, error_text(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"{name}: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever reads has enough. What is still buffered would raise again when Python closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except ModuleNotFoundError as error:
        advice = _ADVICE.get((error.name or "").partition(".")[0])
        if advice is None:
            raise
        if verbose:
            _show_traceback()
        _echo_error(name, f"{error.name} is not installed{advice}")
        return KquotaError.exit_code
    except OSError as error:
        if verbose:
            _show_traceback()
        place = f"{error.filename}: " if error.filename else ""
        _echo_error(name, f"{place}{error.strerror or error}")
        return KquotaError.exit_code
    return code


def warn(message: str) -> None:
    """Say on standard error what the user should know of, in the name of the program that runs."""
    context = click.get_current_context(silent=True)
    name = "kquota" if context is None else context.find_root().info_name
    click.echo(f"{name}: warning: {printable(message)}", err=True)


def _echo_error(name: str, message: str) -> None:
    """The lines of it as they are, and nothing in them that a terminal would obey."""
    lines = [printable(line) for line in message.split("\n")]
    click.echo(f"{name}: error: " + "\n".join(lines), err=True)


def _invoke(command: click.Command, name: str, arguments: Sequence[str]) -> int:
    """Parse and call; a command may return its exit code. (``cli.main`` would end the process at a closed pipe.)"""
    try:
        with command.make_context(name, list(arguments)) as ctx:
            result = command.invoke(ctx)
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    return result if isinstance(result, int) else 0


def _show_origin(error: click.ClickException) -> None:
    """Say where a bad value was set, if that was not the command line."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return
    name = error.param.name
    if error.ctx.get_parameter_source(name) is not ParameterSource.DEFAULT_MAP:
        return
    path = error.ctx.command_path.split()[1:]
    origin = error.ctx.meta.get("kquota.origins", {}).get((*path, name))
    if origin is not None:
        click.echo(f"The value is from {origin}.", err=True)


def _show_traceback() -> None:
    from traceback import print_exc

    print_exc(file=sys.stderr)
