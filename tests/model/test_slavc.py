"""SLAVC against loops, and its momentum network by hand."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.attention import similarity
from soundspot.model.methods.slavc import SLAVC, SLAVCConfig

SMALL = SLAVCConfig(c_v=7, c_a=5, dropout=0.0)


def naive_fit(seen, heard, t):
    """p_ij by loops over frames, sounds and locations, in double precision."""
    (v1, v2), (a1, a2) = (
        [
            x.detach().double().flatten(2).numpy() if x.ndim > 2 else x.detach().double().numpy()
            for x in xs
        ]
        for xs in (seen, heard)
    )
    b, n = len(v1), v1.shape[2]

    def cosine(v, a, i, j, x):
        return v[i, :, x] @ a[j] / (np.linalg.norm(v[i, :, x]) * np.linalg.norm(a[j]))

    p = np.zeros((b, b))
    for i in range(b):
        for j in range(b):
            place = [math.exp(cosine(v2, a2, i, j, x) / t) for x in range(n)]
            for x in range(n):
                belongs = [math.exp(cosine(v1, a1, i, k, x) / t) for k in range(b)]
                p[i, j] += belongs[j] / sum(belongs) * place[x] / sum(place)
    return p


def cross_entropy(p):
    return np.mean([-math.log(row[i] / row.sum()) for i, row in enumerate(p)])


def test_the_loss_equals_the_loops():
    model, data = SLAVC(SMALL).eval(), small_batch()
    with torch.no_grad():
        for weight in model.slow.parameters():
            weight.add_(torch.randn_like(weight))
    trained = model.trained.see(data.f_v1), model.trained.hear(data.f_a)
    slow = model.slow.see(data.f_v2), model.slow.hear(data.f_a)
    expected = cross_entropy(naive_fit(trained[0], slow[1], 0.03))
    expected += cross_entropy(naive_fit(slow[0], trained[1], 0.03))
    assert model(data).loss.item() == pytest.approx(expected, rel=1e-4)


def test_the_slow_network_moves_towards_the_trained_one_in_training_only():
    model, data = SLAVC(dataclasses.replace(SMALL, momentum=0.75)), small_batch()
    weight, slow = model.trained.localization.conv.weight, model.slow.localization.conv.weight
    assert torch.equal(weight, slow)
    with torch.no_grad():
        weight.add_(4)
    before = slow.clone()
    model.eval()(data)
    assert torch.equal(slow, before)
    model.train()(data)
    torch.testing.assert_close(slow, before + 1)


def test_maps_are_the_mean_of_both_branches_of_the_slow_network():
    model, data = SLAVC(SMALL), small_batch(1)
    with torch.no_grad():
        for weight in model.slow.parameters():
            weight.add_(torch.randn_like(weight))
    branches = model.slow.correspondence, model.slow.localization
    cosines = [similarity(part.g(data.f_a), part.conv(data.f_v1)) for part in branches]
    torch.testing.assert_close(model.maps(data.f_v1, data.f_a), (cosines[0] + cosines[1]) / 2)


def test_dropout_is_drawn_anew_for_each_view_and_step():
    model, data = (
        SLAVC(dataclasses.replace(SMALL, dropout=0.5, momentum=1.0)).train(),
        small_batch(),
    )
    assert model(data).loss.item() != model(data).loss.item()
