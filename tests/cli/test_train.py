"""prepare, check, encode, train and export as a user types them, on a tiny set."""

import json
from pathlib import Path

import pytest
import torch

from made_files import tiny_recipe
from soundspot.cli import main
from soundspot.data.pair_set import PairSet
from soundspot.model import checkpoint
from soundspot.training.recipe import find_recipe, read_features

pytestmark = pytest.mark.usefixtures("thin_vgg16")


@pytest.fixture
def recipe(own_pairs, tmp_path):
    """A recipe on a copy of the tiny set, so that its folder may be written to."""
    path, model = tmp_path / "tiny.yaml", {"alignment": 0.1}
    return tiny_recipe(path, own_pairs.root, model, select="ciou+duets")


@pytest.mark.slow
def test_from_pairs_to_a_model_that_localizes(recipe, tmp_path, capsys):
    folder = tmp_path / "pairs"
    assert main(["pairs", "check", str(folder)]) == 0
    assert "no problems" in capsys.readouterr().out
    run = tmp_path / "run"
    command = ["train", str(recipe), "--out", str(run), "train.lr=1e-4"]
    assert main(command) == 2
    assert "soundspot encode" in capsys.readouterr().err
    assert main(["encode", str(folder), "--recipe", str(recipe)]) == 0
    assert "36 views and sounds" in capsys.readouterr().out
    assert main([*command[:3], "/proc/none", *command[4:]]) == 2
    assert "/proc/none" in capsys.readouterr().err
    assert main(command) == 0
    assert "best step" in capsys.readouterr().err
    result = json.loads((run / "result.json").read_text())
    assert len(result["epochs"]) == 2
    assert {"val_ciou", "val_auc", "val_duets"} <= set(result["epochs"][0])
    assert result["recipe"]["train"]["lr"] == 1e-4
    assert (run / "curves.png").stat().st_size > 1000

    slim = tmp_path / "slim.safetensors"
    assert main(["export", str(run), str(slim)]) == 0
    whole, _ = checkpoint.load(run)
    small, card = checkpoint.load(slim)
    assert card.slim
    assert slim.stat().st_size < 0.6 * (run / "best.safetensors").stat().st_size
    f_v, f_a = torch.randn(1, 512, 14, 14), torch.randn(1, 3, 1024)
    torch.testing.assert_close(small.maps(f_v, f_a), whole.maps(f_v, f_a), rtol=0, atol=2e-3)
    assert card.calibration == {}
    assert main(["export", str(run), str(slim), "--calibrate", str(folder)]) == 0
    calibration = checkpoint.load(slim)[1].calibration
    assert calibration["pairs"] == 5
    assert -1 <= calibration["threshold"] <= 1
    assert checkpoint.load(slim)[1].zoom == 0
    assert main(["export", str(run), str(slim), "--zoom", "1.5"]) == 2
    assert "from 0 to 1" in capsys.readouterr().err
    again = ["export", str(run), str(slim), "--zoom", "1"]
    assert main([*again, "--calibrate", str(folder)]) == 0
    card = checkpoint.load(slim)[1]
    assert card.zoom == 1
    assert card.calibration["threshold"] != calibration["threshold"], "the peaks are others"

    capsys.readouterr()
    assert (run / "state.pt").exists()
    assert main(["tidy", str(run), str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"{run}: " in said and "MB freed" in said and f"{folder}: not finished" in said
    assert not (run / "state.pt").exists() and checkpoint.load(run)
    assert main(command) == 2
    assert "tidied" in capsys.readouterr().err


def test_recipes_are_listed_shown_and_found_by_name(capsys, monkeypatch, tmp_path):
    assert main(["recipes"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(line.startswith("escvoc_sspl ") and "1x1 convolution" in line for line in listed)
    assert main(["recipes", "escvoc_sspl"]) == 0
    assert "visual_conv: true" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)  # the documentation's paths work outside a clone too
    for name in ("escvoc_sspl", "escvoc_sspl.yaml", "recipes/escvoc_sspl.yaml"):
        assert find_recipe(name).is_file()
    Path("escvoc_sspl.yaml").write_text("mine")
    assert find_recipe("escvoc_sspl.yaml").read_text() == "mine"


def test_views_have_the_name_they_have_in_recipes():
    assert read_features(None, ["features.views=2"]) == read_features(None, ["views=2"])
    assert read_features(None, ["features.views=2"]).views == 2


def test_check_names_a_damaged_frame(recipe, tmp_path, capsys):
    folder = tmp_path / "pairs"
    frame = PairSet.open(folder).pairs[3].frame
    (folder / frame).write_bytes(b"no jpeg")
    assert main(["pairs", "check", str(folder)]) == 2
    out = capsys.readouterr().out
    assert f"unreadable {frame}" in out
    assert "1 problem" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "none.yaml"], "no recipe at none.yaml"),
        (["train", "{recipe}", "train.epoch=3"], "did you mean 'epochs'"),
        (["train", "{recipe}", "epochs"], "an override must look like key=value"),
        (["encode", "{folder}", "view=3"], "did you mean 'views'"),
        (["encode", "/none"], "/none"),
        (["encode", "{folder}", "--recipe", "escvoc_ssp"], "did you mean 'escvoc_sspl'"),
        (["tidy", "/none"], "no training run at /none"),
        (["pairs", "check", "/none"], "/none"),
        (["prepare", "escvoc", "/none", "out"], "/none"),
        (["export", "/none", "x.safetensors"], "/none"),
    ],
)
def test_bad_input_is_one_sentence(recipe, tmp_path, capsys, words, message):
    names = {"recipe": str(recipe), "folder": str(tmp_path / "pairs")}
    assert main([word.format(**names) for word in words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
