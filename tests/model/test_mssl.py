"""MSSL: its losses by hand and by loops, its stages, its maps."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.methods.method import Batch
from soundspot.model.methods.mssl import (
    MSSL,
    MSSLConfig,
    alignment_loss,
    class_means,
    correspondence_loss,
    even,
    heard_classes,
)

SMALL = MSSLConfig(
    c_v=7, c_a=5, classes=2, width=11, hidden=13, projection=3, stage_one=2, threshold=0.1
)


def a_method(config: MSSLConfig = SMALL) -> MSSL:
    torch.manual_seed(0)
    return MSSL(config)


def test_the_alignment_is_the_naive_one() -> None:
    rng = torch.Generator().manual_seed(2)
    v, a = (
        torch.nn.functional.normalize(torch.randn(3, 4, 2, generator=rng), dim=1) for _ in range(2)
    )
    there_v = torch.tensor([[True, True], [True, False], [False, True]])
    there_a = torch.tensor([[True, False], [True, True], [True, True]])
    near, far = [], []
    for i in range(3):
        for c in range(2):
            for j in range(3):
                for d in range(2):
                    if not (there_v[i, c] and there_a[j, d]):
                        continue
                    distance = np.linalg.norm(v[i, :, c] - a[j, :, d])
                    if (i, c) == (j, d):
                        near.append(distance**2)
                    else:
                        far.append(max(0, 1.4 - distance) ** 2)
    assert (len(near), len(far)) == (3, 17)
    found = alignment_loss(v, a, there_v, there_a, 1.4).item()
    assert found == pytest.approx(np.mean(near) + np.mean(far), rel=1e-4)
    nowhere = torch.zeros_like(there_v)
    assert alignment_loss(v, a, nowhere, there_a, 1.4).item() == 0


def test_alike_vectors_leave_finite_gradients() -> None:
    v = torch.ones(2, 4, 2, requires_grad=True)
    there = torch.ones(2, 2, dtype=torch.bool)
    alignment_loss(v / 2, v / 2, there, there, 1.4).backward()
    assert torch.isfinite(v.grad).all()


def test_correspondence_by_hand() -> None:
    """Scores for "no" and "yes"; one pair is sure of itself, one other is wrong."""
    scores = torch.zeros(2, 2, 2)
    scores[0, 0, 1] = 2.0
    scores[0, 1, 1] = 3.0
    own = (math.log(1 + math.e**-2) + math.log(2)) / 2
    other = (math.log(1 + math.e**3) + math.log(2)) / 2
    found = correspondence_loss(scores, ~torch.eye(2, dtype=torch.bool)).item()
    assert found == pytest.approx((own + other) / 2)


def test_means_under_class_activation_maps_by_hand() -> None:
    features = torch.tensor([[[1.0, 4.0, 7.0]]])
    scores = torch.tensor([[[1.0, 3.0, -5.0], [-1.0, -1.0, -1.0]]], requires_grad=True)
    found = class_means(features, scores)
    assert found.flatten().tolist() == pytest.approx([(1 + 12) / 4, 4.0])
    assert not found.requires_grad


def test_even_features_have_a_mean_square_of_one() -> None:
    assert even(torch.tensor([[[3.0], [4.0]]])).flatten().tolist() == pytest.approx(
        [0.6 * math.sqrt(2), 0.8 * math.sqrt(2)]
    )


def test_the_likeliest_class_is_always_heard() -> None:
    probability = torch.tensor([[0.2, 0.1, 0.05], [0.6, 0.4, 0.1]])
    assert heard_classes(probability, 0.3).tolist() == [[True, False, False], [True, True, False]]


def loss_by_hand(method: MSSL, batch: Batch, aligning: bool) -> float:
    """The sum of the terms, with the labels that the method's k-means has after the step."""
    label = method.labels.assign(batch.f_a.mean(dim=1))
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    one_hot = torch.eye(2)[label]
    heard = method.audio(even(batch.f_a.transpose(1, 2)))
    others = ~torch.eye(len(label), dtype=torch.bool)
    total = 0.0
    for f_v in (batch.f_v1, batch.f_v2):
        seen = method.visual(even(f_v.flatten(start_dim=2)))
        scores = [method.class_v(seen), method.class_a(heard)]
        loss = sum(bce(s.mean(dim=2), one_hot) for s in scores)
        avc = [[method.avc(torch.cat([v.mean(dim=1), a.mean(dim=1)])) for a in heard] for v in seen]
        loss = loss + correspondence_loss(torch.stack([torch.stack(r) for r in avc]), others)
        if aligning:
            vectors = [
                torch.nn.functional.normalize(project(class_means(x, s)), dim=1)
                for project, x, s in zip(
                    (method.project_v, method.project_a), (seen, heard), scores, strict=True
                )
            ]
            there = [s.mean(dim=2).sigmoid() > 0.1 for s in scores]
            loss = loss + alignment_loss(*vectors, *there, 1.4)
        total += loss.item() / 2
    return total


def test_classes_are_aligned_from_stage_two_on() -> None:
    method, batch = a_method(), small_batch(5)
    for step in range(4):
        found = method(batch).loss.item()
        assert method.step == step + 1
        assert found == pytest.approx(loss_by_hand(method, batch, aligning=step >= 2), rel=1e-4)
    method.eval()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    method(batch)
    assert all(torch.equal(value, before[name]) for name, value in method.state_dict().items())


def test_in_stage_one_every_parameter_has_a_gradient_if_zero() -> None:
    method, batch = a_method(), small_batch(5)
    method(batch).loss.backward()
    grads = {name: p.grad for name, p in method.named_parameters()}
    assert all(grad is not None for grad in grads.values())
    silent = {name.split(".")[0] for name, grad in grads.items() if not grad.abs().sum() > 0}
    assert silent == {"project_v", "project_a"}
    method.step.fill_(2)
    method.zero_grad()
    method(batch).loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in method.parameters())


@pytest.mark.parametrize("kind", ["aligned", "activation"])
def test_the_map_of_one_pair_is_the_naive_one(kind: str) -> None:
    method, batch = a_method(replace(SMALL, map=kind)), small_batch(1)
    with torch.no_grad():
        heard = method.audio(even(batch.f_a.transpose(1, 2)))
        scores = method.class_a(heard)
        probability = scores.mean(dim=2).sigmoid()[0]
        vectors = method.project_a(class_means(heard, scores))[0]
        seen = method.visual(even(batch.f_v1.flatten(start_dim=2)))
        places, active = method.project_v(seen)[0], method.class_v(seen)[0]
    expected = np.zeros(6)
    for n in range(6):
        for c in range(2):
            cosine = torch.cosine_similarity(vectors[:, c], places[:, n], dim=0).item()
            value = cosine if kind == "aligned" else active[c, n].item()
            expected[n] += probability[c].item() * value / probability.sum().item()
    found = method.maps(batch.f_v1, batch.f_a).detach()
    assert found.shape == (1, 2, 3)
    np.testing.assert_allclose(found.flatten(), expected, atol=1e-5)
