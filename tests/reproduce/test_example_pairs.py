import numpy as np
from PIL import ImageFont

from soundspot.evaluation.annotations import BenchmarkItem
from soundspot.reproduce import examples
from soundspot.reproduce.examples import SIDE, Column, Examples, choose_pairs, fit, sheet_size


def test_pairs_stand_at_quantiles_of_the_mean_score():
    mine = np.array([0.0, 0.9, 0.2, 0.5, 0.7, 0.1])
    theirs = np.array([0.1, 0.7, 0.2, 0.5, 0.9, 0.0])
    # Means: 0.05, 0.8, 0.2, 0.5, 0.8, 0.05; from the highest: 1, 4, 3, 2, 0, 5.
    assert choose_pairs(np.stack([mine, theirs]), 3) == [4, 2, 5]
    assert choose_pairs(np.stack([mine, theirs]), 9) == [1, 4, 3, 2, 0, 5]


def test_the_page_and_the_picture_show_every_line(tiny_pairs, tmp_path):
    pairs = tiny_pairs.select("val")
    scenes = [BenchmarkItem(p.id, p.frame, p.audio, p.boxes, p.cls) for p in pairs]
    rng = np.random.default_rng(0)
    columns = [
        Column(label, rng.random((5, 14, 14), dtype=np.float32), np.linspace(0, top, 5))
        for label, top in (("first", 0.8), ("a <second> line with a name that is too long", 0.4))
    ]
    head = {
        "table": "mine",
        "title": "Fig. 5",
        "note": "A note.",
        "data": "tiny",
        "command": "soundspot reproduce mine",
        "commit": "abc",
        "data_fingerprint": "123",
    }
    shown = Examples(tiny_pairs, scenes, columns, "cIoU", absent=("a third",))
    page = examples.write_examples(shown, head, tmp_path).read_text()
    assert (tmp_path / "mine.png").exists()
    assert page.count("data:image/jpeg") == 3 * 5
    assert "a &lt;second&gt; line" in page
    assert ">high, mean 0.60</th>" in page  # of 0.8 and 0.4
    assert "no trained run was found: a third." in page
    assert page.index("val-4") < page.index("val-0")  # the best first
    assert examples.draw_sheet(shown).size == sheet_size(columns=3, rows=5)


def test_labels_take_at_most_two_lines():
    font = ImageFont.load_default(size=14)
    assert fit("SSPL (w/ PCM)", font) == ["SSPL (w/ PCM)"]
    assert fit("contrastive + object guidance", font) == ["contrastive + object", "guidance"]
    first, second = fit("a line whose name is much too long to be written on two lines", font)
    assert first == "a line whose name is" and second.endswith("...")
    (only,) = fit("W" * 40, font)
    assert only.endswith("W...") and all(font.getlength(x) <= SIDE for x in (first, second, only))
