"""Records of runs: tables without data or training, and what happens to records that do not fit."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.metrics import THRESHOLDS, success_curve
from soundspot.reproduce import records, results, runs

SHIPPED = Path(__file__).parents[2] / "results" / "reproduce" / "records.jsonl.gz"
pytestmark = pytest.mark.usefixtures("tables", "thin_vgg16")


def quiet(line):
    pass


def without_media(plan):
    return replace(plan, media=None)


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


def test_the_table_of_records_is_that_of_the_runs(make_plan, tmp_path):
    here = make_plan("full", tmp_path / "here")
    table = results.reproduce_table(here, quiet)
    assert not table.not_run and (here.records.parent).is_dir()
    # Elsewhere: the records alone.
    there = replace(without_media(here), runs=tmp_path / "there")
    assert results.reproduce_table(there, quiet) == table
    assert not there.runs.exists()
    # A table that asks for less shows no more than it would by itself.
    plain = results.reproduce_table(replace(there, name="plain"), quiet).lines[0]
    assert plain.inverted is plain.gflops is plain.ms is None
    assert "validations" not in plain.seeds[0]


def test_records_name_their_data_and_test_set(make_plan, keep, tmp_path):
    plan = make_plan(folder=tmp_path)
    benchmarks = plan.tested_on.benchmarks
    with pytest.raises(SoundspotError):
        runs.find_recorded(plan.records, Path("nowhere/tiny"), benchmarks)
    keep(plan)
    data, tested_on = runs.find_recorded(plan.records, Path("nowhere/tiny"), benchmarks)
    assert (data.name, data.fingerprint) == ("tiny", plan.data.fingerprint)
    assert tested_on == plan.tested_on
    with pytest.raises(SoundspotError):
        runs.find_recorded(plan.records, Path("nowhere/other"), benchmarks)
    keep(plan, 1, tested_fingerprint="0")
    with pytest.raises(SoundspotError):  # which of the two versions?
        runs.find_recorded(plan.records, Path("nowhere/tiny"), benchmarks)


def test_what_is_recorded_is_shown_and_the_rest_is_named(make_plan, keep, tmp_path, capsys):
    plan = without_media(make_plan(folder=tmp_path, seeds=3))
    keep(plan, seed=0, inverted=(0.0,) * 5)  # more than this table shows
    keep(plan, seed=2, ciou=0.4)
    said = []
    results.write_table(plan, tmp_path / "out", said.append)
    found = results.read_results(tmp_path / "out" / "plain.json")
    (line,) = found.lines
    assert [(seed["seed"], seed["ciou"]) for seed in line.seeds] == [(0, 0.6), (2, 0.0)]
    assert line.ciou.mean == pytest.approx(0.3) and line.inverted is None
    assert found.not_run == ("guided",) and "Not run: guided." in said
    assert results.as_markdown(found).endswith("|\n\nNot run: guided.\n")
    assert found.trivial == ()  # nothing is known of them without data
    with pytest.raises(SoundspotError):
        results.reproduce_table(replace(plan, records=tmp_path / "none"), quiet)


def test_only_the_lines_asked_for_are_trained(make_plan, tmp_path):
    plan = make_plan(folder=tmp_path, lines=("plain",))
    found = results.reproduce_table(plan, quiet)
    assert [line.label for line in found.lines] == ["plain"] and found.not_run == ("guided",)


def test_scores_stay_beside_those_on_another_test_set(make_plan, keep, tmp_path):
    plan = make_plan(folder=tmp_path)
    keep(plan, benchmarks=("flickr249",))
    second = keep(plan)
    kept = records.read_records(plan.records)
    assert {scores.benchmarks[0] for scores in kept} == {"flickr249", "escvoc-val"}
    # Those of the same run, trained again, take the place of both.
    again = keep(plan, provenance={**second.provenance, "commit": "later"})
    assert records.read_records(plan.records) == [again]


def test_the_same_records_give_the_same_bytes(make_plan, keep, tmp_path):
    plan = make_plan(folder=tmp_path)
    keep(plan), keep(plan, 1)
    before = plan.records.read_bytes()
    records.write_records(plan.records, records.read_records(plan.records)[::-1])
    assert plan.records.read_bytes() == before
    assert gzip.decompress(before).count(b"\n") == 3


def test_a_run_of_a_setting_that_is_no_more_is_left_alone(make_plan, keep, tmp_path):
    plan = without_media(make_plan(folder=tmp_path))
    recipe = {**keep(plan).recipe, "method": "phrenology"}
    plan.records.unlink()
    keep(plan, recipe=recipe), keep(plan, 1)
    assert results.reproduce_table(plan, quiet).not_run == ("plain",)
    assert len(records.read_records(plan.records)) == 2


def changed(path, change):
    head, line = gzip.decompress(path.read_bytes()).splitlines()
    content = json.loads(line)
    change(content)
    path.write_bytes(gzip.compress(b"\n".join([head, json.dumps(content).encode()])))


DAMAGE = {
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:99]),
    "not compressed": lambda path: path.write_text("[]"),
    "of a later version": lambda path: path.write_bytes(gzip.compress(b'{"format": 9}')),
    "empty": lambda path: path.write_bytes(gzip.compress(b"")),
    "with a score too few": lambda path: changed(
        path, lambda record: record["by_protocol"]["sspl"].pop()
    ),
    "with text for a score": lambda path: changed(
        path, lambda record: record.update(duets=["high"])
    ),
    "without its data": lambda path: changed(
        path, lambda record: record["provenance"].pop("data_fingerprint")
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_records_get_a_sentence(make_plan, keep, tmp_path, kind):
    plan = make_plan(folder=tmp_path)
    keep(plan)
    DAMAGE[kind](plan.records)
    with pytest.raises(SoundspotError) as caught:
        records.read_records(plan.records)
    assert caught.value.code == "damaged" and str(plan.records) in str(caught.value)


def test_the_committed_records_are_readable():
    known = records.read_records(SHIPPED)
    assert {scores.label for scores in known if scores.run is None} <= {"joined-sspl"}  # it is gone
    assert {"centered disc", "image saliency"} <= {s.label for s in known if s.recipe is None}
    content = SHIPPED.read_bytes()
    assert len(content) < 2e6 and content[4:8] == bytes(4)  # no time in it
