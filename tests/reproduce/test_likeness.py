"""Maps of a set without boxes, as MUSIC is: compared with each other instead of with a truth."""

import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from made_files import tone
from soundspot.cli.app import main
from soundspot.common.errors import SoundspotError
from soundspot.data.manifest import hash_split
from soundspot.data.pair_set import PairSet
from soundspot.media.writing import write_video
from soundspot.reproduce import experiments, likeness, runs
from soundspot.reproduce.runs import ReproductionPlan, choose_test_set

pytestmark = pytest.mark.usefixtures("thin_vgg16")
LOGGED = {"step": 3, "seconds": 1.0, "best": True, "epoch": 1}
CLASSES = "cello", "flute"
SHARE = "0.45"  # of the videos for validation, so that a few are enough


def ids_of(split, count):
    """Made-up YouTube ids that the hash puts into a split."""
    ids = (f"music{number:06d}" for number in itertools.count())
    return list(itertools.islice((i for i in ids if hash_split(i, float(SHARE)) == split), count))


TRAIN, VAL = ids_of("train", 6), ids_of("val", 5)


@pytest.fixture(scope="module")
def music(tmp_path_factory):
    """MUSIC in small, prepared from videos: a red square plays low, a blue one high."""
    root = tmp_path_factory.mktemp("music")
    (root / "videos").mkdir()
    listed = {cls: [] for cls in CLASSES}
    for ids, top in ((TRAIN, 20), (VAL, 40)):  # equal frames with equal sounds would be duplicates
        for number, id in enumerate(ids):
            frame = np.full((96, 128, 3), 200, np.uint8)
            color = [(200, 30, 30), (30, 30, 200)][number % 2]
            frame[top : top + 48, 8 + 11 * number : 56 + 11 * number] = color
            sound = tone((220, 1760)[number % 2] * (1 + number / 40), 4.0)
            write_video(root / "videos" / f"Solo [{id}].mp4", [frame] * 20, sound, 5.0)
            listed[CLASSES[number % 2]].append(id)
    (root / "videos" / "MUSIC_solo_videos.json").write_text(json.dumps({"videos": listed}))
    assert main(["prepare", "music", f"{root}/videos", f"{root}/music", "--val", SHARE]) == 0
    return PairSet.open(root / "music")


def test_trials_by_hand(music):
    trials = likeness.find_trials(music)
    # As in the list: first the cellos, then the flutes.
    assert [trial.pair.id for trial in trials] == [VAL[k] for k in (0, 2, 4, 1, 3)]
    assert [trial.same.id for trial in trials] == [VAL[k] for k in (2, 4, 0, 3, 1)]
    assert all(trial.other.cls != trial.pair.cls for trial in trials)
    alone = replace(music, pairs=tuple(p for p in music.pairs if p.cls == "cello"))
    with pytest.raises(SoundspotError, match="at least two of one class and one of another"):
        likeness.find_trials(alone)


def test_false_negatives_on_music(music, tmp_path, monkeypatch, capsys):
    """The lines of the real table by the command line, only trained for less long."""
    small = {"features": {"pretrained": False, "views": 2}}
    small["train"] = {"epochs": 1, "batch": 5, "patience": 0, "select": "loss"}
    bases = {"attention": {"method": "attention", **small}}
    bases["rival"] = {"method": "contrastive", **small}
    bases["sspl"] = {"method": "sspl", "model": {"projection": 7, "hidden": 13}, **small}
    (tmp_path / "bases.yaml").write_text(json.dumps({"music": bases}))
    shutil.copy(experiments.TABLES / "false-negatives.yaml", tmp_path)
    monkeypatch.setattr(experiments, "TABLES", tmp_path)
    monkeypatch.setattr(experiments, "QUICK", ())
    folder, out = tmp_path / "runs", tmp_path / "out"
    words = ["reproduce", "false-negatives", "--data", f"{music.root}", "--quick"]
    words += ["--runs", f"{folder}", "-o", f"{out}"]
    assert main(words) == 0
    content = json.loads((out / "false-negatives.json").read_text())
    labels = [line.label for line in experiments.find_table("false-negatives").lines]
    assert (content["pairs"], [line["label"] for line in content["lines"]]) == (5, labels)
    for line in content["lines"]:
        assert -1 <= line["same_class"]["mean"] <= 1
    assert "another class" in capsys.readouterr().out
    assert (out / "false-negatives.png").exists()
    page = (out / "false-negatives.html").read_text()
    assert page.count("data:image/jpeg") == 5 * (1 + len(labels)) and "green box" not in page

    for run in folder.iterdir():
        if not run.name.startswith("sspl"):
            shutil.rmtree(run)
    assert main([*words, "--no-training"]) == 0
    content = json.loads((out / "false-negatives.json").read_text())
    assert content["not_run"] == labels[:-1]
    page = (out / "false-negatives.html").read_text()
    assert f"no trained run was found: {'; '.join(labels[:-1])}." in page
    shutil.rmtree(folder)
    assert main([*words, "--no-training"]) == 2
    assert "no line of false-negatives has a finished run" in capsys.readouterr().err


def test_flat_maps_have_no_likeness(music, tmp_path, monkeypatch):
    """A network whose maps are flat must not break the table after all its training."""
    flat = {"same_class": np.full(5, np.nan), "other_class": np.full(5, np.nan)}
    maps = np.zeros((5, 4, 4), np.float32)
    monkeypatch.setattr(likeness, "compare_maps", lambda *arguments: (maps, flat))
    finished = runs.RunResult({"commit": "", "data_fingerprint": ""}, {}, 3, 3, (LOGGED,))
    monkeypatch.setattr(runs, "train_missing", lambda *arguments: finished)
    plan = ReproductionPlan(
        "false-negatives", music, runs.TestSet((), music), 1, True, tmp_path / "runs"
    )
    made = likeness.reproduce_likeness(plan, lambda line: None)
    assert {row[3:] for row in likeness.as_table(made).rows} == {("–", "–", "–")}
    json.dumps(made, allow_nan=False)


def test_likeness_is_the_correlation_with_the_other_map(music, tmp_path, monkeypatch):
    trials = likeness.find_trials(music)
    own = np.random.default_rng(0).random((5, 4, 4)).astype(np.float32)
    answers = iter([own, 2 * own + 1, -own])
    monkeypatch.setattr(likeness.predictions, "open_model", lambda *arguments: None)

    class Features:
        sound = staticmethod(lambda paths: None)

    monkeypatch.setattr(likeness.predictions, "open_features", lambda *arguments: Features)
    monkeypatch.setattr(
        likeness.predictions, "maps_by_cycle", lambda *arguments: next(answers)[None]
    )
    plan = ReproductionPlan("x", music, runs.TestSet((), music), 1, True, tmp_path)
    maps, alike = likeness.compare_maps(tmp_path, plan, trials)
    assert np.array_equal(maps, own)
    assert alike["same_class"] == pytest.approx(np.ones(5))
    assert alike["other_class"] == pytest.approx(-np.ones(5))


def test_music_serves_the_figure_of_examples_alone(music):
    with pytest.raises(SoundspotError, match="music has no boxes"):
        choose_test_set(music, None, (), None, experiments.find_table("scaling"))
    lines = experiments.lines_for(experiments.find_table("false-negatives"), music)
    assert all(experiments.recipe_of(line, music, 0, False) for line in lines)
    with pytest.raises(SoundspotError, match="kind of line for music"):
        experiments.recipe_of(experiments.Line("x", "hardway"), music, 0, False)
