"""A method is one file and one line, or an entry point of an installed package."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import soundspot
from made_files import install
from soundspot.common.errors import SoundspotError
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model.checkpoint import build_method
from soundspot.model.methods import METHODS
from soundspot.model.methods.method import Batch, Method
from soundspot.reproduce.experiments import TrainingSet, find_table, recipe_of

TOY = """
from dataclasses import dataclass

from torch import nn

from soundspot.model.methods.method import Method, MethodOutput


@dataclass(frozen=True)
class ToyConfig:
    c_v: int = 512
    c_a: int = 128
    gain: float = 1.0


class Toy(Method):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.conv = nn.Conv2d(config.c_v, 1, 1)

    def forward(self, batch):
        return MethodOutput(self.maps(batch.f_v1, batch.f_a).square().mean(), {})

    def maps(self, f_v, f_a, cycles=None):
        return self.config.gain * self.conv(f_v)[:, 0]
"""


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy", raising=False)


def run_toy() -> Method:
    method = build_method("toy", {"c_v": 5, "c_a": 3, "gain": 2.0})
    views = torch.ones(2, 5, 7, 7)
    assert method(Batch(views, views, torch.ones(2, 3, 3), torch.tensor([-1, -1]))).loss > 0
    assert method.maps(views, torch.ones(2, 3, 3)).shape == (2, 7, 7)
    return method


def test_a_toy_method_is_one_file_and_one_line(tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setitem(METHODS.lines, "toy", "toy:Toy")
    assert type(run_toy()) is METHODS["toy"].module
    assert METHODS["toy"].config(gain=3.0).gain == 3.0
    assert list(METHODS)[-1] == "toy"


def test_an_installed_package_adds_a_method(tmp_path):
    assert "toy" not in METHODS
    before = len(METHODS)
    (tmp_path / "toy.py").write_text(TOY)
    install(tmp_path, "methods", "toy = toy:Toy")
    assert len(METHODS) == before + 1
    run_toy()


@pytest.mark.slow
def test_the_plugin_of_the_docs_is_encoded_trained_and_listed(tiny_pairs, tmp_path, monkeypatch):
    source, place = (
        shutil.copytree(Path(__file__).parents[2] / "docs/plugin", tmp_path / "plugin"),
        tmp_path / "site",
    )
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", place, source], check=True)
    monkeypatch.syspath_prepend(place)
    spec = FeatureSpec(visual="cosines", audio="bands", views=2)
    cache = encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    recipe = tmp_path / "recipe.yaml"
    features = {"visual": "cosines", "audio": "bands", "views": 2}
    train = {"epochs": 1, "batch": 4, "accumulate": 2}
    values = {"pairs": str(tiny_pairs.root), "method": "regress", "features": features}
    recipe.write_text(json.dumps({**values, "train": train}))
    run = soundspot.train(recipe, out=tmp_path / "run")
    card = json.loads((run / "best.json").read_text())
    assert card["provenance"]["encoder_weights"] == cache.weights  # nobody vouched for them
    found = soundspot.load(run, device="cpu").localize(
        np.zeros((40, 50, 3), np.uint8), np.sin(np.arange(48_000))
    )
    assert found.similarity.shape == (14, 14)
    (line,) = [line for line in find_table("main").lines if line.label == "regress"]
    assert recipe_of(line, tiny_escvoc(), 0, quick=False).train.lr == 1e-3


def tiny_escvoc() -> TrainingSet:
    return TrainingSet("escvoc", Path("nowhere"), "0" * 16)


def test_a_package_cannot_replace_a_method(tmp_path):
    install(tmp_path, "methods", "sspl = toy:Toy")
    assert METHODS["sspl"].module.__name__ == "SSPLPlus"
    assert list(METHODS).count("sspl") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", "nowhere:Toy"),
        ("", "toy:Toy"),
        ("1 / 0", "toy:Toy"),
        ("Toy = 5", "toy:Toy"),
        ("from soundspot.model.methods.method import Method\nclass Toy(Method): pass", "toy:Toy"),
    ],
)
def test_a_broken_package_is_one_sentence_that_names_it(tmp_path, text, value):
    (tmp_path / "toy.py").write_text(text)
    install(tmp_path, "methods", "toy = " + value)
    with pytest.raises(SoundspotError) as error:
        build_method("toy", {})
    assert "toybox" in str(error.value) and value in str(error.value)
    assert "toy" in list(METHODS)  # names alone import nothing
    assert build_method("hardway", {"c_v": 5, "c_a": 3})


def test_an_unknown_name_is_answered_with_all_choices(tmp_path):
    install(tmp_path, "methods", "toy = nowhere:Toy")
    with pytest.raises(SoundspotError) as error:
        build_method("tooy", {})
    assert all(f" {name}" in str(error.value) for name in METHODS)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_line_leads_to_a_method_with_a_config_of_its_own(name):
    config, module = METHODS[name]
    assert config.__module__ == module.__module__
    assert isinstance(module(config(c_v=7, c_a=5)), Method)


def test_a_name_of_the_table_needs_neither_other_methods_nor_a_search():
    """Start-up stays fast: only the method that is asked for is imported."""
    code = (
        "import sys\n"
        "from soundspot.common import config\n"
        "from soundspot.model.methods import METHODS\n"
        "config.entry_points = None\n"
        "METHODS['hardway']; print('soundspot.model.methods.sspl' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"]
