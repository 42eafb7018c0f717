"""The page of exit codes, of kquota's errors, and of Kafka's error codes."""

from collections.abc import Iterator

from kquota import errors
from kquota.cli.plans.plan import CHANGES_PENDING
from kquota.cli.running import INTERRUPTED, PIPE_CLOSED
from kquota.errors import ApiError, KafkaErrorCode, KquotaError, RetriableError
from tools.reference.markdown import code, summary_of, table

MEANINGS = {
    0: "Done.",
    1: "The work failed, wholly or for some of the entities; or `kquota lint` found something.",
    2: "What was given cannot be used: an option, a file, a directory.",
    CHANGES_PENDING: "`kquota plan`: changes are pending, or with `--fail-on-impact` their impact is too large.",
    4: "Not authenticated, or not authorised.",
    5: "No connection, or no answer in time.",
    6: "The brokers are too old for it, or do not know it.",
    INTERRUPTED: "Interrupted (SIGINT).",
    PIPE_CLOSED: "Who read the output closed it (SIGPIPE).",
}

PAGE = """\
# Exit codes and errors

Data goes to standard output, everything else to standard error. `kafka-client-quotas` ends with 0 or 1, as Kafka's own
tools do.

{codes}

## Errors in Python

Everything that kquota raises on purpose is a `kquota.errors.KquotaError`. *Retriable*: trying again may help.

{errors}

## Kafka's error codes

Those that requests about quotas and topics can meet: the `code` and `name` in the results of changes.

{kafkas}
"""


def exit_codes_page() -> str:
    """What a command ends with, and which errors end it so."""
    classes = list(tree(KquotaError))
    assert {one.exit_code for one in classes} <= MEANINGS.keys()
    codes = [(str(number), meaning) for number, meaning in MEANINGS.items()]
    raised = [(code(one.__name__), str(one.exit_code), retriable(one), summary_of(one)) for one in classes]
    kafkas = [(str(int(one)), code(one.name), "yes" if ApiError(one).retriable else "") for one in KafkaErrorCode]
    return PAGE.format(
        codes=table(["code>", "means"], codes),
        errors=table(["error", "exit code>", "retriable", ""], raised),
        kafkas=table(["code>", "name", "retriable"], kafkas),
    )


def tree(root: type[KquotaError]) -> Iterator[type[KquotaError]]:
    """A class of `kquota.errors` and all below it; one with two parents comes once."""
    seen: set[type[KquotaError]] = set()

    def below(one: type[KquotaError]) -> Iterator[type[KquotaError]]:
        if one not in seen and one.__module__ == errors.__name__:
            seen.add(one)
            yield one
            for child in one.__subclasses__():
                yield from below(child)

    yield from below(root)


def retriable(one: type[KquotaError]) -> str:
    return "yes" if issubclass(one, RetriableError) else ""
