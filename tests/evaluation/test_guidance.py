import numpy as np
import pytest

from soundspot.common.errors import SoundspotError
from soundspot.evaluation.guidance import check_weight, guide

MAPS = np.array([[[-1.0, 0.0, 1.0]]])
SALIENCY = np.array([[[4.0, 2.0, 3.0]]])


def test_the_blend_by_hand():
    """Stretched: 0, 1/2, 1 and 1, 0, 1/2."""
    guided = guide(MAPS, SALIENCY, 0.25)
    np.testing.assert_allclose(guided, [[[0.25, 0.375, 0.875]]])


def test_no_weight_leaves_the_map_alone():
    assert guide(MAPS, SALIENCY, 0.0) is MAPS


def test_a_flat_saliency_only_scales():
    guided = guide(MAPS, np.full_like(MAPS, 7.0), 0.5)
    np.testing.assert_allclose(guided, [[[0.0, 0.25, 0.5]]])


@pytest.mark.parametrize("weight", [-0.1, 1.0, 7.0])
def test_a_weight_outside_0_to_1_is_refused(weight):
    with pytest.raises(SoundspotError):
        check_weight(weight)
