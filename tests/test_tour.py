"""docs/tour.ipynb runs from top to bottom, on the real encoders and the default model."""

import json
from pathlib import Path

import pytest

SCORED = ("soundspot:", "centered disc:")
NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"


@pytest.mark.slow
@pytest.mark.weights
def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    scope = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), scope)
    said = capsys.readouterr().out
    assert "Dog" in said or "Bark" in said
    assert (tmp_path / "tour" / "where.mp4").stat().st_size > 10_000
    own, disc = (line.split("[")[1] for line in said.splitlines() if line.startswith(SCORED))
    assert own != disc
