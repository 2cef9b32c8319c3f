"""Maps of a set without boxes, as MUSIC is: compared with each other instead of with a truth."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.data.writer import PairWriter
from soundspot.reproduce import experiments, likeness, results, runs
from soundspot.reproduce.runs import ReproductionPlan, choose_test_set


@pytest.fixture(scope="module")
def music(tiny_pairs, tmp_path_factory):
    """The tiny set as if it were MUSIC: no boxes, and a sound of its own for every pair."""
    root = tmp_path_factory.mktemp("music") / "pairs"
    writer = PairWriter(root, "music", "event", {})
    writer.begin()
    shutil.copytree(tiny_pairs.root / "frames", root / "frames", dirs_exist_ok=True)
    shutil.copytree(tiny_pairs.root / "sounds", root / "sounds", dirs_exist_ok=True)
    pairs = [
        replace(pair, boxes=None, audio=pair.audio or f"sounds/train-{k % 4}.flac", digest="")
        for k, pair in enumerate(tiny_pairs.pairs)
        if pair.split in ("train", "val")
    ]
    writer.finish(pairs, [], [])
    return PairSet.open(root)


def test_trials_by_hand(music):
    trials = likeness.find_trials(music)
    assert [trial.pair.id for trial in trials] == [f"val-{k}" for k in range(5)]
    # high: 0, 2, 4; low: 1, 3
    assert [trial.same.id for trial in trials] == ["val-2", "val-3", "val-4", "val-1", "val-0"]
    assert all(trial.other.cls != trial.pair.cls for trial in trials)
    alone = replace(music, pairs=tuple(p for p in music.pairs if p.cls == "high"))
    with pytest.raises(SoundspotError, match="at least two of one class and one of another"):
        likeness.find_trials(alone)


def test_false_negatives_on_music(music, tmp_path, monkeypatch, capsys):
    small = {"features": {"pretrained": False, "views": 2}}
    small["train"] = {"epochs": 1, "batch": 4, "patience": 0, "select": "loss"}
    bases = {"music": {"attention": {"method": "attention", **small}}}
    bases["music"]["sspl"] = {"method": "sspl", "model": {"projection": 7, "hidden": 13}, **small}
    line = {"label": "C", "base": "sspl"}
    table = {"title": "Fig. 2", "note": "A note.", "figure": "examples"}
    table["lines"] = [{"label": "A", "base": "attention"}, line]
    (tmp_path / "bases.yaml").write_text(json.dumps(bases))
    (tmp_path / "false-negatives.yaml").write_text(json.dumps(table))
    monkeypatch.setattr(experiments, "TABLES", tmp_path)
    experiment = experiments.find_table("false-negatives")
    test_set = choose_test_set(music, None, (), None, experiment)
    plan = ReproductionPlan("false-negatives", music, test_set, 1, True, tmp_path / "runs")
    out = tmp_path / "out"
    results.write_table(plan, out, lambda line: None)
    content = json.loads((out / "false-negatives.json").read_text())
    assert content["pairs"] == 5
    for line in content["lines"]:
        assert -1 <= line["same_class"]["mean"] <= 1
    assert "another class" in capsys.readouterr().out
    assert (out / "false-negatives.html").exists() and (out / "false-negatives.png").exists()


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
