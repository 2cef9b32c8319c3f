import numpy as np
import pytest

from soundspot.evaluation.protocols import PROTOCOLS, score
from soundspot.evaluation.trivial import baselines, ceiling, disc, guide, random_maps


def truth_of(area, size=4):
    return (np.arange(size**2) < area).reshape(1, size, size)


def only(scores):
    return {name: values.item() for name, values in scores.items()}


def test_disc_by_hand():
    # radius² = 0.5 * 16 / pi = 2.55: all but the four corners, at 1.5² + 1.5² = 4.5
    assert disc(4).astype(int).tolist() == [[0, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 0]]


def test_disc_is_centered_and_covers_its_share():
    mask = disc()
    assert (mask == mask[::-1]).all() and (mask == mask[:, ::-1]).all() and (mask == mask.T).all()
    assert mask.sum() == 25_076  # of 25,088, half of the frame
    assert disc(224, share=0.25).mean() == pytest.approx(0.25, abs=1e-3)


@pytest.mark.parametrize(("area", "lvs", "ezvsl"), [(4, 4 / 7, 4 / 8), (12, 7 / 12, 8 / 12)])
def test_ceiling_of_an_object(area, lvs, ezvsl):
    # of 16 pixels `>= median` keeps 8 and `> median` 7, whatever the object covers
    median = dict.fromkeys(("ezvsl", "slavc", "fnac"), ezvsl)
    expected = {"sspl": 1, "lvs": lvs, **median, "adaptive": 1}
    assert only(ceiling(truth_of(area))) == expected


def test_ceiling_of_votes_takes_the_certain_pixels_first():
    votes = np.full((1, 4, 4), 0.5, dtype=np.float32)
    votes[0, 3, 2:] = 1
    expected = {
        "sspl": 8.5 / 9,  # one pixel of a map is its minimum, and never kept
        "lvs": (2 + 5 * 0.5) / 9,
        **dict.fromkeys(("ezvsl", "slavc", "fnac"), (2 + 6 * 0.5) / 9),
        "adaptive": 1,
    }
    assert only(ceiling(votes)) == expected


def test_ceiling_of_an_empty_truth_is_a_failure():
    assert only(ceiling(truth_of(0))) == dict.fromkeys(PROTOCOLS, 0.0)


def test_nothing_beats_the_ceiling_and_the_truth_itself_reaches_it():
    rng = np.random.default_rng(3)
    truths = rng.random((7, 23, 23)) < np.linspace(0.05, 0.95, 7)[:, None, None]
    best = ceiling(truths)
    # without ties, and truth above everything else
    perfect = truths + rng.permutation(7 * 23 * 23).reshape(truths.shape) / (7 * 23 * 23)
    for name, scores in score(perfect, truths).items():
        if name == "sspl":  # noise stretches to just below one half
            continue
        np.testing.assert_allclose(scores, best[name], atol=1e-12)
    for name, scores in score(random_maps(7), truths).items():
        assert (scores <= best[name]).all()


def test_the_baselines_by_hand():
    truths = truth_of(6)
    found = {made.name: made for made in baselines(truths, saliency_maps=np.eye(3)[None])}
    assert list(found) == [
        "centered disc",
        "full frame",
        "random map",
        "image saliency",
        "oracle ceiling",
    ]
    assert only(found["full frame"].scores) == dict.fromkeys(PROTOCOLS, 6 / 16)
    # the first row and half of the second; of the disc 2 + 2 of these, 8 others
    assert only(found["centered disc"].scores) == dict.fromkeys(PROTOCOLS, 4 / (6 + 8))
    assert len(baselines(truths)) == 4


@pytest.mark.parametrize(
    ("stands_out", "weight", "expected"),
    [
        ([4.0, 2.0, 3.0], 0.25, [0.25, 0.375, 0.875]),  # stretched: 0, 1/2, 1 and 1, 0, 1/2
        ([7.0, 7.0, 7.0], 0.5, [0.0, 0.25, 0.5]),
    ],
)
def test_guidance_by_hand(stands_out, weight, expected):
    guided = guide(np.array([[[-1.0, 0.0, 1.0]]]), np.array([[stands_out]]), weight)
    np.testing.assert_allclose(guided, [[expected]])
