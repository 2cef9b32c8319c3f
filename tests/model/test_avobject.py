"""Audio-visual objects against loops written from their definition."""

import math

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.methods.avobject import AVObject, AVObjectConfig

SMALL = AVObjectConfig(c_v=7, c_a=5, hidden=11, embedding=3, scale=2.0)


def a_method(config: AVObjectConfig = SMALL) -> AVObject:
    torch.manual_seed(0)
    return AVObject(config)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def embedded(layers: torch.nn.Sequential, x: np.ndarray, training: bool) -> np.ndarray:
    """FC-BN-ReLU-FC of rows in double precision, with this batch's statistics in training."""
    w1, b1, w2, b2 = (
        p.detach().double().numpy().reshape(len(p), -1)
        for p in (layers[0].weight, layers[0].bias, layers[3].weight, layers[3].bias)
    )
    y = x @ w1.T + b1[:, 0]
    mean, variance = (y.mean(axis=0), y.var(axis=0)) if training else (0.0, 1.0)
    return unit(np.maximum((y - mean) / np.sqrt(variance + 1e-5), 0) @ w2.T + b2[:, 0])


def test_the_loss_is_the_naive_one() -> None:
    method, batch = a_method(), small_batch()
    expected = []
    heard = embedded(method.audio, batch.f_a.double().numpy().reshape(9, 5), True).reshape(3, 3, 3)
    for f_v in (batch.f_v1, batch.f_v2):
        rows = f_v.permute(0, 2, 3, 1).reshape(18, 7).double().numpy()
        seen = embedded(method.visual, rows, True).reshape(3, 6, 3)
        for i in range(3):
            s = [2 * np.mean([max(v @ a for v in seen[i]) for a in sound]) for sound in heard]
            expected.append(math.log(sum(map(math.exp, s))) - s[i])
    assert method(batch).loss.item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_the_map_of_one_pair_is_the_mean_cosine() -> None:
    method, batch = a_method().eval(), small_batch(1)
    found = method.maps(batch.f_v1, batch.f_a).detach()
    rows = batch.f_v1.permute(0, 2, 3, 1).reshape(6, 7).double().numpy()
    seen = embedded(method.visual, rows, False)
    heard = embedded(method.audio, batch.f_a[0].double().numpy(), False)
    assert found.shape == (1, 2, 3)
    np.testing.assert_allclose(found[0], (seen @ heard.T).mean(axis=1).reshape(2, 3), atol=1e-4)
    other = method.maps(batch.f_v1, -batch.f_a).detach()
    assert not torch.allclose(found, other, atol=1e-3)
