import dataclasses
import math

import numpy as np
import pytest
import torch
from small_batch import small_batch

import reference
from soundspot.common.errors import SoundspotError
from soundspot.model.methods.hardway import HardWay, HardWayConfig, hardway_loss

SMALL = HardWayConfig(c_v=7, c_a=5)
SWITCHES = [
    dataclasses.replace(SMALL, trimap=trimap, background=background)
    for trimap in (False, True)
    for background in (False, True)
]
OTHERS = [[1, 2], [0, 2], [0, 1]]


def naive_loss(a0, config, negatives):
    """METHOD's sentence as loops over frames, sounds and locations, in double precision."""

    def mean_under(mask, values):
        return sum(m * v for m, v in zip(mask, values, strict=True)) / sum(mask)

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    def positive(values):
        return [sigmoid((v - config.positive_threshold) / config.sharpness) for v in values]

    rows = []
    low = config.background_threshold if config.trimap else config.positive_threshold
    for i in range(len(a0)):
        logits = [mean_under(positive(a0[i][j]), a0[i][j]) for j in (i, *negatives[i])]
        if config.background:
            mask = [1 - sigmoid((v - low) / config.sharpness) for v in a0[i][i]]
            logits.append(mean_under(mask, a0[i][i]))
        shares = [math.exp(logit / config.temperature) for logit in logits]
        rows.append(-math.log(shares[0] / sum(shares)))
    return np.mean(rows)


def all_similarities(model, f_v, f_a):
    heard = model.g(f_a).detach().double().numpy()
    seen = model.conv(f_v).detach().double().numpy()
    b = len(seen)
    return [
        [reference.similarity(heard[j : j + 1], seen[i : i + 1]).flatten() for j in range(b)]
        for i in range(b)
    ]


@pytest.mark.parametrize("config", SWITCHES)
def test_loss_equals_the_loops_over_both_views(config):
    model = HardWay(dataclasses.replace(config, visual_conv=True))
    data = small_batch()
    one, two = (
        naive_loss(all_similarities(model, f_v, data.f_a), config, OTHERS)
        for f_v in (data.f_v1, data.f_v2)
    )
    assert abs(one - two) > 1e-3
    assert model(data).loss.item() == pytest.approx((one + two) / 2, rel=1e-4)


def test_negatives_of_the_own_class_can_be_left_out():
    config = dataclasses.replace(SMALL, negatives="other_class")
    model = HardWay(config)
    data = small_batch(cls=[5, 2, 5])
    expected = np.mean(
        [
            naive_loss(all_similarities(model, f_v, data.f_a), config, [[1], [0, 2], [1]])
            for f_v in (data.f_v1, data.f_v2)
        ]
    )
    assert model(data).loss.item() == pytest.approx(expected, rel=1e-4)
    with pytest.raises(SoundspotError):
        model(data._replace(cls=torch.tensor([0, -1, 1])))


def test_a_frame_without_negatives_still_has_its_background():
    a0 = torch.tensor([[[0.6, 0.3], [0.5, 0.0]]] * 2)
    none = torch.zeros(2, 2, dtype=torch.bool)
    expected = naive_loss(a0.tolist(), SMALL, [[], []])
    assert hardway_loss(a0, none, SMALL).item() == pytest.approx(expected, rel=1e-4)
    alone = dataclasses.replace(SMALL, background=False)
    assert hardway_loss(a0, none, alone).item() == 0


@pytest.mark.parametrize("cosine", [-1.0, 1.0])
def test_masks_that_round_to_nothing_leave_finite_losses_and_gradients(cosine):
    a0 = torch.full((2, 2, 3), cosine, requires_grad=True)
    config = dataclasses.replace(SMALL, sharpness=0.001)
    loss = hardway_loss(a0, ~torch.eye(2, dtype=torch.bool), config)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(3), abs=1e-4)
    assert torch.isfinite(a0.grad).all()
