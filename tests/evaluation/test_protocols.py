import numpy as np
import pytest
import torch
import torch.nn.functional as F

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.protocols import (
    CHUNK,
    PROTOCOLS,
    Resize,
    evaluation_maps,
    is_flat,
    resize_maps,
    score,
)


def naive(maps, truths):
    """One map at a time, straight from the definitions."""
    size = truths.shape[-1]
    result = {name: [] for name in PROTOCOLS}
    for raw, g in zip(maps, truths.astype(float), strict=True):
        tensor = torch.from_numpy(raw)[None, None].double()

        def shown(mode="bilinear", corners=False, tensor=tensor):
            m = F.interpolate(tensor, (size, size), mode=mode, align_corners=corners)[0, 0].numpy()
            return (m - m.min()) / (m.max() - m.min())

        def upper_half(m):
            return m >= sorted(m.ravel())[m.size // 2]

        m = shown()
        median = sorted(m.ravel())[m.size // 2]
        top = np.zeros(m.size)
        top[np.argsort(-m.ravel(), kind="stable")[: int((g != 0).sum())]] = 1
        masks = {
            "sspl": m >= 0.5,
            "lvs": m > median,
            "ezvsl": upper_half(shown(corners=True)),
            "slavc": upper_half(shown("bicubic", corners=True)),
            "fnac": upper_half(shown("bicubic")),
            "adaptive": top.reshape(m.shape),
        }
        for name, p in masks.items():
            result[name].append((p * g).sum() / (g.sum() + (p * (g == 0)).sum()))
    return result


def binarize(name, maps, truths):
    protocol = PROTOCOLS[name]
    return protocol.keep(maps, protocol.level(maps, truths), truths)


def masks_of(name, *rows, area=0):
    """Binarize one small map against a truth of `area` pixels."""
    maps = evaluation_maps(np.array([rows], dtype=np.float64), len(rows))
    truth = (np.arange(len(rows) ** 2) < area).reshape(1, len(rows), len(rows))
    return binarize(name, maps, truth)[0].astype(int).tolist()


@pytest.mark.parametrize(("h", "w", "size"), [(13, 17, 29), (1, 1, 3), (31, 5, 7), (14, 14, 224)])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizes_are_those_of_the_released_evaluations(h, w, size, mode, corners):
    maps = np.random.default_rng(1).random((3, h, w), dtype=np.float32)
    expected = F.interpolate(
        torch.from_numpy(maps)[None].double(), (size, size), mode=mode, align_corners=corners
    )
    found = resize_maps(maps, size, Resize(mode == "bicubic", corners))
    np.testing.assert_allclose(found, expected[0].numpy(), atol=1e-5)


def test_maps_are_resized_with_aligned_centers_unless_a_paper_does_otherwise():
    plain = {name for name, protocol in PROTOCOLS.items() if protocol.resize == (False, False)}
    assert plain == {"sspl", "lvs", "adaptive"}


def test_papers_that_keep_the_median_differ_by_their_resize():
    maps = np.random.default_rng(0).random((20, 7, 7))
    truths = np.zeros((20, 224, 224), dtype=bool)
    truths[:, 40:140, 60:200] = True
    scores = score(maps, truths, ("ezvsl", "slavc", "fnac"))
    gaps = [np.abs(scores["ezvsl"] - scores[name]).max() for name in ("slavc", "fnac")]
    assert min(gaps) > 0.01 and list(scores) == ["ezvsl", "slavc", "fnac"]


def test_a_flat_map_is_told_and_stays_flat_through_the_resize():
    maps = np.array([[[-3.0, 1.0], [-1.0, 1.0]], [[0.3, 0.3], [0.3, 0.3]]])
    assert is_flat(maps).tolist() == [False, True]
    assert (evaluation_maps(maps[1:].astype(np.float32), 224) == 0).all()


COUNT = ([0, 1, 2], [3, 4, 5], [6, 7, 8])
STRIPE = ([0, 0, 0], [1, 1, 1], [0, 0, 0])
FLAT = ([5, 5, 5], [5, 5, 5], [5, 5, 5])
NOTHING = [[0, 0, 0]] * 3
ALL = [[1, 1, 1]] * 3


@pytest.mark.parametrize(
    ("name", "rows", "expected"),
    [
        ("sspl", COUNT, [[0, 0, 0], [0, 1, 1], [1, 1, 1]]),  # 4 is exactly half way
        ("lvs", COUNT, [[0, 0, 0], [0, 0, 1], [1, 1, 1]]),
        ("ezvsl", COUNT, [[0, 0, 0], [0, 1, 1], [1, 1, 1]]),
        ("sspl", STRIPE, [[0, 0, 0], [1, 1, 1], [0, 0, 0]]),
        ("lvs", STRIPE, [[0, 0, 0], [1, 1, 1], [0, 0, 0]]),  # the median is 0
        ("ezvsl", STRIPE, ALL),
        ("sspl", FLAT, NOTHING),
        ("lvs", FLAT, NOTHING),
        ("ezvsl", FLAT, ALL),
    ],
)
def test_masks_by_hand(name, rows, expected):
    assert masks_of(name, *rows) == expected


def test_the_median_of_an_even_number_is_the_upper_one():
    assert masks_of("lvs", [0, 1], [2, 4]) == [[0, 0], [0, 1]]
    assert masks_of("ezvsl", [0, 1], [2, 4]) == [[0, 0], [1, 1]]


@pytest.mark.parametrize(
    ("rows", "area", "expected"),
    [
        (COUNT, 2, [[0, 0, 0], [0, 0, 0], [0, 1, 1]]),
        (COUNT, 0, NOTHING),
        (COUNT, 9, ALL),
        (STRIPE, 2, [[0, 0, 0], [1, 1, 0], [0, 0, 0]]),  # ties: the first in reading order
        (STRIPE, 5, [[1, 1, 0], [1, 1, 1], [0, 0, 0]]),
        (FLAT, 4, [[1, 1, 1], [1, 0, 0], [0, 0, 0]]),
        (FLAT, 0, NOTHING),
    ],
)
def test_adaptive_keeps_as_many_pixels_as_the_truth(rows, area, expected):
    assert masks_of("adaptive", *rows, area=area) == expected


def test_adaptive_counts_half_votes_as_truth():
    maps = evaluation_maps(np.array([COUNT], dtype=np.float64), 3)
    truth = np.array([[[1, 0.5, 0.5], [0, 0, 0], [0, 0, 0]]], dtype=np.float32)
    assert binarize("adaptive", maps, truth).sum() == 3


@pytest.mark.parametrize("pairs", [0, 1, 2 * CHUNK + 3])
@pytest.mark.parametrize("kind", [bool, np.float32])
def test_score_agrees_with_the_definitions(pairs, kind):
    rng = np.random.default_rng(5)
    maps = rng.standard_normal((pairs, 13, 11))
    truths = (rng.integers(0, 3, (pairs, 37, 37)) / 2).astype(kind)
    scores, expected = score(maps, truths), naive(maps, truths)
    assert list(scores) == ["sspl", "lvs", "ezvsl", "slavc", "fnac", "adaptive"]
    for name in scores:
        # float32 against float64: one pixel of 1369 may change sides
        np.testing.assert_allclose(scores[name], expected[name], atol=2 / 37**2)


def test_score_does_not_depend_on_offset_and_scale():
    rng = np.random.default_rng(7)
    maps = rng.random((5, 7, 7))
    truths = rng.random((5, 29, 29)) > 0.6
    plain = score(maps, truths)
    for other in (maps * 1e-8 + 0.9, maps * 1e9 - 1e9):
        for name, scores in score(other, truths).items():
            np.testing.assert_allclose(scores, plain[name], atol=2 / 29**2)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_maps_that_are_not_numbers_are_refused(poison):
    maps = np.zeros((3, 2, 2), dtype=np.float32)
    maps[1:, 0, 1] = poison
    with pytest.raises(SoundspotError):
        score(maps, np.ones((3, 5, 5), dtype=bool))
