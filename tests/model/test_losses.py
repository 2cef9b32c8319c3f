import math

import numpy as np
import pytest
import torch

import reference
from soundspot.common.errors import SoundspotError
from soundspot.model import losses


def four(batch=11, dim=5):
    torch.manual_seed(0)
    return [torch.randn(batch, dim) for _ in range(4)]


def arrays(tensors):
    return [t.double().numpy() for t in tensors]


def test_negative_cosine_by_hand():
    p = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    z = torch.tensor([[3.0, 0.0], [1.0, 1.0]])
    assert losses.negative_cosine(p, z).item() == pytest.approx(-(1 + math.sqrt(0.5)) / 2)


def test_byol_equals_the_reference_and_spares_the_target():
    p1, p2, t1, t2 = four()
    values = arrays([p1, p2, t1, t2])
    for given in (p1, p2, t1, t2):
        given.requires_grad_()
    loss = losses.byol(p1, p2, t1, t2)
    assert loss.item() == pytest.approx(reference.byol(*values), abs=1e-5)
    loss.backward()
    assert t1.grad is None and t2.grad is None
    assert p1.grad.abs().sum() > 0 and p2.grad.abs().sum() > 0


def test_barlow_twins_equals_the_reference():
    u, v, _, _ = four()
    expected = reference.barlow_twins(*arrays([u, v]), 0.03)
    assert losses.barlow_twins(u, v, 0.03).item() == pytest.approx(expected, rel=1e-5)


def test_w_mse_equals_the_reference():
    z1, z2, _, _ = four(batch=17)
    expected = reference.w_mse(*arrays([z1, z2]), 0.01)
    assert losses.w_mse(z1, z2, 0.01).item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("batch", [5, 7])
def test_w_mse_refuses_a_batch_that_cannot_be_whitened(batch):
    z1, z2, _, _ = four(batch=batch, dim=7)
    with pytest.raises(SoundspotError):
        losses.w_mse(z1, z2)


def test_collapse_monitor_is_one_when_spread_and_zero_when_collapsed():
    spread = torch.randn(4001, 31)
    assert losses.collapse_monitor(spread).item() == pytest.approx(1, abs=0.02)
    assert losses.collapse_monitor(spread[:1].repeat(7, 1)).item() == pytest.approx(0, abs=1e-6)


def test_balanced_assignments_use_every_cluster_equally():
    """Two samples that both prefer cluster 0: the clearer one keeps it."""
    scores = torch.tensor([[1.0, 0.0], [0.9, 0.5]])
    shares = losses.balanced_assignment(scores, temperature=0.05, rounds=50)
    torch.testing.assert_close(shares, torch.eye(2), atol=1e-2, rtol=0)


def test_three_rounds_of_balancing_by_loops():
    scores = 0.05 * torch.tensor([[2.0, 1.0], [4.0, 1.0]]).log()
    shares = np.array([[2.0, 1.0], [4.0, 1.0]])
    for _ in range(3):
        shares = shares / shares.sum(axis=0)
        shares = shares / shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(losses.balanced_assignment(scores), shares, rtol=1e-5)


def test_swapped_prediction_by_hand_and_without_gradient_through_the_targets():
    seen = torch.tensor([[0.3, 0.1], [0.2, 0.4]], requires_grad=True)
    heard = torch.tensor([[0.5, 0.0], [0.1, 0.2]], requires_grad=True)
    q_seen, q_heard = (losses.balanced_assignment(s.detach()) for s in (seen, heard))
    log_seen, log_heard = ((s / 0.1).log_softmax(dim=1) for s in (seen, heard))
    expected = -((q_heard * log_seen).sum() + (q_seen * log_heard).sum()) / 4
    loss = losses.swapped_prediction(seen, heard)
    torch.testing.assert_close(loss, expected)
    loss.backward()
    slope = ((seen / 0.1).softmax(dim=1) - q_heard) / 0.1 / 4
    torch.testing.assert_close(seen.grad, slope)


def test_info_nce_by_hand():
    """Frame 0 prefers the other's sound by 2, frame 1 its own by 3; by columns 1 and 0."""
    logits = torch.tensor([[1.0, 3.0], [0.0, 3.0]])
    frames = math.log(1 + math.exp(2)) + math.log(1 + math.exp(-3))
    sounds = math.log(1 + math.exp(-1)) + math.log(1 + math.exp(0))
    assert losses.pick_own(logits).item() == pytest.approx(frames / 2, rel=1e-5)
    assert losses.info_nce(logits).item() == pytest.approx((frames + sounds) / 4, rel=1e-5)


def test_the_share_of_frames_that_fit_their_own_sound_best():
    # Rows are frames: the second fits another sound better, though every sound fits its own frame.
    logits = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.5, 0.0], [0.0, 1.0, 5.0]])
    assert losses.matched(logits).item() == pytest.approx(2 / 3)
    assert losses.matched(logits.T).item() == 1


def test_a_frame_picks_among_its_negatives_and_its_own_sound():
    negatives = torch.tensor([[False, True, False], [False, False, False], [True, True, False]])
    left = losses.among(torch.zeros(3, 3), negatives).isfinite()
    assert left.tolist() == [[True, True, False], [False, True, False], [True, True, True]]
