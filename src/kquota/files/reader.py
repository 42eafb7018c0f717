"""Quota files read, ours and those of other programs: every problem of a file is found and reported at once.

Which format it is shows in the content; a file that could be of two formats is refused.
"""

import json
from dataclasses import replace
from typing import Final, Literal

from kquota.errors import QuotaFileError, QuotaFileProblem
from kquota.files import nodes
from kquota.files.checker import Checker, Part
from kquota.files.foreign import jikkou, kafka_configs, rpk, strimzi
from kquota.files.foreign.resources import Resource, are_resources, resources
from kquota.files.nodes import Document
from kquota.files.own_format import EXAMPLE, read_own
from kquota.files.quota_file import QuotaFile
from kquota.quotas import KAFKA, QuotaModel

__all__ = ["read_quota_file"]

Format = Literal["yaml", "json"]

_EXTENSIONS: Final = (".json", ".yaml", ".yml")
_LOOKS_LIKE: Final = f"""a quota file looks like this:
{EXAMPLE}
Also read: what `rpk cluster quotas describe --format yaml` (or json) and `kafka-configs --describe` print, Strimzi's \
KafkaUser and Kafka, and Jikkou's KafkaClientQuota, also several in one file or in a List."""


def read_quota_file(
    text: str | bytes, *, name: str, format: Format | None = None, model: QuotaModel = KAFKA
) -> QuotaFile:
    """The content of a quota file called ``name`` (for messages, and for the format where ``format`` is None).

    Raises :class:`~kquota.errors.QuotaFileError` with all problems found. A host name on an ip entity is taken as it
    is: only a broker can say whether it resolves. What a foreign file says beside Kafka's quotas is in ``left_out``.
    """
    decoded = _decode(text)
    if isinstance(decoded, QuotaFileProblem):
        raise QuotaFileError(name, [decoded])
    checker = Checker(model)
    if format is None and kafka_configs.is_described(decoded):
        kafka_configs.read(decoded, checker)
    else:
        documents = _documents(decoded, is_json=_is_json(decoded, name, format))
        if isinstance(documents, QuotaFileProblem):
            if not name.endswith(_EXTENSIONS):  # it may be something else altogether
                documents = replace(documents, reason=f"{documents.reason}; {_LOOKS_LIKE}")
            raise QuotaFileError(name, [documents])
        _read(documents, checker)
    if checker.problems:
        raise QuotaFileError(name, sorted(checker.problems, key=lambda p: (p.line or 0, p.column or 0)))
    return QuotaFile(tuple(checker.entries.values()), tuple(checker.left_out))


def _decode(raw: str | bytes) -> str | QuotaFileProblem:
    try:
        if isinstance(raw, str):
            raw.encode("utf-8")
        text = raw if isinstance(raw, str) else raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        reason = f"byte {error.object[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        return QuotaFileProblem(line, None, "", reason)
    except UnicodeEncodeError as error:
        line = error.object.count("\n", 0, error.start) + 1
        reason = f"half a surrogate pair, U+{ord(error.object[error.start]):04X}, is no character"
        return QuotaFileProblem(line, None, "", reason)
    text = text.removeprefix("\ufeff")
    nul = text.find("\x00")
    if nul >= 0:
        return QuotaFileProblem(text.count("\n", 0, nul) + 1, None, "", "there is a NUL byte: this is not a text file")
    if not text.strip():
        return QuotaFileProblem(None, None, "", f"the file is empty; {_LOOKS_LIKE}")
    return text


def _is_json(text: str, name: str, format: Format | None) -> bool:
    if format is not None:
        return format == "json"
    if name.endswith(_EXTENSIONS):
        return name.endswith(".json")
    if text.lstrip()[0] not in "[{":
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _documents(text: str, *, is_json: bool) -> list[Document] | QuotaFileProblem:
    if not is_json:
        return nodes.yaml_documents(text)
    root = nodes.json_nodes(text)
    return root if isinstance(root, QuotaFileProblem) else [Document(1, root)]


def _read(documents: list[Document], checker: Checker) -> None:
    if not documents:
        checker.report(None, "", f"the file holds no quotas; {_LOOKS_LIKE}")
        return
    if any(are_resources(document.root) for document in documents):
        _read_resources(resources(documents, checker), checker)
        return
    if len(documents) > 1:
        second = nodes.Mapping(documents[1].line, 1, [])
        checker.report(second, "", "a second document begins here; one is read")
        return
    root = Part(checker, documents[0].root, "")
    if rpk.is_rpk(root):
        rpk.read(root)
    elif not checker.problems:
        read_own(root, _LOOKS_LIKE)


def _read_resources(found: list[Resource], checker: Checker) -> None:
    """Those of one program; other kinds, such as topics, hold no quotas of clients and are passed over."""
    of_strimzi = [one for one in found if one.group == strimzi.GROUP and one.kind in strimzi.KINDS]
    of_jikkou = [one for one in found if one.group == jikkou.GROUP and one.kind == jikkou.KIND]
    if of_strimzi and of_jikkou:
        reason = "resources of Strimzi and of Jikkou stand in one file; keep them apart, kquota reads either"
        second = max(of_strimzi[0].part.node, of_jikkou[0].part.node, key=lambda node: node.line)
        checker.report(second, "", reason)
    elif of_strimzi:
        strimzi.read(of_strimzi)
    elif of_jikkou:
        jikkou.read(of_jikkou)
    elif not checker.problems:
        kinds = ", ".join(dict.fromkeys(f"{one.api_version} {one.kind}" for one in found)) or "none"
        checker.report(
            None,
            "",
            f"no resource here holds quotas (there are: {kinds}): {strimzi.GROUP} {' and '.join(strimzi.KINDS)} and "
            f"{jikkou.GROUP} {jikkou.KIND} do",
        )
