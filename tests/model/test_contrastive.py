"""The contrastive reference against loops written from its definition."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from soundspot.model.attention import boxed, self_attended, similarity, soft_maximum
from soundspot.model.methods.contrastive import (
    Contrastive,
    ContrastiveConfig,
    alike_targets,
    info_nce,
    matched,
)
from soundspot.model.methods.method import Batch

SMALL = ContrastiveConfig(c_v=7, c_a=5)


def a_batch(size: int = 3) -> Batch:
    rng = torch.Generator().manual_seed(1)
    views = [torch.randn(size, 7, 2, 3, generator=rng) for _ in range(2)]
    sound = torch.randn(size, 3, 5, generator=rng)
    return Batch(views[0], views[1], sound, torch.full((size,), -1))


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
    method, batch = Contrastive(SMALL), a_batch()
    assert method(batch).loss.item() == pytest.approx(loss_by_loops(method, batch), rel=1e-5)


def test_the_share_of_frames_that_fit_their_own_sound_best() -> None:
    # Rows are frames: the second fits another sound better, though every sound fits its own frame.
    logits = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.5, 0.0], [0.0, 1.0, 5.0]])
    assert matched(logits).item() == pytest.approx(2 / 3)
    assert matched(logits.T).item() == 1


def test_maps_are_cosines_and_work_for_one_pair() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(SMALL), a_batch(1)
    maps = method.maps(batch.f_v1, batch.f_a)
    seen, heard = method.conv(batch.f_v1)[0, :, 1, 2], method.g(batch.f_a)[0]
    assert maps.shape == (1, 2, 3)
    assert maps[0, 1, 2].item() == pytest.approx(
        torch.cosine_similarity(seen, heard, dim=0).item(), rel=1e-5
    )


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


def test_sounds_that_are_alike_share_the_target() -> None:
    f_a = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
    targets = alike_targets(f_a, 0.1)
    assert targets.sum(dim=1).tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert targets[0].tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)
    assert alike_targets(f_a, 0.0).tolist() == torch.eye(3).tolist()


def test_soft_targets_enter_the_loss_by_rows() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    targets = torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    by_hand = [
        0.75 * math.log(1 + math.e**-2) + 0.25 * math.log(math.e**2 + 1),
        math.log(1 + math.e**-1),
    ]
    # The transposed logits happen to be the same, so both directions cost the same.
    assert info_nce(logits, targets).item() == pytest.approx(sum(by_hand) / 2, rel=1e-6)


def test_self_attention_is_for_maps_alone() -> None:
    torch.manual_seed(0)
    plain = Contrastive(SMALL)
    shared = Contrastive(replace(SMALL, self_attention=0.5))
    shared.load_state_dict(plain.state_dict())
    batch = a_batch()
    seen = self_attended(plain.conv(batch.f_v1), 0.5)
    maps = shared.maps(batch.f_v1, batch.f_a)
    torch.testing.assert_close(maps, similarity(plain.g(batch.f_a), seen))
    assert not torch.allclose(maps, plain.maps(batch.f_v1, batch.f_a), atol=1e-3)
    assert shared(batch).loss.item() == plain(batch).loss.item()


def test_boxes_are_for_maps_alone() -> None:
    torch.manual_seed(0)
    plain, drawn = Contrastive(SMALL), Contrastive(replace(SMALL, map_boxes=0.5))
    drawn.load_state_dict(plain.state_dict())
    batch = a_batch()
    assert torch.equal(drawn(batch).loss, plain(batch).loss)
    s = plain.maps(batch.f_v1, batch.f_a)
    torch.testing.assert_close(drawn.maps(batch.f_v1, batch.f_a), boxed(s, 0.5))
    assert not torch.allclose(boxed(s, 0.5), s)


def test_sound_and_frame_are_compared_in_fewer_dimensions() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(replace(SMALL, embedding=3)), a_batch()
    assert method.conv(batch.f_v1).shape == (3, 3, 2, 3) and method.g(batch.f_a).shape == (3, 3)
    assert method(batch).loss.item() == pytest.approx(loss_by_loops(method, batch), rel=1e-5)


def test_centering_takes_what_all_sounds_have_in_common_from_the_sound() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(replace(SMALL, map_centering=0.5)), a_batch()
    unit = torch.nn.functional.normalize(method.g(batch.f_a), dim=1)
    method(batch)
    assert torch.allclose(method.common_sound, 0.05 * unit.mean(dim=0), atol=1e-7)
    kept = method.common_sound.clone()
    found = method.eval().maps(batch.f_v1, batch.f_a)
    expected = similarity(unit - 0.5 * kept, method.conv(batch.f_v1))
    assert torch.allclose(found, expected, atol=1e-6)
    method(batch)  # not in training
    assert torch.equal(method.common_sound, kept)


def test_joined_encoders_learn_on_their_own_and_average_their_cosines() -> None:
    torch.manual_seed(0)
    method, batch = Contrastive(replace(SMALL, embedding=2, parts=(4, 3))), a_batch()
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
    method, batch = Contrastive(replace(config, first_attends=1.0)), a_batch()
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
