"""ICL: its pseudo-labels, weights and loss by hand and by loops."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.methods.icl import ICL, ICLConfig, shares, similarity_of_sounds, under

SMALL = ICLConfig(c_v=7, c_a=5)


def test_the_mean_over_chosen_locations():
    every = torch.tensor([[[1.0, 2.0, 6.0], [0.0, 4.0, 8.0]]])
    assert under(every, torch.tensor([[True, False, True]])).tolist() == [[3.5, 4.0]]
    assert under(every, torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0.0, 0.0]]


def test_sounds_that_are_alike_share_what_sounds():
    """Sounds 0 and 1 are alike by 0.8; 0 fits frame 1 by 0.5, 1 does not fit frame 0."""
    alike = torch.tensor([[1.0, 0.8, -0.5], [0.8, 1.0, 0.4], [-0.5, 0.4, 1.0]])
    across = torch.tensor([[0.9, -0.3, 0.9], [0.5, 0.9, 0.9], [0.9, 0.9, 0.1]])  # frames as rows
    found = shares(alike, across, SMALL)
    assert found[0].tolist() == pytest.approx([1 / 1.4, 0.4 / 1.4, 0])
    assert found[1:].tolist() == [[0, 1, 0], [0, 0, 1]]


def naive_loss(model, data):
    """The header's formula by loops over both views, with the last iteration's weights."""
    config, b = model.config, len(data.f_a)
    alike = similarity_of_sounds(data.f_a).double().numpy()
    total = 0.0
    for f_v in (data.f_v1, data.f_v2):

        def cosines(part, view=f_v):
            heard = part.g(data.f_a).detach().double().numpy()
            seen = part.conv(view).detach().double().flatten(2).numpy()
            heard /= np.linalg.norm(heard, axis=1, keepdims=True)
            seen /= np.linalg.norm(seen, axis=1, keepdims=True)
            return np.einsum("kc,bcn->bkn", heard, seen)

        before, now = cosines(model.last), cosines(model)
        own = [before[i, i] for i in range(b)]
        scaled = [(m - m.min()) / (m.max() - m.min()) for m in own]
        up = [s >= config.positive_threshold for s in scaled]
        down = [s <= config.background_threshold for s in scaled]
        for i in range(b):
            weights = [
                1.0
                if i == j
                else alike[i, j] * max(0, before[j, i][up[j]].mean())
                if alike[i, j] > config.alike
                else 0.0
                for j in range(b)
            ]
            logits = [now[j, i][up[j]].mean() for j in range(b)] + [now[i, i][down[i]].mean()]
            shared = np.exp(np.array(logits) / config.temperature)
            for j in range(b):
                total -= weights[j] / sum(weights) * math.log(shared[j] / shared.sum()) / (2 * b)
    return total


@pytest.mark.parametrize("alike", [-0.5, 0.5, 1.0])
def test_the_loss_equals_the_loops(alike):
    model, data = ICL(dataclasses.replace(SMALL, alike=alike)).eval(), small_batch()
    with torch.no_grad():
        for weight in model.last.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    assert model(data).loss.item() == pytest.approx(naive_loss(model, data), rel=1e-4)


def test_the_last_iteration_begins_as_the_first_and_follows_slowly():
    model, data = ICL(dataclasses.replace(SMALL, momentum=0.75)), small_batch()
    for name in ("g.layers.0.weight", "conv.weight"):
        now, last = model.get_parameter(name), model.last.get_parameter(name)
        assert torch.equal(now, last)
        with torch.no_grad():
            now.add_(4)
        before = last.clone()
        model.train()(data)
        torch.testing.assert_close(last, before + 1)
