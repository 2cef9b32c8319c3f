"""SACL's choices by hand: negatives, the upper half, the segment, and the loss."""

import dataclasses
import math

import pytest
import torch

from soundspot.model.methods.method import Batch
from soundspot.model.methods.sacl import (
    SACL,
    SACLConfig,
    compacted,
    sacl_loss,
    segments,
    true_negatives,
    upper_part,
)

SMALL = SACLConfig(c_v=5, c_a=3)


def test_the_sounds_least_alike_are_the_negatives():
    """Three sounds close together and one apart: half the batch of four are negatives."""
    angles = torch.tensor([0.0, 0.1, 0.3, 1.5])
    f_a = torch.stack([angles.cos(), angles.sin()], dim=1)[:, None]
    chosen = true_negatives(f_a, 0.5)
    assert [row.nonzero().flatten().tolist() for row in chosen] == [[2, 3], [2, 3], [0, 3], [0, 1]]
    assert true_negatives(f_a, 1.0).sum(dim=1).tolist() == [3, 3, 3, 3]


def test_a_sound_is_never_its_own_negative():
    assert not true_negatives(torch.ones(4, 2, 3), 1.0).diagonal().any()


def test_the_upper_half_of_a_map():
    maps = torch.tensor([[0.1, 0.9, 0.5, 0.4]])
    assert upper_part(maps, 0.5).tolist() == [[False, True, False, False]]
    assert upper_part(maps, 0.0).tolist() == [[False, True, True, True]]


def test_the_segment_with_the_largest_overlap_is_chosen_for_both_views():
    names1, names2 = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([[1, 1, 0, 0, 0]])
    upper1 = torch.tensor([[True, False, True, True, False]])
    upper2 = torch.tensor([[False, True, True, True, True]])
    found = compacted(upper1, upper2, names1, names2, 2)
    assert found[0].tolist() == [[False, False, True, True, False]]
    assert found[1].tolist() == [[False, True, False, False, False]]
    missed = compacted(upper1, torch.tensor([[False, False, True, True, True]]), names1, names2, 2)
    assert missed[1].tolist() == [[True, True, False, False, False]]


def test_a_segment_that_only_one_view_shows_does_not_count():
    upper = torch.tensor([[True, True, True]])
    found = compacted(upper, upper, torch.tensor([[1, 1, 0]]), torch.tensor([[0, 0, 0]]), 2)
    assert found[0].tolist() == [[False, False, True]]
    nothing = compacted(upper, upper, torch.tensor([[1, 1, 1]]), torch.tensor([[0, 0, 0]]), 2)
    assert [part.tolist() for part in nothing] == [[[True, True, True]]] * 2


def test_segments_are_those_that_rounds_of_k_means_settle_on():
    """At 0, 34, 56 and 90 degrees: the first center has the third at first, then loses it."""
    angles = torch.tensor([[0.0, 34.0, 56.0, 90.0]]).deg2rad()
    f_v = torch.stack([angles.cos(), angles.sin()], dim=1)[:, :, None]
    weights = torch.tensor([0, 0, 0, 0, 0, 0, 1, 2, 2, 3])
    names = segments(f_v[..., weights], f_v[..., weights], 2)[0]
    points = f_v[0, :, 0].T[torch.cat([weights, weights])]
    centers = torch.stack([points[names == name].mean(dim=0) for name in (0, 1)])
    centers = centers / centers.norm(dim=1, keepdim=True)
    assert torch.equal((points @ centers.T).argmax(dim=1), names)


def test_locations_that_look_alike_share_a_segment_in_both_views():
    """Two kinds of texture, the right half of the first view and the left of the second."""
    torch.manual_seed(0)
    kinds = torch.eye(5)[:2]
    first, second = kinds[[0, 0, 1, 1]].T.view(1, 5, 1, 4), kinds[[1, 1, 1, 0]].T.view(1, 5, 1, 4)
    noise = 0.1 * torch.randn(2, 1, 5, 1, 4)
    names = segments(first + noise[0], second + noise[1], 2)[0].tolist()
    a, b = names[0], names[2]
    assert a != b
    assert names == [a, a, b, b, b, b, b, a]
    assert set(segments(first, second, 1)[0].tolist()) == {0}


def test_the_loss_by_hand():
    """Own sounds 0.5; a negative of 0.3, one of -0.4, a false one of 0.9."""
    every = torch.zeros(3, 3, 2)
    every[:, :, 0] = torch.tensor([[0.5, 0.3, 0.9], [0.3, 0.5, -0.4], [0.9, -0.4, 0.5]])
    negatives = torch.tensor([[False, True, False], [True, False, True], [False, True, False]])
    counts = torch.tensor([[True, False]] * 3)
    near, low = math.exp(-0.2 / 0.1), math.exp(-0.9 / 0.1)
    expected = (math.log(1 + near) + math.log(1 + near + low) + math.log(1 + low)) / 3
    found = sacl_loss(every, counts, negatives, 0.1)
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_negative_cosines_have_gradients():
    """With 0 for locations that do not count, a frame that fits no sound could not learn."""
    every = torch.full((2, 2, 3), -0.5, requires_grad=True)
    counts = torch.tensor([[True, False, False]] * 2)
    sacl_loss(every, counts, ~torch.eye(2, dtype=torch.bool), 0.1).backward()
    assert (every.grad[:, :, 0].diagonal() < 0).all()
    assert not every.grad[:, :, 1:].any()


def test_the_loss_is_the_sum_of_both_views_at_the_papers_settings():
    torch.manual_seed(0)
    data = Batch(*torch.randn(2, 8, 5, 3, 3).unbind(), torch.rand(8, 2, 3), torch.full((8,), -1))
    model = SACL(dataclasses.replace(SMALL, segments=1))
    total = 0.0
    for f_v in (data.f_v1, data.f_v2):
        maps = torch.einsum(
            "kc,bcn->bkn",
            torch.nn.functional.normalize(model.g(data.f_a), dim=1),
            torch.nn.functional.normalize(model.conv(f_v), dim=1).flatten(2),
        )
        upper = torch.stack([maps[i, i] > maps[i, i].sort().values[4] for i in range(8)])
        total += sacl_loss(maps, upper, true_negatives(data.f_a, 0.75), 0.005).item()
    assert true_negatives(data.f_a, 0.75).sum(dim=1).tolist() == [6] * 8
    assert model(data).loss.item() == pytest.approx(total, rel=1e-4)
