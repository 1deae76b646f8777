"""The committed notebook is what its script gives; the script itself is run as one of the examples."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT, NOTEBOOK = ROOT / "examples" / "researcher.py", ROOT / "examples" / "researcher.ipynb"
TOOL = runpy.run_path(str(ROOT / "tools" / "notebook.py"))


def sources(cells: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(cell["cell_type"], cell["source"]) for cell in cells]


def test_committed_notebook_has_the_cells_of_its_script() -> None:
    committed = json.loads(NOTEBOOK.read_text())["cells"]
    assert sources(committed) == sources(TOOL["read_cells"](SCRIPT.read_text()))  # else: make notebook


def test_committed_notebook_has_outputs_and_is_small() -> None:
    code = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code)
    assert NOTEBOOK.stat().st_size < 200_000


def test_cells_share_their_names_and_keep_what_they_print_and_draw() -> None:
    words, draw = "# %% [markdown]\n# # Title\n#\n# words\n", "import matplotlib.pyplot as plt\nplt.plot([x])\n"
    text = f"{words}# %%\nx = 1\n# %%\n{draw}print(x)\n"
    cells = TOOL["read_cells"](text)
    TOOL["run_cells"](cells)
    assert sources(cells)[0] == ("markdown", "# Title\n\nwords")
    assert [len(cell["outputs"]) for cell in cells[1:]] == [0, 2]
    assert cells[2]["outputs"][0]["text"] == "1\n"
    assert "image/png" in cells[2]["outputs"][1]["data"]


def test_a_cell_that_fails_writes_no_notebook(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("# %%\nraise ValueError('bad cell')\n")
    with pytest.raises(ValueError, match="bad cell"):
        TOOL["main"](str(tmp_path / "bad.py"), str(tmp_path / "bad.ipynb"))
    assert not (tmp_path / "bad.ipynb").exists()
