"""The counts against hand computation, and against the numbers the paper prints."""

import json
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from made_files import small_model
from soundspot.cli import main
from soundspot.model.checkpoint import build_method
from soundspot.model.methods import METHODS
from soundspot.reproduce.complexity import (
    REST,
    Complexity,
    Part,
    count_multiply_adds,
    measure,
    read_subject,
)

VGG16_LAYERS = (  # c_in, c_out, grid
    (3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56),
    (256, 256, 56), (256, 512, 28), (512, 512, 28), (512, 512, 28), (512, 512, 14), (512, 512, 14),
    (512, 512, 14),
)  # fmt: skip
VGGISH_LAYERS = (  # c_in, c_out, cells of the grid
    (1, 64, 96 * 64), (64, 128, 48 * 32), (128, 256, 24 * 16), (256, 256, 24 * 16),
    (256, 512, 12 * 8), (512, 512, 12 * 8),
)  # fmt: skip
VGGISH_FC = (12_288 * 4096, 4096 * 4096, 4096 * 128)
MEL = 298 * 257 * 64  # frames, bins, bands


@cache
def cost(*settings: str) -> Complexity:
    return measure(read_subject(settings))


def parts_of(*settings: str) -> dict[str, Part]:
    return {part.name: part for part in cost(*settings).parts}


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.Conv2d(3, 5, 3, padding=1), (2, 3, 7, 11), 2 * 77 * 3 * 5 * 9),
        (nn.Conv2d(6, 6, 3, groups=6), (1, 6, 7, 13), 5 * 11 * 6 * 9),
        (nn.ConvTranspose2d(3, 5, 3, stride=2), (1, 3, 3, 5), 7 * 11 * 3 * 5 * 9),
        (nn.Linear(7, 11), (13, 7), 13 * 7 * 11),
        (nn.Linear(7, 11, bias=False), (2, 3, 7), 6 * 7 * 11),
    ],
)
def test_a_layer_has_the_multiply_adds_of_its_formula(module, shape, expected):
    counts = count_multiply_adds({"layer": module}, lambda: module(torch.rand(shape)))
    assert counts["layer"] == counts.total() == expected


def test_work_outside_all_parts_is_the_rest():
    layer, x = nn.Linear(2, 5), torch.rand(7, 2)

    def run():
        return torch.einsum("bd,cd->bc", layer(x), layer(x))

    for _ in range(2):  # a count leaves nothing behind in the module
        assert count_multiply_adds({"layer": layer}, run) == {"layer": 2 * 70, REST: 7 * 7 * 5}


def test_encoders_by_hand():
    parts = parts_of()
    vgg16, vggish = parts["vgg16 (visual encoder)"], parts["vggish (audio encoder)"]
    seen = sum(c_in * c_out * 9 * grid**2 for c_in, c_out, grid in VGG16_LAYERS)
    assert VGG16_LAYERS[0][0] * 64 * 9 * 224 * 224 == 86_704_128
    assert vgg16.frame * 1e9 == pytest.approx(seen, abs=1)
    assert vgg16.parameters == sum(c_in * c_out * 9 + c_out for c_in, c_out, _ in VGG16_LAYERS)
    heard = sum(c_in * c_out * 9 * cells for c_in, c_out, cells in VGGISH_LAYERS) + sum(VGGISH_FC)
    assert vggish.frame * 1e9 == pytest.approx(3 * heard + MEL, abs=1)
    assert vggish.parameters == (
        sum(c_in * c_out * 9 + c_out for c_in, c_out, _ in VGGISH_LAYERS)
        + sum(VGGISH_FC)
        + (4096 + 4096 + 128)
    )
    assert (vgg16.step, vggish.step) == (2 * vgg16.frame, 2 * vggish.frame)


@pytest.mark.parametrize(
    ("cycles", "published"), [(1, 38.3), (3, 43.0), (5, 47.6), (6, 49.9), (7, 52.2), (8, 54.5)]
)
def test_the_published_column_against_t(cycles, published):
    assert round(measure(read_subject([f"model.cycles={cycles}"])).total.step, 1) == published


def test_the_published_number_without_pcm():
    assert round(cost("model.pcm=false").total.step, 1) == 35.9


@pytest.mark.parametrize("name", [name for name in METHODS if name != "names"])
def test_every_method_is_counted_whole(name):
    recipe = read_subject([f"method={name}", "model={}", "train.batch=3"])
    found, method = measure(recipe), build_method(name, recipe.model)
    trained = found.parts[2:]
    assert sum(part.parameters for part in trained) == sum(p.numel() for p in method.parameters())
    assert trained[-1].name == REST
    assert all(part.step > 0 for part in trained)
    assert found.total.step > found.total.frame > 15
    for part in trained[:-1]:
        assert (part.frame == 0) == f"{part.name}.".startswith(method.training_only), part.name


def asked(capsys, *words: str) -> dict:
    assert main(["complexity", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_verb_reads_recipes_models_and_overrides(tmp_path: Path, capsys):
    assert round(asked(capsys, "model.cycles=1")["total"]["step"], 1) == 38.3
    assert main(["complexity"]) == 0
    assert "14,714,688" in capsys.readouterr().out
    recipe = tmp_path / "one.yaml"
    recipe.write_text(yaml.safe_dump({"pairs": "none", "features": {"audio": "vggish"}}))
    assert round(asked(capsys, str(recipe))["total"]["step"], 1) == 35.9
    found = asked(capsys, str(recipe), "model.pcm=true", "model.cycles=1")
    assert round(found["total"]["step"], 1) == 38.3
    run = small_model(tmp_path / "run=1")
    names = [part["name"] for part in asked(capsys, run)["parts"]]
    assert names[1] == "yamnet (audio encoder)"
    pcm = asked(capsys, "untrained-sspl-pcm", "model.cycles=1")["parts"][3]
    assert pcm["name"] == "branch.pcm" and pcm["step"] > 2.3


def test_a_method_without_training_costs_only_its_maps():
    found = cost("method=names", "model={}", "features.visual=mobilenetv2", "features.audio=yamnet")
    (rest,) = found.parts[2:]
    assert rest.step == 0
    assert rest.frame == pytest.approx(
        (3 * 521 * 1024 + 2 * 196**2 * 1280 + 2 * (196 * 1280 * 1000 + 196 * 1000)) / 1e9
    )


@pytest.mark.parametrize(
    "words",
    [
        ["none.yaml"],
        ["nobody"],
        ["model.cycle=3"],
        ["model.cycles=0"],
        ["method=nothing"],
        ["model.objective=wmse"],  # which whitens the 2048 dimensions of more pairs than there are
        ["untrained-sspl", "cycles"],
    ],
)
def test_bad_input_is_one_sentence(capsys, words):
    assert main(["complexity", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
