"""FNAC's regularizers against loops over frames, sounds and locations."""

import dataclasses

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_batch import small_batch

from soundspot.model.memory import Draws, dropped
from soundspot.model.methods.ezvsl import EZVSL, EZVSLConfig
from soundspot.model.methods.fnac import FNAC, FNACConfig, regularizers

SMALL = FNACConfig(c_v=7, c_a=5, dropout=0.0, warmup=0)


def softmax(values):
    shares = np.exp(np.asarray(values) - np.max(values))
    return shares / shares.sum()


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def naive_terms(heard, seen, config):
    """heard (b, c) and seen (b, c, n) as unit vectors, in double precision."""
    b, _, n = seen.shape
    t = config.temperature
    cosine = np.array(
        [[[seen[i, :, x] @ heard[j] for x in range(n)] for j in range(b)] for i in range(b)]
    )
    across = [softmax([max(cosine[i, j]) / t for j in range(b)]) for i in range(b)]
    source = np.zeros((b, seen.shape[1]))
    for i in range(b):
        own = cosine[i, i]
        scaled = (own - own.min()) / (own.max() - own.min())
        for x in range(n):
            if scaled[x] > config.threshold:
                source[i] += seen[i, :, x] / n

    def alike(vectors):
        return [softmax([vectors[i] @ vectors[j] / t for j in range(b)]) for i in range(b)]

    def distance(one, two):
        return np.mean(np.abs(np.array(one) - np.array(two)))

    mean = seen.mean(axis=2)
    return (
        distance(alike(heard), across),
        distance(alike(heard), alike(source)),
        distance(alike(mean), across),
    )


def terms(model, f_v, f_a):
    heard = F.normalize(model.g(f_a), dim=1)
    seen = F.normalize(model.conv(f_v), dim=1)
    every = torch.einsum("kc,bchw->bkhw", heard, seen)
    return heard, seen, regularizers(heard, seen, every, model.config)


@pytest.mark.parametrize("temperature", [0.03, 0.5])
def test_the_regularizers_equal_the_loops(temperature):
    model = FNAC(dataclasses.replace(SMALL, temperature=temperature))
    data = small_batch()
    heard, seen, found = terms(model, data.f_v1, data.f_a)
    expected = naive_terms(
        heard.detach().double().numpy(), seen.detach().double().flatten(2).numpy(), model.config
    )
    assert [term.item() for term in found] == pytest.approx(expected, rel=1e-3)
    assert len({round(value, 6) for value in expected}) == 3


@pytest.mark.parametrize("weight", ["audio", "source", "visual"])
def test_each_regularizer_adds_to_the_loss_of_ez_vsl(weight):
    names = ("audio_weight", "source_weight", "visual_weight")
    weights = {name: 7.0 if name.startswith(weight) else 0.0 for name in names}
    model = FNAC(dataclasses.replace(SMALL, **weights))
    plain = EZVSL(EZVSLConfig(c_v=7, c_a=5))
    plain.load_state_dict(model.state_dict(), strict=False)
    data = small_batch()
    added = [getattr(terms(model, f_v, data.f_a)[2], weight) for f_v in (data.f_v1, data.f_v2)]
    expected = plain(data).loss + 7 * torch.stack(added).mean()
    assert model(data).loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert (expected - plain(data).loss).item() > 0.1


def test_the_regularizers_begin_after_the_warm_up():
    model = FNAC(dataclasses.replace(SMALL, warmup=2)).train()
    data = small_batch()
    losses = [model(data).loss.item() for _ in range(3)]
    assert losses[0] == losses[1] < losses[2]
    again = FNAC(dataclasses.replace(SMALL, warmup=2))
    again.load_state_dict(model.state_dict())
    assert again.eval()(data).loss.item() == losses[2]


def test_dropout_keeps_a_share_and_its_expectation():
    draws = Draws()
    x = torch.ones(40, 50)
    first, second, third = (dropped(x, 0.9, draws.step()) for _ in range(3))
    assert first.unique().tolist() == pytest.approx([0.0, 10.0])
    assert first.mean().item() == pytest.approx(1, abs=0.2)
    assert not torch.equal(first, second) and not torch.equal(second, third)
    assert torch.equal(dropped(x, 0.9, None), x)
