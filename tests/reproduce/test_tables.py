"""Tables end to end: what is trained, kept and shown."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.intervals import Interval, Spread
from soundspot.evaluation.metrics import auc, ciou_at
from soundspot.reproduce import experiments, figures, results, runs
from soundspot.reproduce.experiments import Line
from soundspot.reproduce.records import TableLine
from tests.reproduce.conftest import BASES

pytestmark = pytest.mark.usefixtures("thin_vgg16")


def quiet(line):
    pass


def reproduce(plan):
    return results.reproduce_table(plan, quiet)


def folder_of(plan, label):
    reproduce(plan)
    lines = {line.label: line for line in experiments.find_table(plan.name).lines}
    return plan.finished(lines[label], 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.table_names())
@pytest.mark.parametrize("corpus", ["escvoc", "flickr", "vggsound"])
def test_every_line_of_every_table_is_a_recipe(tiny_pairs, name, corpus):
    known = dataclasses.replace(tiny_pairs, name=corpus)
    lines = experiments.lines_for(experiments.find_table(name), known)
    for quick in (False, True):
        recipes = [experiments.recipe_of(line, known, 3, quick) for line in lines]
        assert all(recipe.train.seed == 3 for recipe in recipes)
        distinct = {(str(r), line.guidance) for r, line in zip(recipes, lines, strict=True)}
        assert len(distinct) == len(lines) == len({line.label for line in lines})


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


def test_published_numbers_stand_beside_scores_on_the_same_data(make_plan, keep, tables, tmp_path):
    plan = make_plan(folder=tmp_path, media=None)
    keep(plan, published="flickr10k/flickr")
    (line,) = reproduce(plan).lines
    assert line.published == (0.5, 0.4) and line.original is None
    keep(plan, published="flickr144k/flickr")
    assert reproduce(plan).lines[0].published is None


@pytest.mark.slow
def test_a_table_is_trained_tested_and_kept(make_plan, tables, tmp_path, capsys):
    out = tmp_path / "out"
    plan = make_plan(seeds=2)
    results.write_table(plan, out, quiet)
    found = results.read_results(out / "plain.json")
    assert [(line.label, len(line.seeds)) for line in found.lines] == [("plain", 2), ("guided", 2)]
    assert found.data_fingerprint == plan.data.fingerprint
    for line in found.lines:
        values = [seed["ciou"] for seed in line.seeds]
        assert line.ciou.mean == pytest.approx(np.mean(values))
        assert line.ciou.std == pytest.approx(np.std(values, ddof=1))
        assert 0 <= line.peak_side.mean <= 1 and line.published is None
    labels = {line.label for line in found.trivial}
    assert labels >= {"centered disc", "full frame", "image saliency"}
    assert "±" in capsys.readouterr().out
    assert "| plain |" in (out / "plain.md").read_text()
    part = "5 of the 331 pairs of escvoc-val"
    assert part in found.coverage and part in results.as_table(found).note


def test_a_second_call_trains_nothing(make_plan, tables, tmp_path, monkeypatch):
    plan = make_plan(folder=tmp_path / "runs")
    first = reproduce(plan)
    plan.records.unlink()  # so that the folders of the runs are needed
    monkeypatch.setattr(runs, "train", None)
    again = reproduce(plan)
    assert [line.seeds for line in again.lines] == [line.seeds for line in first.lines]
    # Tables share their runs.
    shared = reproduce(dataclasses.replace(plan, name="success"))
    assert [line.auc for line in shared.lines] == [line.auc for line in first.lines]


def test_a_base_may_bound_the_seeds(make_plan, tables):
    bases = {"tiny": {**BASES["tiny"], "sspl": {"seeds": 1, **BASES["tiny"]["sspl"]}}}
    (tables / "bases.yaml").write_text(json.dumps({**BASES, **bases}))
    found = reproduce(make_plan(seeds=2))
    assert [len(line.seeds) for line in found.lines] == [1, 2]


def test_the_table_of_steps_keeps_what_every_validation_said(make_plan, tables):
    plan = make_plan("steps")
    line = reproduce(plan).lines[0]
    folder = folder_of(plan, "plain")
    log = json.loads((folder / "result.json").read_text())["epochs"]
    logged = line.seeds[0]["validations"]
    assert logged["step"] == [1, 2] and set(logged) == {"step", "z_std", "ciou", "auc", "duets"}
    assert logged["ciou"] == pytest.approx([entry["val_ciou"] for entry in log], abs=1e-4)
    assert (line.seeds[0]["steps"], line.seeds[0]["step"]) == (
        2,
        max(log, key=lambda entry: entry["val_ciou"])["step"],
    )
    upside_down = np.array(runs.score_run(folder, plan.media).inverted)
    assert line.inverted.mean == ciou_at(upside_down)


def test_a_bench_ranks_the_methods_and_says_what_they_cost(make_plan, tables):
    found = reproduce(make_plan("full"))
    plain, _ = found.lines
    c_v, c_a = 512, 1024
    assert plain.parameters > c_a * c_v  # g, without the projector that only training needs
    assert plain.ms > 0 and plain.gflops > 0
    assert plain.no_source_f1 is None  # the threshold is chosen on val, which is the test here
    assert plain.protocols["sspl"] == pytest.approx((plain.ciou.mean, plain.auc.mean))
    ranked = [x.mean_rank for x in (*found.lines, *found.trivial) if x.mean_rank]
    assert np.mean(ranked) == pytest.approx((len(ranked) + 1) / 2)  # ranks always add up to this
    shown = results.as_table(found)
    assert {"mean rank", "parameters", "ms", "cIoU, inverted map"} <= set(shown.header)
    assert {len(row) for row in shown.rows} == {len(shown.header)}


def made_line(label, ciou=0.25, area=0.375, **more):
    scores = {"sspl": (ciou, area)}
    return TableLine(
        label, Spread(ciou, None, 1), Spread(area, None, 1), Interval(0.0, 1.0), scores, **more
    )


def test_ranks_by_hand():
    scores = {
        "best": (0.9, 0.5),
        "even": (0.4, 0.5),
        "last": (0.4, 0.1),
        "oracle ceiling": (1.0, 1.0),
    }
    lines = results.with_mean_ranks([made_line(name, *value) for name, value in scores.items()])
    assert [line.mean_rank for line in lines] == [1.25, 2.0, 2.75, None]
    # A protocol that a line was not scored by does not count.
    other = dataclasses.replace(lines[0], protocols={**lines[0].protocols, "new": (0.0, 0.0)})
    assert results.with_mean_ranks([other, *lines[1:]])[0].mean_rank == 1.25


def test_guidance_changes_the_scores_of_the_same_run(make_plan, tables):
    plan = make_plan()
    seed = reproduce(plan).lines[1].seeds[0]
    folder = folder_of(plan, "guided")
    guided = np.array(runs.score_run(folder, plan.media, guidance=0.25).by_protocol["sspl"])
    assert seed["auc"] == pytest.approx(auc(guided))
    assert guided.tolist() != list(runs.score_run(folder, plan.media).by_protocol["sspl"])


@pytest.mark.parametrize("name", ["success", "steps", "examples"])
def test_figures_are_drawn(make_plan, tables, tmp_path, name):
    pytest.importorskip("matplotlib")
    plan = make_plan(name)
    results.write_table(plan, tmp_path / "out", quiet)
    if name == "examples":
        wide, high = Image.open(tmp_path / "out" / "examples.png").size
        assert high > wide > 3 * figures.SIDE  # the frame and two lines, all five pairs
    else:
        assert "</svg>" in (tmp_path / "out" / f"{name}.svg").read_text()
    results.write_table(dataclasses.replace(plan, media=None), tmp_path / "again", quiet)
    assert (tmp_path / "again" / "examples.png").exists() is False  # maps need the runs


def test_pairs_stand_at_quantiles_of_the_mean_score():
    mine = np.array([0.0, 0.9, 0.2, 0.5, 0.7, 0.1])
    theirs = np.array([0.1, 0.7, 0.2, 0.5, 0.9, 0.0])
    # Means: 0.05, 0.8, 0.2, 0.5, 0.8, 0.05; from the highest: 1, 4, 3, 2, 0, 5.
    assert figures.choose_pairs(np.stack([mine, theirs]), 3) == [4, 2, 5]
    assert figures.choose_pairs(np.stack([mine, theirs]), 9) == [1, 4, 3, 2, 0, 5]


def test_bad_requests_get_a_sentence(make_plan, pairs, tables, tmp_path):
    table = experiments.find_table("plain")
    file = tmp_path / "file"
    file.write_text("")
    wrong = [
        lambda: experiments.find_table("plane"),
        lambda: experiments.check_lines(table, ["plain", "plane"]),
        lambda: experiments.recipe_of(Line("x", "magic"), pairs, 0, quick=False),
        lambda: runs.find_media(pairs.root, None, (), None),
        lambda: runs.choose_benchmarks("escvoc", ["escvoc-duets-val"]),
        lambda: runs.choose_benchmarks("escvoc", ["escvoc-val", "escvoc"]),
        lambda: results.write_table(make_plan(seeds=0), tmp_path / "out", quiet),
        lambda: results.write_table(make_plan(), file, quiet),
        lambda: runs.describe(runs.find_media(pairs.root, pairs.root, ["vggss"], tmp_path)),
    ]
    for ask in wrong:
        with pytest.raises(SoundspotError):
            ask()


def test_a_batch_larger_than_the_set_is_refused_before_encoding(make_plan, tables, tmp_path):
    bases = tables / "bases.yaml"
    bases.write_text(bases.read_text().replace('"batch": 4', '"batch": 400'))
    plan, said = make_plan(folder=tmp_path / "new"), []
    with pytest.raises(SoundspotError):
        results.reproduce_table(plan, said.append)
    assert not plan.runs.exists() and not any("views" in line for line in said)


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"epochs": []}', "[" * 9999])
def test_a_damaged_result_is_named(make_plan, tables, damage):
    plan = make_plan()
    path = folder_of(plan, "plain") / "result.json"
    kept = path.read_text()
    path.write_text(damage)
    try:
        with pytest.raises(SoundspotError) as caught:
            runs.score_run(path.parent, plan.media)
    finally:
        path.write_text(kept)
    assert caught.value.code == "damaged"


@pytest.mark.parametrize("text", ["{", "[1]", "7", "{}", '{"format": 2}', "[" * 99_999])
def test_results_of_others_are_refused(tmp_path, text):
    (tmp_path / "fusion.json").write_text(text)
    with pytest.raises(SoundspotError):
        results.read_results(tmp_path / "fusion.json")
