import json
import re
from dataclasses import replace

import numpy as np
import pytest

from made_files import save_maps
from soundspot.common.errors import SoundspotError
from soundspot.evaluation import report
from soundspot.evaluation.benchmarks import find_benchmark
from soundspot.evaluation.evaluate import evaluate
from soundspot.evaluation.metrics import union_map
from soundspot.evaluation.report import run_facts
from soundspot.evaluation.report.html import as_data_url, extremes, html_page, pair_picture
from soundspot.evaluation.report.tables import Table, detail_tables, headline_tables, overview


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory, tiny_pairs):
    """Perfect maps and turned ones on the tiny pairs and its duet."""
    root = tmp_path_factory.mktemp("maps")
    pairs = tiny_pairs.select("val") + tiny_pairs.select("duets-val")
    truths = {pair.id: union_map(pair.boxes[0]) for pair in pairs}
    turned = {id: truth[:, ::-1] for id, truth in truths.items()}
    folders = save_maps(root / "perfect", truths), save_maps(root / "<b>turned", turned)
    names = ("escvoc-val", "escvoc-duets-val")
    return evaluate([], names, data=tiny_pairs.root, maps=folders)


def test_both_files_are_written_whole(tmp_path, evaluation):
    report.write_report(evaluation, tmp_path / "new" / "report")
    files = sorted(path.name for path in (tmp_path / "new" / "report").iterdir())
    assert files == ["report.html", "report.json"]


def test_json_rows_hold_what_is_promised(tmp_path, evaluation):
    report.write_report(evaluation, tmp_path)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    values = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    row = values["rows"][0]
    assert (row["benchmark"], row["protocol"], row["n"], row["missing"]) == (
        "escvoc-val",
        "sspl",
        5,
        326,
    )
    assert row["ciou"] == row["ciou_low"] == row["auc_high"] == 1.0
    duet = next(r for r in values["rows"] if r["benchmark"] == "escvoc-duets-val")
    assert duet["peak_side"] == duet["both_sides"] == duet["peak_in_box"] == duet["iiou"] == 1.0
    assert values["provenance"]["protocols"]["lvs"] == "map > median"
    assert values["provenance"]["commit"]
    details = values["benchmarks"][0]
    assert (details["expected"], details["evaluated"], details["lost"]) == (331, 5, 326)
    assert len(details["success_curves"]["thresholds"]) == 21


def test_the_page_asks_for_nothing_and_escapes_names(evaluation):
    html = html_page(evaluation, run_facts(evaluation))
    assert not re.search(r'(?:src|href)="(?!data:)', html)
    assert not re.search(r"url\(|@import|<script|<link", html)
    assert "<b>turned" not in html and "&lt;b&gt;turned" in html
    assert "evaluated 5 of 331 pairs" in html
    for heading in ("Success ratio", "Best, median and worst", "By class", "By obj"):
        assert heading in html
    assert html.count("<table") == html.count("</table>")


def test_object_sizes_are_told_by_the_truths_share(evaluation):
    sizes = next(t for t in detail_tables(evaluation.results[0]) if t.title == "By object size")
    # Every tiny object covers 96 x 128 of 256 x 256 pixels: 18.75 %; the last one reaches the edge.
    assert [(row[0], row[1]) for row in sizes.rows] == [
        ("small, < 10%", "0"),
        ("medium, 10% to 50%", "5"),
        ("large, > 50%", "0"),
    ]
    assert sizes.rows[0][2] == "–" and sizes.rows[1][2] == "100.0 / 100.0"


def test_classes_have_their_own_rows(evaluation):
    classes = next(t for t in detail_tables(evaluation.results[0]) if t.title == "By class")
    assert [row[:3] for row in classes.rows] == [
        ("high", "3", "100.0 / 100.0"),
        ("low", "2", "100.0 / 100.0"),
    ]


def test_a_hard_benchmark_shows_its_kinds_at_once(evaluation):
    first = evaluation.results[0]
    hard = replace(first, benchmark=find_benchmark("escvoc-hard-val"))
    assert "By kind" in [table.title for table in headline_tables(hard)]
    assert "By class" not in [table.title for table in detail_tables(hard)]
    assert "By kind" not in [table.title for table in headline_tables(first)]


def test_one_table_has_every_contender_on_every_benchmark(evaluation):
    first = evaluation.results[0]
    other = replace(first, benchmark=find_benchmark("escvoc"), rows=first.rows[:-1])
    table = overview([first, other])
    assert table.header == ("model", first.benchmark.name, "escvoc")
    assert {row[0] for row in table.rows} == {contender.name for contender in first.contenders}
    assert all(" / " in row[1] for row in table.rows)


def test_comparisons_name_the_better_model(evaluation):
    tables = headline_tables(evaluation.results[0])
    tests = next(table for table in tables if table.title.endswith("paired tests"))
    assert all(row[2].startswith("+") for row in tests.rows)


def test_a_bar_in_a_name_does_not_break_markdown():
    table = Table("t", "n", ("a", "b"), (("x|y", "1\n2"),))
    assert table.markdown().splitlines()[-1] == "| x\\|y | 1<br>2 |"


def test_extremes_do_not_repeat_pairs():
    scores = np.array([0.5, 0.1, 0.9, 0.3, 0.7, 0.2, 0.8])
    chosen = {name: indices.tolist() for name, indices in extremes(scores, 4).items()}
    assert chosen == {"Best": [2, 6], "Median": [4, 0], "Worst": [1, 5]}
    assert [chosen.tolist() for chosen in extremes(np.array([0.5]), 4).values()] == [[0]] * 3


def test_a_pair_becomes_a_picture_of_its_own():
    frame = np.full((17, 29, 3), 90, dtype=np.uint8)
    heat = np.random.default_rng(0).random((5, 7), dtype=np.float32)
    picture = pair_picture(frame, heat, [(0.1, 0.1, 0.5, 0.5), (0.9, 0.9, 0.9, 0.9)], side=64)
    assert picture.size == (64, 64)
    assert as_data_url(picture).startswith("data:image/jpeg;base64,")
    assert picture != pair_picture(frame, heat, [], side=64)


def test_a_file_is_no_place_for_a_report(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SoundspotError):
        report.check_folder(tmp_path / "file")
