import json

import pytest

from made_files import refused, save_maps
from soundspot.cli import main
from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.evaluation.benchmarks import BENCHMARKS, Benchmark
from soundspot.evaluation.metrics import union_map

BOX = ((0.25, 0.25, 0.75, 0.75),)


@pytest.fixture
def toy(monkeypatch) -> str:
    """A benchmark of four clips, two of them in the tiny pair set."""
    ids = ("val-0", "val-1", "clip_c", "clip_d")
    items = [BenchmarkItem(id, id, id, (BOX,)) for id in ids]
    monkeypatch.setitem(
        BENCHMARKS, "toy", Benchmark("toy", "Toy", 4, lambda folder: items, "clips")
    )
    return "toy"


def test_saved_maps_make_a_report(capsys, tmp_path, tiny_pairs):
    truths = {pair.id: union_map(pair.boxes[0]) for pair in tiny_pairs.select("val")}
    folder = save_maps(tmp_path / "maps", truths)
    arguments = ["--data", str(tiny_pairs.root), "--maps", str(folder), "-o", str(tmp_path / "out")]
    assert main(["evaluate", "--benchmark", "escvoc-val", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "evaluated 5 of 331 pairs" in shown and "centered disc" in shown
    assert "100.0 / 100.0" in shown  # a long name does not squeeze the numbers out
    assert str(tmp_path / "out" / "report.html") in shown
    rows = json.loads((tmp_path / "out" / "report.json").read_text())["rows"]
    assert rows[0]["ciou"] == 1.0


def test_several_benchmarks_may_be_named(capsys, tiny_pairs):
    names = ("escvoc-val", "escvoc-duets-val")
    words = [word for name in names for word in ("--benchmark", name)]
    assert main(["evaluate", "--trivial", *words, "--data", str(tiny_pairs.root)]) == 0
    shown = capsys.readouterr().out
    assert "escvoc-val: evaluated 5" in shown and "escvoc-duets-val: evaluated 2" in shown


def test_bad_evaluations_are_refused_in_one_sentence(capsys, tmp_path, monkeypatch, toy):
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'escvoc'" in refused(capsys, "evaluate", "--benchmark", "escvok")
    assert "baselines alone" in refused(capsys, "evaluate", "m", "--trivial", "--benchmark", toy)
    refused(capsys, "evaluate", "--outline", "--benchmark", toy)
    nowhere = ("--data", str(tmp_path / "nowhere"))
    assert "nowhere" in refused(capsys, "evaluate", "--benchmark", toy, *nowhere)
    assert "pair set" in refused(capsys, "evaluate", "--benchmark", "escvoc")
    missing = refused(capsys, "evaluate", "--benchmark", toy, "--maps", str(tmp_path / "none"))
    assert "no folder of maps" in missing
    here = ("--benchmark", toy, "--data", str(tmp_path))
    (tmp_path / "file").touch()
    assert "is a file" in refused(capsys, "evaluate", *here, "-o", str(tmp_path / "file"))


def test_an_unknown_model_is_refused(capsys, toy, tiny_pairs):
    here = ("--benchmark", toy, "--data", str(tiny_pairs.root), "--annotations", "/")
    assert "no model 'soundspott'" in refused(capsys, "evaluate", "soundspott", *here)


def test_audit_writes_a_clean_list(capsys, tmp_path, toy):
    (tmp_path / "train.txt").write_text("clip_c.mp4\nother\nval-1\n")
    arguments = ["audit", str(tmp_path / "train.txt"), "--benchmark", toy, "--annotations", "/"]
    assert main([*arguments, "-o", str(tmp_path / "clean.txt")]) == 0
    assert "2 of 4 items are in train.txt (3 items) by id" in capsys.readouterr().out
    assert (tmp_path / "clean.txt").read_text() == "other\n"
    assert main([*arguments, "--strict"]) == 2
    (tmp_path / "train.txt").write_text("other\n")
    assert main([*arguments, "--strict"]) == 0


def test_bad_audits_are_refused_in_one_sentence(capsys, tmp_path, toy):
    words = ("--benchmark", toy, "--annotations", "/")
    assert "no such file" in refused(capsys, "audit", str(tmp_path / "none.txt"), *words)
    words = ("--benchmark", "vgss", "--annotations", "/")
    assert "did you mean 'vggss'" in refused(capsys, "audit", "any.txt", *words)


@pytest.mark.shared_data
def test_vggss_baselines_need_no_media(capsys, shared_data):
    annotations = str(shared_data / "annotations")
    words = ["evaluate", "--trivial", "--benchmark", "vggss", "--annotations", annotations]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "evaluated 5,158 of 5,158 clips" in shown
    for numbers in ("33.9 / 37.4", "21.9 / 31.3", "50.5 / 49.5"):
        assert numbers in shown
