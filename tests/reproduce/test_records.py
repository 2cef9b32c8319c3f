"""Records of runs: tables without training, and what happens to records that do not fit."""

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.data.pair_set import PairSet
from soundspot.evaluation.metrics import THRESHOLDS, auc, success_curve
from soundspot.evaluation.protocols import PROTOCOLS
from soundspot.reproduce import experiments, gather, records, results, runs
from soundspot.reproduce.records import Asked, Record, Scores
from soundspot.reproduce.runs import RunResult

SMALL = {"features": {"pretrained": False, "views": 2}}
SMALL["train"] = {"steps": 2, "validate_every": 1, "batch": 4, "patience": 0, "select": "ciou"}
SSPL = {"method": "sspl", "model": {"projection": 7, "hidden": 13}, **SMALL}
BASES = {"tiny": {"sspl": SSPL, "contrastive": {"method": "contrastive", **SMALL}}}
LINES = [{"label": "plain"}, {"label": "guided", "base": "contrastive", "guidance": 0.25}]
TABLES = {
    "plain": {},
    "full": {"figure": "steps", "bench": True, "gflops": True},
    "iterations": {"figure": "iterations"},
    "examples": {"figure": "examples"},
}
N = 5  # pairs of the tiny set with boxes


@pytest.fixture(autouse=True)
def _tables(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "bases.yaml").write_text(yaml.safe_dump(BASES))
    for name, options in TABLES.items():
        content = {"title": "Table", "note": "A note.", "lines": LINES, **options}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(experiments, "TABLES", folder)


def plan(pairs, folder, name="plain", seeds=1, **options):
    test_set = runs.choose_test_set(pairs, pairs.root, ["escvoc-val", "escvoc-duets-val"], None)
    return runs.ReproductionPlan(name, pairs, test_set, seeds, False, folder / "runs", **options)


def quiet(line):
    pass


def refuse(*arguments, **options):
    raise AssertionError("a record should have been enough")


def identity(whole):
    return records.identify(whole.test_set, runs.coverage(whole.test_set))


def recipe_of(pairs, number=0, seed=0):
    line = experiments.find_table("plain").lines[number]
    return experiments.recipe_of(line, pairs, seed, quick=False)


def made_scores(whole, ciou=0.75, **changes):
    """Hand-made scores: three of five pairs are found if `ciou` is at least a half."""
    columns = dict.fromkeys(PROTOCOLS, (ciou, ciou, ciou, 0.25, 0.0))
    nothing = {"passes": False, "bench": False, "no_source_f1": None, "by_cycle": ()}
    values = {"commit": "abc", "guidance": 0.0, "ms": 2.0, "by_protocol": columns, **nothing}
    values |= {"duets": (0.5,), "inverted": None}
    return Scores(**{"tested_on": identity(whole), **values, **changes})


def made_training(whole, recipe, seconds=3.0):
    epochs = [{"step": 1, "seconds": seconds, "best": True, "val_ciou": 0.5, "train_z_std": 0.9}]
    origin = {"commit": "abc", "data_fingerprint": whole.pairs.fingerprint()[:16]}
    return RunResult(origin, to_dict(recipe), 2, 1, tuple(epochs))


def place_of(whole, recipe):
    folder = runs.run_folder(whole.runs, recipe, whole.pairs)
    return gather.records_of(whole) / f"{folder.name}.json"


def keep(whole, number=0, seed=0, **changes):
    """Write a hand-made record, and return its path."""
    recipe = recipe_of(whole.pairs, number, seed)
    path = place_of(whole, recipe)
    guidance = {"guidance": LINES[number].get("guidance", 0.0)}
    scores = made_scores(whole, **{**guidance, **changes})
    records.write_record(path, Record(1, made_training(whole, recipe), (scores,)))
    return path


def finish(whole, recipe, monkeypatch, seconds=3.0):
    """A finished run whose training and scoring are made by hand; returns what was asked of it."""
    folder = runs.run_folder(whole.runs, recipe, whole.pairs)
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    asked = []

    def score_run(folder, test_set, guidance, passes, bench, device, inverted):
        asked.append((folder.name, passes, bench, inverted))
        upside_down = {"inverted": (0.0,) * N} if inverted else {}
        return made_scores(whole, **upside_down).as_run_scores()

    result = made_training(whole, recipe, seconds)
    monkeypatch.setattr(runs, "train_missing", lambda *arguments: result)
    monkeypatch.setattr(runs, "score_run", score_run)
    return asked


def test_floats_are_cut_by_hand():
    assert records.cut([0.4999999, 0.35, 0.0123456, 12345.6, 0.0, 1.0]) == [
        *(0.49999, 0.35, 0.012345, 12345.0, 0.0, 1.0)
    ]
    assert records.cut({"a": (1, True, None, "x", -0.1234567)}) == {
        "a": [1, True, None, "x", -0.12345]
    }
    assert np.isnan(records.cut(float("nan")))


def test_a_cut_score_stays_on_its_side_of_every_threshold():
    near = [np.nextafter(THRESHOLDS, -1)[1:], THRESHOLDS, np.nextafter(THRESHOLDS, 2)[:-1]]
    scores = np.concatenate([*near, np.random.default_rng(0).random(997)])
    kept = np.array(records.cut(scores.tolist()))
    for one, other in zip(scores, kept, strict=True):
        assert (success_curve(np.array([one])) == success_curve(np.array([other]))).all()


def test_the_table_of_a_record_is_that_of_the_run(tiny_pairs, tmp_path, monkeypatch):
    root = tmp_path / "pairs"
    shutil.copytree(tiny_pairs.root, root)
    here = plan(PairSet.open(root), tmp_path / "here", "full")
    table = results.reproduce_table(here, quiet)
    seed = table["lines"][0]["seeds"][0]
    scores = runs.score_run(here.runs / seed["run"], here.test_set)
    assert seed["auc"] == auc(scores.ciou)  # the cut did not change it
    assert table["not_run"] == [] and table["lines"][1]["guidance"] == 0.25
    # Elsewhere: the same data, but neither features nor runs.
    there = plan(tiny_pairs, tmp_path / "there", "full", records=gather.records_of(here))
    for name in ("train_missing", "score_run"):
        monkeypatch.setattr(runs, name, refuse)
    said = []
    assert results.reproduce_table(there, said.append) == table
    assert f"2 of 2 runs were taken from their records in {there.records}" in said
    assert not there.runs.exists()
    # A table that asks for less shows no more than it would by itself.
    plain = results.reproduce_table(replace(there, name="plain"), quiet)["lines"][0]
    assert not {"inverted", "gflops", "ms"} & set(plain) and "validations" not in plain["seeds"][0]


def test_what_is_recorded_is_shown_and_the_rest_is_named(tiny_pairs, tmp_path, monkeypatch, capsys):
    whole = plan(tiny_pairs, tmp_path, seeds=3, no_training=True)
    keep(whole, seed=0, inverted=(0.0,) * N)  # more than this table asks for
    keep(whole, seed=2, ciou=0.4)
    monkeypatch.setattr(runs, "train_missing", refuse)
    said = []
    results.write_table(whole, tmp_path / "out", said.append)
    content = json.loads((tmp_path / "out" / "plain.json").read_text())
    (line,) = content["lines"]
    assert [seed["seed"] for seed in line["seeds"]] == [0, 2]
    assert [seed["ciou"] for seed in line["seeds"]] == [0.6, 0.0]
    assert results.as_table(content).rows[0][2] == "2"
    assert "inverted" not in line and content["not_run"] == ["guided"]
    assert "Not run: guided." in said and "[2/2] guided, seed 0: not run" in said
    assert (tmp_path / "out" / "plain.md").read_text().endswith("|\n\nNot run: guided.\n")
    assert "image saliency" not in {line["label"] for line in content["trivial"]}
    assert any("image saliency" in line for line in said)  # and why is said
    spec = importlib.util.spec_from_file_location(
        "build_results", Path(__file__).parents[2] / "docs" / "build_results.py"
    )
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    assert "|\n\nNot run: guided.\n\nA reading." in page._section("plain", content, "A reading.")


def test_only_the_lines_asked_for_are_trained(tiny_pairs, tmp_path, monkeypatch):
    whole = plan(tiny_pairs, tmp_path, lines=("plain",))
    finish(whole, recipe_of(tiny_pairs), monkeypatch)
    monkeypatch.setattr(results, "_trivial_entries", lambda *arguments: [])
    content = results.reproduce_table(whole, quiet)
    assert [line["label"] for line in content["lines"]] == ["plain"]
    assert content["not_run"] == ["guided"]
    with pytest.raises(SoundspotError, match="unknown line of Table 'plane': did you mean 'plain'"):
        experiments.check_lines(experiments.find_table("plain"), ["plain", "plane"])


def test_a_table_without_any_run_is_refused(tiny_pairs, tmp_path):
    whole = plan(tiny_pairs, tmp_path, no_training=True)
    with pytest.raises(SoundspotError, match="no line of plain has a finished run .* or a record"):
        results.reproduce_table(whole, quiet)
    assert not whole.runs.exists()


def test_records_of_other_data_are_left_alone(tiny_pairs, tmp_path):
    whole = plan(tiny_pairs, tmp_path, no_training=True)
    other = replace(identity(whole), data_fingerprint="0" * 16)
    path = keep(whole, tested_on=other)
    keep(whole, 1)
    before = path.read_bytes()
    assert results.reproduce_table(whole, quiet)["not_run"] == ["plain"]
    assert path.read_bytes() == before
    # Another training set has other names, so its runs are not found.
    root = tmp_path / "pairs"
    shutil.copytree(tiny_pairs.root, root)
    lines = (root / "pairs.jsonl").read_text().splitlines(keepends=True)
    (root / "pairs.jsonl").write_text("".join([*lines[1:], lines[0]]))
    changed = plan(PairSet.open(root), tmp_path, no_training=True)
    with pytest.raises(SoundspotError, match="no line of plain"):
        results.reproduce_table(changed, quiet)


def test_new_scores_join_those_on_another_test_set(tiny_pairs, tmp_path, monkeypatch):
    whole = plan(tiny_pairs, tmp_path)
    other = replace(identity(whole), benchmarks=("flickr249",))
    path = keep(whole, tested_on=other)
    recipe = recipe_of(tiny_pairs)
    finish(whole, recipe, monkeypatch)
    taken = gather.take_run(whole, recipe, identity(whole), Asked(), quiet, "plain")
    assert not taken.recorded
    both = records.read_record(path, tiny_pairs).scores
    assert [scores.tested_on.benchmarks[0] for scores in both] == ["flickr249", "escvoc-val"]


@pytest.mark.parametrize(
    ("asked", "flags"),
    [
        (Asked(passes=True), (True, True, False)),
        (Asked(inverted=True), (False, True, True)),
        (Asked(bench=True), None),  # already there
    ],
)
def test_what_a_record_lacks_is_scored_again(tiny_pairs, tmp_path, monkeypatch, asked, flags):
    whole = plan(tiny_pairs, tmp_path)
    path = keep(whole, bench=True)
    recipe = recipe_of(tiny_pairs)
    arguments = recipe, identity(whole), asked, quiet, "plain"
    if flags is not None:  # without the folder of the run, it would have to be trained
        assert gather.take_run(replace(whole, no_training=True), *arguments) is None
    calls = finish(whole, recipe, monkeypatch)
    assert gather.take_run(whole, *arguments).recorded == (flags is None)
    assert [call[1:] for call in calls] == ([] if flags is None else [flags])
    (scores,) = records.read_record(path, tiny_pairs).scores
    assert scores.answers(asked) and scores.answers(Asked(bench=True))
    assert gather.take_run(whole, *arguments).recorded


def test_scores_of_another_training_are_dropped(tiny_pairs, tmp_path, monkeypatch):
    whole = plan(tiny_pairs, tmp_path)
    path = keep(whole, guidance=0.5)
    recipe = recipe_of(tiny_pairs)
    finish(whole, recipe, monkeypatch, seconds=4.0)
    gather.take_run(whole, recipe, identity(whole), Asked(), quiet, "plain")
    kept = records.read_record(path, tiny_pairs)
    assert [scores.guidance for scores in kept.scores] == [0.0]
    assert kept.training.epochs[0]["seconds"] == 4.0


def _changed(path, *keys, value):
    content = json.loads(path.read_text())
    node = content
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    path.write_text(json.dumps(content))


DAMAGE = {
    "cut short": (lambda path: path.write_text(path.read_text()[:99]), "is damaged"),
    "a list": (lambda path: path.write_text("[]"), "it holds a list"),
    "of a later version": (lambda path: _changed(path, "format", value=2), "format=2"),
    "without a best step": (
        lambda path: _changed(path, "training", "epochs", 0, "best", value=False),
        "a best step",
    ),
    "with a score too few": (
        lambda path: _changed(path, "scores", 0, "by_protocol", "sspl", value=[0.5] * (N - 1)),
        f"expected {N} scores",
    ),
    "with text for a score": (
        lambda path: _changed(path, "scores", 0, "duets", value=["high"]),
        "must be float",
    ),
    "of no recipe": (
        lambda path: _changed(path, "training", "recipe", "method", value="magic"),
        "no valid recipe",
    ),
    "of another recipe": (
        lambda path: _changed(path, "training", "recipe", "train", "lr", value=0.5),
        "is not the record of the run sspl-",
    ),
    "of other data": (
        lambda path: _changed(path, "training", "provenance", "data_fingerprint", value="0"),
        "is not the record of the run sspl-",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_record_that_cannot_be_right_gets_a_sentence(tiny_pairs, tmp_path, kind):
    whole = plan(tiny_pairs, tmp_path, no_training=True)
    path = keep(whole)
    damage, reason = DAMAGE[kind]
    damage(path)
    with pytest.raises(SoundspotError, match=reason) as caught:
        results.reproduce_table(whole, quiet)
    assert f"delete {path} to train or score the run again" in str(caught.value)


def test_baselines_are_recorded_and_damaged_ones_get_a_sentence(tiny_pairs, tmp_path, monkeypatch):
    whole = plan(tiny_pairs, tmp_path, no_training=True)
    keep(whole)
    with monkeypatch.context() as features:
        features.setattr(results, "open_cache", lambda *arguments: object())
        salient = np.random.default_rng(0).random((N, 7, 7))
        features.setattr(results, "saliency_maps", lambda *arguments: salient)
        there = results.reproduce_table(whole, quiet)["trivial"]
    assert "image saliency" in {line["label"] for line in there}
    assert results.reproduce_table(whole, quiet)["trivial"] == there  # without features
    (path,) = gather.records_of(whole).glob("trivial-*.json")
    path.write_text("{}")
    with pytest.raises(SoundspotError, match=f"delete {path} to score the baselines again"):
        results.reproduce_table(whole, quiet)


def test_examples_need_the_folders_of_the_runs(tiny_pairs, tmp_path, monkeypatch):
    whole = plan(tiny_pairs, tmp_path, "examples")
    stem = keep(whole).stem
    keep(whole, 1)
    recorded = replace(whole, no_training=True)
    said = []
    results.write_table(recorded, tmp_path / "out", said.append)
    assert any("cannot be drawn" in line and f"plain ({stem}); guided" in line for line in said)
    assert (tmp_path / "out" / "examples.json").exists()
    assert not (tmp_path / "out" / "examples.html").exists()
    monkeypatch.setattr(runs, "train_missing", refuse)
    with pytest.raises(AssertionError):  # with training, a record is not enough for the first seed
        results.reproduce_table(whole, quiet)


def test_examples_show_the_lines_that_have_a_folder(tiny_pairs, tmp_path):
    """A table begun on one machine and finished on another has all records, but few folders."""
    root = tmp_path / "pairs"  # training encodes into it
    shutil.copytree(tiny_pairs.root, root)
    whole = plan(PairSet.open(root), tmp_path, "examples")
    kept = keep(whole, 1).stem  # "guided" has a record and no folder
    trained = experiments.recipe_of(experiments.Line("plain"), whole.pairs, 0, False)
    runs.train_missing(trained, runs.run_folder(whole.runs, trained, whole.pairs), quiet)
    content = yaml.safe_load((experiments.TABLES / "examples.yaml").read_text())
    never = {"label": "never", "settings": ["train.lr=1e-9"]}
    content["lines"] = [*reversed(content["lines"]), never]
    (experiments.TABLES / "examples.yaml").write_text(yaml.safe_dump(content))
    said = []
    results.write_table(replace(whole, no_training=True), tmp_path / "out", said.append)
    assert any(
        f"leaves out these lines, which have a record, but no folder in {whole.runs}: "
        f"guided ({kept})" in line
        for line in said
    )
    page = (tmp_path / "out" / "examples.html").read_text()
    assert page.count("data:image/jpeg") == 2 * N  # the frame and the map of "plain"
    assert "no trained run was found: guided; never." in page
    labels = [
        line["label"] for line in results.read_results(tmp_path / "out" / "examples.json")["lines"]
    ]
    assert labels == ["guided", "plain"]  # the table has both


def test_a_file_in_place_of_the_records_is_refused(tiny_pairs, tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SoundspotError, match="folder for the records, but .*file is a file"):
        results.write_table(plan(tiny_pairs, tmp_path, records=file), tmp_path / "out", quiet)
