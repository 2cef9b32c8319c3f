"""SSL-TIE: registration of views that were really moved, and the difference of maps by hand."""

import dataclasses

import pytest
import torch

from soundspot.model.methods.hardway import HardWay, HardWayConfig
from soundspot.model.methods.method import Batch
from soundspot.model.methods.ssltie import (
    SSLTIE,
    Correspondence,
    SSLTIEConfig,
    map_difference,
    register,
    transformations,
)

SMALL = SSLTIEConfig(c_v=5, c_a=3)
CPU = torch.device("cpu")


def views(flip, down, right, b=3, grid=7):
    """Two views of a larger picture: the second shows what lies `down` and `right` of the first."""
    torch.manual_seed(3)
    picture = torch.randn(b, 5, grid + 4, grid + 4)
    first = picture[:, :, 2 : 2 + grid, 2 : 2 + grid]
    second = picture[:, :, 2 + down : 2 + down + grid, 2 + right : 2 + right + grid]
    return first, second.flip(3) if flip else second


def naive_source(y, x, flip, down, right, grid=7):
    """The cell of the first view that the second shows at (y, x), or None."""
    column = grid - 1 - x if flip else x
    row, column = y + down, column + right
    return row * grid + column if 0 <= row < grid and 0 <= column < grid else None


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("down", "right"), [(0, 0), (1, 0), (-1, 1), (1, -1)])
def test_the_geometry_of_two_views_is_found(flip, down, right):
    found = register(*views(flip, down, right), shift=1)
    for cell in range(49):
        expected = naive_source(*divmod(cell, 7), flip, down, right)
        for i in range(3):
            assert found.inside[i, cell].item() == (expected is not None)
            if expected is not None:
                assert found.source[i, cell].item() == expected


def test_views_that_share_few_cells_are_judged_by_these_alone():
    """Columns turn by 30 degrees: unmoved, more cells are nearly alike than are the same."""
    angles = (30.0 * torch.arange(5)).deg2rad()
    wide = torch.stack([angles.cos(), angles.sin()])[None, :, None].expand(1, 2, 3, 5)
    found = register(wide[..., :4], wide[..., 1:], shift=1)
    columns = torch.arange(12) % 4
    assert torch.equal(found.inside[0], found.inside[0] & (columns < 3))
    assert torch.equal(found.source[0][columns < 3] % 4, columns[columns < 3] + 1)


def test_each_pair_of_a_batch_has_a_geometry_of_its_own():
    still, moved = views(False, 0, 0), views(True, 0, 1)
    first = torch.cat([still[0], moved[0]])
    found = register(first, torch.cat([still[1], moved[1]]), 1)
    assert found.source[0, 3].item() == 3
    assert found.source[3, 3].item() == 4


def test_nine_shifts_with_and_without_a_flip_are_tried():
    tried = transformations(3, 5, 1, CPU)
    assert tried.source.shape == (18, 15)
    assert len({tuple(row) for row in torch.where(tried.inside, tried.source, -1).tolist()}) == 18
    assert tried.inside.sum(dim=1).unique().tolist() == [8, 10, 12, 15]
    assert transformations(3, 5, 0, CPU).source.tolist() == [
        list(range(15)),
        [4, 3, 2, 1, 0, 9, 8, 7, 6, 5, 14, 13, 12, 11, 10],
    ]


def test_the_difference_of_maps_by_hand():
    """The second map shows cells 1 and 2 of the first, and something new: 0.1 and 0.3 apart."""
    first, second = torch.tensor([[0.9, 0.5, 0.2]]), torch.tensor([[0.4, 0.5, 7.0]])
    there = Correspondence(torch.tensor([[1, 2, 2]]), torch.tensor([[True, True, False]]))
    assert map_difference(first, second, there).item() == pytest.approx((0.01 + 0.09) / 2)


def test_the_loss_is_the_contrast_of_hardway_and_the_weighted_difference():
    torch.manual_seed(0)
    data = Batch(*torch.randn(2, 3, 5, 7, 7).unbind(), torch.rand(3, 2, 3), torch.full((3,), -1))
    model = SSLTIE(dataclasses.replace(SMALL, equivariance=5.0))
    plain = HardWay(HardWayConfig(c_v=5, c_a=3, visual_conv=True))
    plain.load_state_dict(model.state_dict())
    maps = [model.maps(f_v, data.f_a).flatten(1) for f_v in (data.f_v1, data.f_v2)]
    difference = map_difference(*maps, register(data.f_v1, data.f_v2, 1)).item()
    expected = plain(data).loss.item() + 5 * difference
    assert difference > 0.01
    assert model(data).loss.item() == pytest.approx(expected, rel=1e-5)
