"""SSLalign against loops over its positives and negatives."""

import math

import numpy as np
import pytest
import torch
from small_batch import small_batch

import reference
from soundspot.model.methods.sslalign import SSLAlign, SSLAlignConfig, contrast, nearest


def test_the_nearest_is_another_one_by_its_direction():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [9.0, 1.0], [1.0, 1.3]])
    assert nearest(x).tolist() == [2, 3, 0, 1]


def test_what_shares_the_positive_is_no_negative():
    logits = torch.tensor([[1.0, 3.0, 9.0], [2.0, 5.0, 9.0], [4.0, 1.0, 9.0]])
    sounds = torch.tensor([1, 0, 0])  # the second and third frame have the first sound
    rows = [math.log(1 + 2 * math.exp(1 - 3)), math.log(1 + math.exp(5 - 2))]
    rows += [math.log(1 + math.exp(1 - 4))]
    columns = [math.log(1 + math.exp(5 - 3) + math.exp(1 - 3)), math.log(1 + math.exp(1 - 2))]
    columns += [math.log(1 + math.exp(1 - 4))]
    found = contrast(logits, torch.arange(3), sounds).item()
    assert found == pytest.approx(sum(rows + columns) / 3, rel=1e-5)


def naive(s, frames, sounds, temperature):
    """The mean over both directions' rows, one pair at a time."""
    total, count = 0.0, len(s)
    for i in range(count):
        for by_frame in (True, False):
            below = own = math.exp(s[frames[i], sounds[i]] / temperature)
            for j in range(count):
                if frames[j] != frames[i] and sounds[j] != sounds[i]:
                    at = (frames[i], sounds[j]) if by_frame else (frames[j], sounds[i])
                    below += math.exp(s[at] / temperature)
            total -= math.log(own / below) / count
    return total


def test_the_loss_is_that_of_every_positive_pooled_and_located():
    model, data = SSLAlign(SSLAlignConfig(c_v=7, c_a=5)), small_batch(5)
    heard = model.g(data.f_a).detach().double().numpy()
    sounds = [range(5), nearest(data.f_a.mean(dim=1)).tolist()]
    losses = []
    for view in data.views:
        seen = model.conv(view).detach().double().numpy()
        frames = [range(5), nearest(view.mean(dim=(2, 3))).tolist()]
        maps = np.stack([reference.similarity(np.stack([a] * 5), seen) for a in heard], axis=1)
        mean = seen.mean(axis=(2, 3))
        unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (mean, heard)]
        for s in (maps.max(axis=(2, 3)), unit[0] @ unit[1].T):
            losses += [naive(s, v, a, 0.07) for v in frames for a in sounds]
    # Located and pooled are added, positives and views averaged.
    assert model(data).loss.item() == pytest.approx(sum(losses) / 8, rel=1e-4)
