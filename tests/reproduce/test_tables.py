"""Tables end to end on a tiny pair set, with random encoders: what is trained, kept and shown."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import yaml
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import auc, ciou_at
from soundspot.evaluation.protocols import score
from soundspot.evaluation.runner import EvaluationRequest, run_evaluation
from soundspot.reproduce import experiments, results, runs
from soundspot.reproduce.examples import sheet_size
from soundspot.reproduce.experiments import Line
from soundspot.reproduce.gather import RECORDS, records_of

BASES = {
    "tiny": {
        "sspl": {
            "method": "sspl",
            "model": {"projection": 7, "hidden": 13},
            "features": {"pretrained": False, "views": 2},
            "train": {"epochs": 2, "batch": 4, "patience": 0, "select": "ciou"},
        },
        "contrastive": {
            "method": "contrastive",
            "features": {"pretrained": False, "views": 2},
            "train": {"epochs": 1, "batch": 4, "patience": 0, "select": "ciou"},
        },
    },
    "flickr": {},
}
PLAIN = {"label": "plain", "published": {"flickr10k": [0.5, 0.4]}}
GUIDED = {"label": "guided", "base": "contrastive", "guidance": 0.25}


@pytest.fixture(scope="module")
def pairs(tiny_pairs, tmp_path_factory):
    """A copy of the tiny set, since reproducing encodes into it."""
    root = tmp_path_factory.mktemp("reproduce") / "pairs"
    shutil.copytree(tiny_pairs.root, root)
    return type(tiny_pairs).open(root)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "bases.yaml").write_text(yaml.safe_dump(BASES))
    for name in ("plain", "success", "steps", "examples"):
        content = {"title": f"Table {name}", "note": "A note.", "lines": [PLAIN, GUIDED]}
        figure = None if name == "plain" else name
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content | {"figure": figure}))
    monkeypatch.setattr(experiments, "TABLES", folder)
    return folder


def plan(pairs, folder=None, name="plain", seeds=1):
    """Most tests share their runs, as tables do."""
    test_set = runs.choose_test_set(pairs, pairs.root, ["escvoc-val", "escvoc-duets-val"], None)
    return runs.ReproductionPlan(
        name, pairs, test_set, seeds, True, folder or pairs.root.parent / "runs"
    )


@pytest.mark.parametrize("name", experiments.table_names())
@pytest.mark.parametrize("corpus", ["escvoc", "flickr", "vggsound"])
@pytest.mark.parametrize("quick", [False, True])
def test_every_line_of_every_table_is_a_recipe(tiny_pairs, name, corpus, quick):
    known = dataclasses.replace(tiny_pairs, name=corpus)
    lines = experiments.lines_for(experiments.find_table(name), known)
    recipes = [experiments.recipe_of(line, known, 3, quick) for line in lines]
    assert all(recipe.train.seed == 3 for recipe in recipes)
    distinct = {(str(recipe), line.guidance) for recipe, line in zip(recipes, lines, strict=True)}
    assert len(distinct) == len(lines) == len({line.label for line in lines})


def test_an_unknown_training_set_is_refused_with_the_choices(tiny_pairs):
    mine = dataclasses.replace(tiny_pairs, name="flickr10k")
    with pytest.raises(SoundspotError, match=r"training set 'flickr10k': did you mean 'flickr'"):
        experiments.recipe_of(Line("x"), mine, 0, quick=False)


def test_the_paper_s_learning_rates_follow_the_training_set(tiny_pairs):
    rates = {}
    for corpus in ("flickr", "vggsound"):
        for base in ("sspl", "sspl_pcm"):
            known = dataclasses.replace(tiny_pairs, name=corpus)
            train = experiments.recipe_of(Line("x", base), known, 0, quick=False).train
            rates[corpus, base] = (train.lr_heads, train.lr)
    assert rates == {
        ("flickr", "sspl"): (2e-3, 5e-4),
        ("flickr", "sspl_pcm"): (5e-5, 2e-5),
        ("vggsound", "sspl"): (1e-2, 5e-3),
        ("vggsound", "sspl_pcm"): (5e-5, 2e-5),
    }


def test_a_table_is_trained_tested_and_kept(pairs, tables, tmp_path, capsys):
    out = tmp_path / "out"
    said = []
    results.write_table(plan(pairs, seeds=2), out, said.append)
    content = json.loads((out / "plain.json").read_text())
    assert [line["label"] for line in content["lines"]] == ["plain", "guided"]
    assert content["data_fingerprint"] == pairs.fingerprint()[:16]
    assert [len(line["seeds"]) for line in content["lines"]] == [2, 2]
    for line in content["lines"]:
        values = [seed["ciou"] for seed in line["seeds"]]
        assert line["ciou"]["mean"] == pytest.approx(np.mean(values))
        assert line["ciou"]["std"] == pytest.approx(np.std(values, ddof=1))
        assert 0 <= line["peak_side"]["mean"] <= 1
    assert "published" not in content["lines"][0]  # the numbers would not be comparable
    assert {line["label"] for line in content["trivial"]} >= {"centered disc", "full frame"}
    assert "±" in capsys.readouterr().out
    assert "| plain |" in (out / "plain.md").read_text()


def test_a_base_may_bound_the_seeds(pairs, tables):
    bases = {"tiny": {**BASES["tiny"], "sspl": {"seeds": 1, **BASES["tiny"]["sspl"]}}}
    (tables / "bases.yaml").write_text(yaml.safe_dump({**BASES, **bases}))
    content = results.reproduce_table(plan(pairs, seeds=2), lambda line: None)
    assert [len(line["seeds"]) for line in content["lines"]] == [1, 2]
    assert [row[2] for row in results.as_table(content).rows[:2]] == ["1", "2"]


def test_the_table_of_steps_keeps_what_every_validation_said(pairs, tables):
    whole = plan(pairs, name="steps")
    content = results.reproduce_table(whole, lambda line: None)
    seed = content["lines"][0]["seeds"][0]
    log = json.loads((whole.runs / seed["run"] / "result.json").read_text())["epochs"]
    assert seed["validations"]["step"] == [line["step"] for line in log] == [20, 40, 60, 80]
    assert seed["validations"]["ciou"] == pytest.approx(
        [line["val_ciou"] for line in log], abs=1e-4
    )
    assert set(seed["validations"]) == {"step", "z_std", "ciou", "auc", "duets"}
    folder = whole.runs / seed["run"]
    upside_down = runs.score_run(folder, whole.test_set, inverted=True).inverted
    assert content["lines"][0]["inverted"]["mean"] == ciou_at(upside_down)
    scenes, truths = runs.scenes_of(whole.test_set.benchmarks[0], whole.test_set)
    maps = runs.maps_of(runs.predictions.open_model(folder), whole.test_set, scenes)
    assert upside_down == pytest.approx(score(1 - maps, truths)["sspl"])
    assert "cIoU, inverted map" in results.as_table(content).header
    assert (seed["step"], seed["steps"]) == (max(log, key=lambda x: x["val_ciou"])["step"], 80)


def test_a_bench_ranks_the_methods_and_says_what_they_cost(pairs, tables):
    table = yaml.safe_load((tables / "plain.yaml").read_text())
    (tables / "bench.yaml").write_text(yaml.safe_dump(table | {"bench": True}))
    content = results.reproduce_table(plan(pairs, name="bench"), lambda line: None)
    plain, _ = content["lines"]
    c_v, c_a = 512, 1024
    assert plain["parameters"] > c_a * c_v  # g, without the projector that only training needs
    assert plain["ms"] > 0
    assert plain["no_source_f1"] is None  # the threshold is chosen on val, which is the test here
    assert plain["protocols"]["sspl"] == pytest.approx(
        [plain["ciou"]["mean"], plain["auc"]["mean"]]
    )
    ranked = [line for line in content["lines"] + content["trivial"] if "mean_rank" in line]
    mean = np.mean([line["mean_rank"] for line in ranked])
    assert mean == pytest.approx((len(ranked) + 1) / 2)  # ranks always add up to this
    assert "oracle ceiling" not in {line["label"] for line in ranked}
    shown = results.as_table(content)
    assert shown.header[-4:] == ("mean rank", "no source, F1", "parameters", "ms")
    assert {len(row) for row in shown.rows} == {len(shown.header)}


def test_ranks_by_hand():
    scores = {"best": [0.9, 0.5], "even": [0.4, 0.5], "last": [0.4, 0.1], "oracle ceiling": [1, 1]}
    lines = [{"label": name, "protocols": {"sspl": value}} for name, value in scores.items()]
    results._add_mean_ranks(lines)
    assert [line.get("mean_rank") for line in lines] == [1.25, 2.0, 2.75, None]


def forget_records(whole):
    """So that the folders of the runs are needed."""
    shutil.rmtree(records_of(whole))


def test_a_second_call_trains_nothing(pairs, tables, monkeypatch):
    first = results.reproduce_table(plan(pairs), lambda line: None)
    forget_records(plan(pairs))

    def refuse(*arguments):
        raise AssertionError("trained again")

    monkeypatch.setattr(runs, "train", refuse)
    again = results.reproduce_table(plan(pairs), lambda line: None)
    assert again["lines"] == first["lines"]


def test_tables_share_their_runs(pairs, tables, tmp_path):
    for name in ("plain", "success"):
        results.reproduce_table(plan(pairs, tmp_path / "runs", name), lambda line: None)
    folders = {path.name for path in (tmp_path / "runs").iterdir()} - {RECORDS}
    assert len(folders) == 2
    known = {path.stem for path in (tmp_path / "runs" / RECORDS).glob("*.json")}
    assert known - folders == {name for name in known if name.startswith("trivial-")}


def test_a_run_that_was_cut_short_is_taken_up_again(pairs, tables, tmp_path):
    whole = plan(pairs, tmp_path / "runs")
    results.reproduce_table(whole, lambda line: None)
    folder = next((tmp_path / "runs").glob("sspl-*"))
    before = json.loads((folder / "result.json").read_text())["epochs"]
    (folder / "result.json").unlink()
    forget_records(whole)
    results.reproduce_table(whole, lambda line: None)
    after = json.loads((folder / "result.json").read_text())["epochs"]
    assert after == before


def test_guidance_changes_the_scores_of_the_same_run(pairs, tables):
    whole = plan(pairs)
    entry = results.reproduce_table(whole, lambda line: None)["lines"][1]
    folder = whole.runs / entry["seeds"][0]["run"]
    unguided = runs.score_run(folder, whole.test_set)
    guided = runs.score_run(folder, whole.test_set, guidance=0.25)
    assert entry["seeds"][0]["auc"] == pytest.approx(auc(guided.ciou))
    assert not np.allclose(unguided.ciou, guided.ciou)


def test_the_published_column_is_for_the_papers_data(tiny_pairs):
    def key(name, count, benchmark):
        many = dataclasses.replace(tiny_pairs, name=name, pairs=(tiny_pairs.pairs[0],) * count)
        return experiments.published_key(many, benchmark)

    assert key("flickr", 10_000, "flickr249") == "flickr10k/flickr"
    assert key("vggsound", 143_500, "vggss4692") == "vggsound144k/vggss"
    assert key("vggsound", 10_000, "flickr249") == "vggsound10k/flickr"
    assert key("flickr", 10_400, "flickr249") == "flickr10k/flickr"
    assert key("flickr", 10_600, "flickr249") is None
    assert key("flickr", 10_000, "avs-s4") is None
    assert key("escvoc", 10_000, "flickr249") is None
    main = {line.label: line.published for line in experiments.find_table("main").lines}
    assert main["SSPL (w/o PCM)"]["vggsound10k/flickr"] == [0.699, 0.572]
    assert main["SSPL (w/o PCM)"]["vggsound10k/vggss"] == [0.253, 0.335]


def test_the_printed_table_by_hand():
    line = {
        "label": "ours",
        "ciou": {"mean": 0.25, "std": 0.0625, "seeds": 2},
        "ciou_interval": {"low": 0.125, "high": 0.5},
        "auc": {"mean": 0.375, "std": None, "seeds": 1},
        "gflops": 47.62,
        "published": {"ciou": 0.743, "auc": 0.587},
        "original": {"ciou": 0.582, "auc": 0.525},
        "seeds": [{"steps": 3900}, {"steps": 3900}],
    }
    disc = {"label": "disc", "ciou": 0.1, "auc": 0.2, "ciou_interval": {"low": 0.0, "high": 0.3}}
    content = {
        "title": "Table",
        "note": "Note.",
        "data": "flickr",
        "benchmarks": ["flickr249"],
        "protocol": "sspl",
        "quick": False,
        "lines": [line],
        "trivial": [disc],
    }
    made = results.as_table(content)
    scores = "cIoU", "95 % interval", "AUC", "GFLOPs"
    quoted = "paper cIoU", "paper AUC", "original cIoU", "original AUC"
    assert made.header == ("", "steps", "seeds", *scores, *quoted)
    ours = "0.250 ± 0.062", "0.125–0.500", "0.375", "47.6", "0.743", "0.587", "0.582", "0.525"
    assert made.rows == (
        ("ours", "3,900", "2", *ours),
        ("disc", "–", "–", "0.100", "0.000–0.300", "0.200", *"–––––"),
    )


@pytest.mark.parametrize("name", ["success", "steps", "examples"])
def test_figures_are_drawn(pairs, tables, tmp_path, name):
    results.write_table(plan(pairs, name=name), tmp_path / "out", lambda line: None)
    if name != "examples":
        pytest.importorskip("matplotlib")
        assert "</svg>" in (tmp_path / "out" / f"{name}.svg").read_text()
    else:
        sheet = Image.open(tmp_path / "out" / "examples.png")
        assert sheet.size == sheet_size(columns=3, rows=5)  # frame and two lines, all five pairs


def test_scores_are_those_of_the_evaluation(pairs, tables):
    whole = plan(pairs)
    entry = results.reproduce_table(whole, lambda line: None)["lines"][0]["seeds"][0]
    folder = whole.runs / entry["run"]
    job = EvaluationRequest(("escvoc-val",), (str(folder),), pairs.root)
    row = next(row for row in run_evaluation(job).results[0].rows if row.protocol == "sspl")
    assert (entry["ciou"], entry["auc"]) == pytest.approx((row.ciou, row.auc))
    assert ciou_at(runs.score_run(folder, whole.test_set).ciou) == entry["ciou"]


def test_bad_requests_get_a_sentence(pairs, tables, tmp_path):
    with pytest.raises(SoundspotError, match="did you mean 'plain'"):
        experiments.find_table("plane")
    with pytest.raises(SoundspotError, match="--benchmark"):
        runs.choose_test_set(pairs, None, (), None)
    with pytest.raises(SoundspotError, match="--seeds 0"):
        results.write_table(plan(pairs, seeds=0), tmp_path / "out", lambda line: None)
    for wrong in (["escvoc-duets-val"], ["escvoc-val", "escvoc"]):
        with pytest.raises(SoundspotError, match="expected one benchmark and, after it, its duets"):
            runs.choose_test_set(pairs, pairs.root, wrong, None)
    untestable = runs.choose_test_set(pairs, pairs.root, ["vggss"], tmp_path)
    with pytest.raises(SoundspotError):
        results.reproduce_table(
            dataclasses.replace(plan(pairs, tmp_path / "new"), test_set=untestable),
            lambda line: None,
        )
    assert not (tmp_path / "new").exists()  # nothing was trained for it
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SoundspotError, match="is a file"):
        results.write_table(plan(pairs), file, lambda line: None)


def test_a_part_of_the_test_set_is_named_and_keeps_all_baselines(pairs, tables):
    said = []
    found = results.reproduce_table(plan(pairs), said.append)
    part = "5 of the 331 pairs of escvoc-val"
    assert part in found["coverage"] and part in said[0]
    assert f"(only {part}" in results.as_table(found).note
    assert "image saliency" in [line["label"] for line in found["trivial"]]


def test_a_batch_larger_than_the_set_is_refused_before_encoding(pairs, tables, tmp_path, capsys):
    for table in tables.glob("*.yaml"):
        table.write_text(table.read_text().replace("batch: 4", "batch: 400"))
    said = []
    with pytest.raises(SoundspotError, match="fewer than one batch of 400; give a larger set"):
        results.reproduce_table(plan(pairs, tmp_path / "new"), said.append)
    assert not (tmp_path / "new").exists() and not any("views" in line for line in said)


def test_a_damaged_result_is_named(pairs, tables, tmp_path):
    whole = plan(pairs, tmp_path / "runs")
    results.reproduce_table(whole, lambda line: None)
    forget_records(whole)
    path = next((tmp_path / "runs").glob("sspl-*/result.json"))
    for damage in ("{", "[]", "{}", '{"epochs": []}', "[" * 9999):
        path.write_text(damage)
        with pytest.raises(SoundspotError, match="result.json is damaged.*to train it again"):
            results.reproduce_table(whole, lambda line: None)


@pytest.mark.parametrize("text", ["{", "[1]", "7", "{}", "[" * 99_999])
def test_results_of_others_are_refused(tmp_path, text):
    (tmp_path / "fusion.json").write_text(text)
    with pytest.raises(SoundspotError, match="fusion.json (was not written by|has format None)"):
        results.read_results(tmp_path / "fusion.json")
