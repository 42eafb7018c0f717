"""The notebook of the examples runs from its first cell to its last, and shows what it has stored."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"


def shown(notebook: Any) -> list[list[str]]:
    """What each cell shows as text, but for pictures, whose bytes depend on the fonts of the machine."""
    return [
        [
            output["text"] if output["output_type"] == "stream" else output["data"]["text/plain"]
            for output in cell["outputs"]
            if output.get("name") != "stderr" and "image/png" not in output.get("data", {})
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


@pytest.mark.timeout(900)
def test_the_tour() -> None:
    notebook = nbformat.read(FOLDER / "tour.ipynb", as_version=4)
    stored = shown(notebook)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    assert shown(notebook) == stored
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", ()))
