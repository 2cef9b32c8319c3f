"""DMC against loops written from its definition, and against numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.methods.dmc import DMC, DMCConfig, max_margin

SMALL = DMCConfig(c_v=7, c_a=5, centers=3, dim=2)


def a_method(config: DMCConfig = SMALL) -> DMC:
    torch.manual_seed(0)
    return DMC(config)


def clusters_by_loops(method: DMC, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centers (k d) and assignments (k n) of one frame or sound, features (n c)."""
    config = method.config
    weight = method.spaces.weight.detach().double().numpy()[..., 0]
    w = weight.reshape(config.centers, config.dim, -1)
    shares = np.full((config.centers, len(features)), 1 / config.centers)
    for turn in range(config.rounds):
        projected = np.array([[w_k @ (u / np.linalg.norm(u)) for u in features] for w_k in w])
        if turn:
            scores = np.array(
                [
                    [c @ x / np.linalg.norm(c) for x in xs]
                    for c, xs in zip(centers, projected, strict=True)
                ]
            )
            shares = np.exp(scores) / np.exp(scores).sum(axis=0)
        centers = np.array(
            [(s[:, None] * x).sum(axis=0) for s, x in zip(shares, projected, strict=True)]
        )
    return centers, shares


def both_by_loops(method: DMC, f_v: torch.Tensor, f_a: torch.Tensor) -> tuple[list, list]:
    seen = [clusters_by_loops(method, f.flatten(start_dim=1).T.double().numpy()) for f in f_v]
    heard = [clusters_by_loops(method, f.detach().double().numpy()) for f in method.audio(f_a)]
    return seen, heard


def cosines(seen: np.ndarray, heard: np.ndarray) -> list[float]:
    return [
        c @ d / (np.linalg.norm(c) * np.linalg.norm(d)) for c, d in zip(seen, heard, strict=True)
    ]


def test_the_loss_is_the_naive_one() -> None:
    method, batch = a_method(), small_batch()
    expected = []
    for f_v in (batch.f_v1, batch.f_v2):
        seen, heard = both_by_loops(method, f_v, batch.f_a)
        s = [[sum(cosines(v[0], a[0])) for a in heard] for v in seen]
        expected += [max(0.0, s[i][j] - s[i][i] + 3) for i in range(3) for j in range(3) if i != j]
    assert method(batch).loss.item() == pytest.approx(np.mean(expected), rel=1e-5)


def test_the_margin_by_hand() -> None:
    agreement = torch.tensor([[2.0, 1.5], [-1.0, 1.0]])
    others = ~torch.eye(2, dtype=torch.bool)
    assert max_margin(agreement, others, 1.0).item() == pytest.approx((0.5 + 0.0) / 2)
    assert max_margin(agreement, others, 3.0).item() == pytest.approx((2.5 + 1.0) / 2)


@pytest.mark.parametrize("kind", ["assignment", "cosine"])
def test_the_map_of_one_pair_shows_the_best_center(kind: str) -> None:
    method, batch = a_method(replace(SMALL, map=kind)), small_batch(1)
    ((seen,), (heard,)) = both_by_loops(method, batch.f_v1, batch.f_a)
    best = int(np.argmax(cosines(seen[0], heard[0])))
    expected = seen[1][best]
    if kind == "cosine":
        w = method.spaces.weight.detach().double().numpy()[2 * best : 2 * best + 2, :, 0]
        features = batch.f_v1[0].flatten(start_dim=1).T.double().numpy()
        expected = np.array(cosines(features @ w.T, [heard[0][best]] * 6))
    found = method.maps(batch.f_v1, batch.f_a)
    assert found.shape == (1, 2, 3)
    np.testing.assert_allclose(found[0].detach(), expected.reshape(2, 3), atol=1e-5)
    assert method.training_only == ()
