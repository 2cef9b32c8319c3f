"""The contrastive reference against loops written from its definition."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_batch import small_batch

from soundspot.model.attention import boxed, self_attended, similarity, soft_maximum
from soundspot.model.methods.contrastive import Contrastive, ContrastiveConfig
from soundspot.model.methods.method import Batch

SMALL = ContrastiveConfig(c_v=7, c_a=5)


def loss_by_loops(method: Contrastive, batch: Batch) -> float:
    heard = method.g(batch.f_a).detach().numpy()
    total = 0.0
    for f_v in (batch.f_v1, batch.f_v2):
        seen = method.conv(f_v).detach().numpy()
        size = len(heard)
        logits = np.empty((size, size))
        for i in range(size):
            for j in range(size):
                cosines = [
                    seen[i, :, y, x]
                    @ heard[j]
                    / (np.linalg.norm(seen[i, :, y, x]) * np.linalg.norm(heard[j]))
                    for y in range(2)
                    for x in range(3)
                ]
                logits[i, j] = max(cosines) / 0.07
        for i in range(size):
            total += (math.log(np.exp(logits[i]).sum()) - logits[i, i]) / (4 * size)
            total += (math.log(np.exp(logits[:, i]).sum()) - logits[i, i]) / (4 * size)
    return total


def test_the_loss_is_the_mean_of_both_views_and_directions() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(SMALL), small_batch()
    assert method(batch).loss.item() == pytest.approx(loss_by_loops(method, batch), rel=1e-5)


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ({"self_attention": 0.5}, lambda g, seen: similarity(g, self_attended(seen, 0.5))),
        ({"map_boxes": 0.5}, lambda g, seen: boxed(similarity(g, seen), 0.5)),
    ],
)
def test_some_switches_are_for_maps_alone(switch, expected) -> None:
    torch.manual_seed(0)
    plain, changed = Contrastive(SMALL), Contrastive(replace(SMALL, **switch))
    changed.load_state_dict(plain.state_dict())
    batch = small_batch()
    assert torch.equal(changed(batch).loss, plain(batch).loss)
    found = changed.maps(batch.f_v1, batch.f_a)
    wanted = expected(plain.g(batch.f_a), plain.conv(batch.f_v1))
    torch.testing.assert_close(found, wanted)
    assert not torch.allclose(found, plain.maps(batch.f_v1, batch.f_a), atol=1e-3)


def test_without_the_convolution_only_the_sound_is_transformed() -> None:
    method = Contrastive(ContrastiveConfig(c_v=7, c_a=5, visual_conv=False))
    assert {name.split(".")[0] for name, _ in method.named_parameters()} == {"g"}


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(0.0, 0.8), (0.5, 0.5 * math.log((math.e**1.6 + math.e**0.4) / 2))],
)
def test_the_soft_maximum(temperature: float, expected: float) -> None:
    maps = torch.tensor([[[0.8, 0.2]]])
    assert soft_maximum(maps, temperature).item() == pytest.approx(expected, rel=1e-6)


def test_sound_and_frame_are_compared_in_fewer_dimensions() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(replace(SMALL, embedding=3)), small_batch()
    assert method.conv(batch.f_v1).shape == (3, 3, 2, 3) and method.g(batch.f_a).shape == (3, 3)
    assert method(batch).loss.item() == pytest.approx(loss_by_loops(method, batch), rel=1e-5)


def test_joined_encoders_learn_on_their_own_and_average_their_cosines() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(replace(SMALL, embedding=2, parts=(4, 3))), small_batch()
    alone = []
    for tower, channels in zip(method.towers, (slice(0, 4), slice(4, 7)), strict=True):
        single = Contrastive(
            ContrastiveConfig(c_v=channels.stop - channels.start, c_a=5, embedding=2)
        )
        single.load_state_dict(tower.state_dict())
        views = [f_v[:, channels] for f_v in (batch.f_v1, batch.f_v2)]
        alone.append((single, batch._replace(f_v1=views[0], f_v2=views[1])))
    losses = [loss_by_loops(*pair) for pair in alone]
    assert method(batch).loss.item() == pytest.approx(np.mean(losses), rel=1e-5)
    maps = [single.maps(part.f_v1, part.f_a) for single, part in alone]
    expected = torch.stack(maps).mean(dim=0)
    assert torch.allclose(method.maps(batch.f_v1, batch.f_a), expected, atol=1e-6)


def test_the_self_attention_of_joined_encoders_can_look_by_the_first_alone() -> None:
    torch.manual_seed(0)
    config = replace(SMALL, embedding=2, parts=(4, 3), self_attention=0.2)
    method, batch = Contrastive(replace(config, first_attends=1.0)), small_batch()
    first, second = (torch.nn.functional.normalize(x, dim=1) for x in method.see(batch.f_v1))
    alike = torch.einsum("bchw,bcij->bhwij", first, first).flatten(3) / 0.2
    attended = [
        torch.einsum("bhwn,bcn->bchw", alike.softmax(dim=3), unit.flatten(2))
        for unit in (first, second)
    ]
    heard = torch.cat([torch.nn.functional.normalize(g, dim=1) for g in method.hear(batch.f_a)], 1)
    expected = similarity(heard, torch.cat(attended, dim=1))
    assert torch.allclose(method.maps(batch.f_v1, batch.f_a), expected, atol=1e-6)
    even, default = (Contrastive(replace(config, first_attends=share)) for share in (0.5, None))
    for other in (even, default):
        other.load_state_dict(method.state_dict())
    maps = [other.maps(batch.f_v1, batch.f_a) for other in (even, default)]
    assert torch.allclose(maps[0], maps[1], atol=1e-6)
    assert not torch.allclose(maps[0], expected, atol=1e-3)
