"""The examples in docstrings and in docs/python.md run, on media made here."""

import doctest
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import soundspot
from made_files import tiny_recipe
from soundspot.data.pair_set import PairSet
from soundspot.features.encoding import encode_with_bar
from soundspot.inference.localizer import Localizer
from soundspot.inference.models import load
from soundspot.inference.video import render_video
from soundspot.media import clips as media
from soundspot.training.recipe import read_features

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
FRAME = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
BARKS = (
    np.random.default_rng(0).normal(0, 0.2, 32_000) * np.exp(-(np.arange(32_000) % 8_000) / 900)
).astype(np.float32)


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A folder with the files that the examples of localizing name."""
    monkeypatch.chdir(tmp_path)
    media.write_video("clip.mp4", [FRAME] * 20, BARKS, 10.0)
    media.write_jpeg("photo.jpg", FRAME)
    media.write_flac("bark.wav", BARKS)  # what a file holds decides, not its name
    return tmp_path


@pytest.fixture(scope="module")
def encoded(tiny_pairs, tmp_path_factory) -> Path:
    """A pair set with features and a recipe, on encoders that need no weights."""
    folder = tmp_path_factory.mktemp("encoded")
    shutil.copytree(tiny_pairs.root, folder / "pairs", ignore=shutil.ignore_patterns("features"))
    spec = read_features(tiny_recipe(folder / "recipe.yaml", "pairs", select="ciou+duets"))
    encode_with_bar(PairSet.open(folder / "pairs"), spec, lambda line: None)
    return folder


@pytest.fixture
def set_up(here: Path, encoded: Path) -> None:
    """The files that the examples of training and evaluating name, too."""
    shutil.copytree(encoded, here, dirs_exist_ok=True)


def run_docstring(thing: object) -> None:
    """Run the examples of one docstring, which must have some."""
    names = {"soundspot": soundspot, "frame": FRAME, "waveform": BARKS}
    (test,) = doctest.DocTestFinder(recurse=False).find(thing, globs=names)
    assert test.examples
    failures, _ = doctest.DocTestRunner().run(test)
    assert failures == 0


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize(
    "thing",
    [load, Localizer.localize, Localizer.localize_batch, render_video],
    ids=lambda thing: thing.__qualname__,
)
def test_docstrings_of_localizing(thing, here):
    run_docstring(thing)


@pytest.mark.slow
@pytest.mark.parametrize("thing", [soundspot.train, soundspot.evaluate])
def test_docstrings_of_training_and_evaluating(thing, set_up):
    run_docstring(thing)


@pytest.mark.slow
@pytest.mark.weights
def test_the_page(set_up, here):
    assert len(BLOCKS) == 7
    names: dict[str, object] = {}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
    made = {path.name for path in here.iterdir()}
    assert {"where.png", "where.json", "bark.png", "hum.png", "where.mp4"} <= made
    assert (here / "report" / "report.html").is_file()
    assert isinstance(names["mine"], Localizer)
