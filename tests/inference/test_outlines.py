"""outlines.py: which mask, its pixels, its borders; and the demo's dog by the real network."""

import json
import logging
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import soundspot
from soundspot.encoders import weights
from soundspot.encoders.mobile_sam import DIM, STRIDE, Masks, MobileSAM
from soundspot.inference import files, outlines
from soundspot.inference.outlines import (
    MASK_STRIDE,
    Outliner,
    choose,
    glow,
    polygons,
    run_lengths,
    tidy,
    two_points,
)
from soundspot.inference.result import Localization

CPU = torch.device("cpu")


def grid(*rows: str) -> np.ndarray:
    return np.array([[c == "#" for c in row] for row in rows])


class Drawn(MobileSAM):
    """A network that sees nothing and offers the same mask for every prompt."""

    def __init__(self, left: int, right: int) -> None:
        nn.Module.__init__(self)
        self.columns = slice(left, right)

    def embed(self, pixels: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(pixels), DIM, *(n // STRIDE for n in pixels.shape[2:]))

    def decode(self, embedding: torch.Tensor, points: torch.Tensor) -> Masks:
        h, w = (n * STRIDE // MASK_STRIDE for n in embedding.shape[2:])
        logits = torch.full((1, 3, h, w), -5.0)
        logits[..., self.columns] = 5
        return Masks(logits, torch.tensor([[0.5, 0.9, 0.7]]))

    decode_box = decode


# --- the choice ---


def test_the_mask_that_holds_the_heat_and_little_else_is_chosen() -> None:
    heat = np.array([[1, 0.5, 0], [0.5, 0, 0]], np.float32)
    masks = np.stack(
        [
            grid("#..", "..."),  # inside 1, holds 1 of 2: 0.5
            grid("##.", "#.."),  # inside 2 / 3, holds all: 0.67
            grid("###", "###"),  # inside 2 / 6, holds all: 0.33
            grid("...", "..."),
        ]
    )
    assert choose(masks, np.array([0.8, 0.8, 0.8, 1.0], np.float32), heat) == 1
    assert choose(masks, np.array([0.8, 0.5, 0.8, 1.0], np.float32), heat) == 0
    # Beside the heat, or nearly so: none.
    assert choose(grid("..#", ".##")[None], np.array([1.0], np.float32), heat) is None


def test_the_points_are_the_peak_and_the_middle_of_the_hot_heat() -> None:
    heat = np.array([[0.4, 0.5, 0, 1.0], [0, 0.5, 0, 0]], np.float32)
    (x1, y1), (x2, y2) = two_points(heat)
    assert (x1, y1) == (3, 0)
    assert (x2, y2) == (2, 0.25)  # (0.5 + 0.5 + 3) / 2, 0.5 / 2


# --- the mask ---


@pytest.mark.parametrize("size", [(1, 1), (37, 53), (2500, 1), (1700, 2100)])
def test_a_mask_has_the_size_of_its_frame(size: tuple[int, int]) -> None:
    outliner = Outliner(Drawn(0, 90), CPU)
    seen = outliner.see(np.zeros((*size, 3), np.uint8))
    similarity = np.zeros((14, 14), np.float32)
    similarity[3:8, :9] = 1
    mask = outliner.outline(seen, similarity)
    assert mask.shape == size
    if min(size) > 1:  # 90 of 168 columns, or of fewer in a narrower picture
        expected = 90 / 168 * max(size) / size[1]
        assert mask.mean() == pytest.approx(expected, abs=0.02)


def test_a_flat_map_or_a_mask_elsewhere_gives_none() -> None:
    outliner = Outliner(Drawn(130, 168), CPU)
    seen = outliner.see(np.zeros((32, 32, 3), np.uint8))
    assert outliner.outline(seen, np.full((7, 7), 0.3, np.float32)) is None
    left = np.zeros((7, 7), np.float32)
    left[:, :2] = 1
    assert outliner.outline(seen, left) is None
    assert outliner.outline(seen, left[:, ::-1].copy()) is not None
    tiny = outliner.see(np.zeros((1, 1, 3), np.uint8))  # its one pixel is not in the mask
    assert outliner.outline(tiny, left[:, ::-1].copy()) is None


def test_crumbs_and_pinholes_are_tidied_away() -> None:
    mask = grid(
        "#####...",
        "#####..#",  # a crumb
        "##.##...",  # a pinhole
        "#####...",
    )
    expected = grid(*["#####..."] * 4)
    np.testing.assert_array_equal(tidy(mask), expected)
    # A second thing, or a hole, of more than a tenth of the mask is none.
    large = grid("####..##", "####..##", "#..#....", "####....")
    for mask in (large, grid("...", "..."), grid("##")):
        np.testing.assert_array_equal(tidy(mask), mask)


def test_the_glow_is_hot_inside_and_its_contour_is_the_mask() -> None:
    mask = np.zeros((300, 500), bool)
    mask[60:240, 100:300] = True
    heat = glow(mask, np.array([[1, 0.0]], np.float32))
    assert heat.shape == mask.shape
    assert ((heat >= 0.5) != mask).mean() < 0.001  # its corners are rounded
    assert heat[150, 110] > heat[150, 290] > 0.5  # hotter where the map is
    assert heat[150, 320] < 0.01
    assert glow(np.ones((2000, 3000), bool), np.zeros((2, 2), np.float32)).shape == (640, 960)


# --- other forms of a mask ---


def area(polygon: list[tuple[int, int]]) -> float:
    around = [*polygon, polygon[0]]
    return sum(x1 * y2 - x2 * y1 for (x1, y1), (x2, y2) in pairwise(around)) / 2


def test_polygons_by_hand() -> None:
    (square,) = polygons(grid("....", ".##.", ".##."))
    assert sorted(square) == [(1, 1), (1, 3), (3, 1), (3, 3)]
    assert area(square) == 4
    assert polygons(grid("..", "..")) == []
    ring = polygons(grid("###", "#.#", "###"))
    assert sorted(area(border) for border in ring) == [-1, 9]
    corners = polygons(grid("#.", ".#"))  # they touch in one point
    assert sum(area(border) for border in corners) == 2


def test_the_areas_of_all_polygons_add_up_to_the_mask() -> None:
    rng = np.random.default_rng(0)
    for density in (0.2, 0.5, 0.8):
        mask = rng.random((17, 23)) < density
        assert sum(area(border) for border in polygons(mask)) == mask.sum()


def test_run_lengths_are_cocos() -> None:
    # Column by column, outside first.
    assert run_lengths(grid(".##", ".#.")) == {"size": [2, 3], "counts": [2, 3, 1]}
    assert run_lengths(grid("##", "#.")) == {"size": [2, 2], "counts": [0, 3, 1]}
    assert run_lengths(grid("..", "..")) == {"size": [2, 2], "counts": [4]}


# --- the result ---

SEEN = Localization(
    np.array([[0.9, 0.1], [0.1, 0.1]], np.float32),
    [],
    "m",
    threshold=0.3,
    frame=np.zeros((4, 6, 3), np.uint8),
    waveform=np.ones(48_000, np.float32),
)
MASK = grid("......", ".##...", ".###..", "......")


def test_the_box_of_a_result_is_its_masks(tmp_path) -> None:
    result = replace(SEEN, mask=MASK)
    assert result.box == (1, 1, 4, 3)
    assert sum(area(border) for border in result.outline) == 5
    result.save_mask(tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as image:
        np.testing.assert_array_equal(np.asarray(image.convert("L")) == 255, MASK)
    result.save_json(tmp_path / "a.json")
    summary = json.loads((tmp_path / "a.json").read_text())
    assert summary["mask"] == run_lengths(MASK)
    assert summary["box"] == [1, 1, 4, 3]


def test_without_a_mask_the_map_has_to_serve(tmp_path) -> None:
    assert SEEN.box == (0, 0, 3, 2)
    assert SEEN.outline == []
    assert SEEN.summary()["mask"] is None
    SEEN.save_mask(tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as image:
        assert image.size == (6, 4)
        assert not np.asarray(image).any()


def test_a_result_stored_before_there_were_masks_can_be_read() -> None:
    old = SEEN.__getstate__()
    del old["mask"]
    result = Localization.__new__(Localization)
    result.__dict__.update(old)
    assert result.mask is None
    assert result.box == SEEN.box


def test_only_what_is_visible_is_outlined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "load_outliner", lambda device: Outliner(Drawn(0, 60), CPU))
    assert files.add_mask(SEEN, CPU).mask.any()
    for other in (replace(SEEN, threshold=0.95), replace(SEEN, threshold=None)):
        assert files.add_mask(other, CPU).mask is None


def test_without_the_weights_there_is_a_map_and_a_warning(monkeypatch, tmp_path, caplog):
    """The weights are absent, then torn in the cache, and cannot be fetched."""
    outlines.load_outliner.cache_clear()
    monkeypatch.setenv("SOUNDSPOT_CACHE", str(tmp_path))
    monkeypatch.setenv("SOUNDSPOT_OFFLINE", "1")
    for state in ("absent", "damaged"):
        if state == "damaged":
            file = weights.product(outlines.WEIGHTS)
            file.parent.mkdir(parents=True)
            file.write_bytes(b"torn")
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            result = files.add_mask(SEEN, CPU)
        assert result.mask is None
        assert result.box == SEEN.box
        assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.slow
@pytest.mark.weights
def test_the_real_network_outlines_the_demos_dog() -> None:
    photo, bark = weights.media("demo-dog-photo"), weights.media("demo-dog-bark")
    result = soundspot.localize(photo, bark)
    plain = soundspot.localize(photo, bark, outline=False)
    assert plain.mask is None
    assert result.mask.shape == result.frame.shape[:2]
    assert 0.02 < result.mask.mean() < 0.6
    y, x = np.unravel_index(result.map.argmax(), result.map.shape)
    assert result.mask[y - 20 : y + 20, x - 20 : x + 20].any()
