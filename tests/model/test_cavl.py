"""CAVL against loops written from its definition, and its curriculum."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.methods.cavl import CAVL, CAVLConfig, soft_k_means
from soundspot.model.methods.method import Batch

SMALL = CAVLConfig(c_v=7, c_a=5, dim=3, grow_every=2, beta=3.0, margin=1.0)


def a_method(config: CAVLConfig = SMALL) -> CAVL:
    torch.manual_seed(0)
    return CAVL(config)


def centers_by_loops(u: np.ndarray, count: int, config: CAVLConfig) -> np.ndarray:
    centers = np.array([u[j * (len(u) // count)] for j in range(count)])
    for _ in range(config.rounds):
        far = np.array([[np.linalg.norm(x - c) for x in u] for c in centers])
        shares = np.exp(-config.beta * far)
        shares /= shares.sum(axis=0)
        centers = np.array([(s[:, None] * u).sum(axis=0) / s.sum() for s in shares])
    return centers


def features(method: CAVL, f_v: torch.Tensor, f_a: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    unit = torch.nn.functional.normalize
    with torch.no_grad():
        heard = method.audio(unit(f_a, dim=2)).double().numpy()
        weight, bias = method.visual.weight[..., 0], method.visual.bias
        flat = unit(f_v, dim=1).flatten(start_dim=2).transpose(1, 2)
        return (flat @ weight.T + bias).double().numpy(), heard


def loss_by_loops(method: CAVL, batch: Batch, sources: int) -> float:
    size, total = len(batch.cls), 0.0
    for f_v in (batch.f_v1, batch.f_v2):
        seen, heard = features(method, f_v, batch.f_a)
        scenes = [[(i + s) % size for s in range(sources)] for i in range(size)]
        v, a = (
            [
                centers_by_loops(np.concatenate([u[pair] for pair in scene]), count, method.config)
                for scene in scenes
            ]
            for u, count in ((seen, sources + 1), (heard, sources))
        )
        near, far = [], []
        for i, sound in enumerate(scenes):
            for j, frame in enumerate(scenes):
                squares = [min(np.sum((c - d) ** 2) for d in v[j]) for c in a[i]]
                if i == j:
                    near.append(sum(squares))
                elif not set(sound) & set(frame):
                    far.append(max(0, method.config.margin - math.sqrt(sum(squares))) ** 2)
        total += (np.mean(near) + np.mean(far)) / 8
    return total


@pytest.mark.parametrize("sources", [1, 2])
def test_the_loss_is_the_naive_one(sources: int) -> None:
    method, batch = a_method(), small_batch(5)
    method.step.fill_(2 * (sources - 1))
    found = method(batch)
    assert found.report["sources"] == sources
    assert found.loss.item() == pytest.approx(loss_by_loops(method, batch, sources), rel=1e-4)


def test_sources_grow_with_the_steps_of_training_and_survive_a_restart() -> None:
    method, batch = a_method(), small_batch(5)
    assert [int(method(batch).report["sources"]) for _ in range(5)] == [1, 1, 2, 2, 2]
    resumed = a_method()
    resumed.load_state_dict(method.state_dict())
    assert resumed.step == 5
    assert method.eval()(batch).report["sources"] == 2
    assert method.step == 5
    small = small_batch(3)
    assert method(small).report["sources"] == 1  # a third pair cannot be a scene of two


def test_the_map_of_one_pair_belongs_to_the_nearest_center() -> None:
    method, batch = a_method(), small_batch(1)
    seen, heard = features(method, batch.f_v1, batch.f_a)
    sound = heard[0].mean(axis=0)
    centers = centers_by_loops(seen[0], 3, method.config)
    nearest = int(np.argmin(np.linalg.norm(centers - sound, axis=1)))
    expected = soft_k_means(torch.tensor(seen), 3, 3.0, 4).assignment[0, nearest]
    found = method.maps(batch.f_v1, batch.f_a).detach()
    assert found.shape == (1, 2, 3)
    np.testing.assert_allclose(found.flatten(), expected, atol=1e-4)
    near = a_method(replace(SMALL, map="distance")).maps(batch.f_v1, batch.f_a).detach()
    np.testing.assert_allclose(near.flatten(), -np.linalg.norm(seen[0] - sound, axis=1), atol=1e-4)
