import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from small_batch import small_batch

import reference
from soundspot.common.config import non_defaults, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.model.checkpoint import Card, load, save
from soundspot.model.methods.senocak import Attention, AttentionConfig, triplet_loss
from soundspot.training.recipe import FeatureSpec, Recipe, check_same

SMALL = AttentionConfig(c_v=7, c_a=5)
EVERY = ~torch.eye(3, dtype=torch.bool)


def naive_loss(model, f_v, f_a, negatives):
    """METHOD's sentence as loops: cosine, ReLU, softmax, sum, FC-ReLU-FC, softmaxed distances."""
    heard = model.g(f_a).detach().double().numpy()
    sound = f_a.double().numpy().mean(axis=1)
    seen = model.conv(f_v).detach().double().numpy()
    cosine = reference.similarity(heard, seen)
    zs = []
    for i in range(len(seen)):
        weights = np.exp(np.maximum(cosine[i], 0))
        weights /= weights.sum()
        f_av = sum(
            weights[y, x] * seen[i, :, y, x]
            for y in range(seen.shape[2])
            for x in range(seen.shape[3])
        )
        if model.config.relu:
            f_av = np.maximum(f_av, 0)
        zs.append(model.visual_fc(torch.tensor(f_av).float()).detach().double().numpy())
    rows = []
    for i, z in enumerate(zs):
        terms = []
        for j in negatives[i]:
            near = math.exp(np.linalg.norm(z - sound[i]))
            far = math.exp(np.linalg.norm(z - sound[j]))
            terms.append((near / (near + far)) ** 2 + (1 - far / (near + far)) ** 2)
        if terms:
            rows.append(np.mean(terms) / 2)
    return np.mean(rows)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("visual_conv", [False, True])
def test_loss_equals_the_loops_over_both_views(visual_conv, relu):
    model = Attention(dataclasses.replace(SMALL, visual_conv=visual_conv, relu=relu))
    data = small_batch()
    others = [[1, 2], [0, 2], [0, 1]]
    one, two = (naive_loss(model, f_v, data.f_a, others) for f_v in (data.f_v1, data.f_v2))
    assert abs(one - two) > 1e-5
    assert model(data).loss.item() == pytest.approx((one + two) / 2, abs=5e-6)


def test_strategy_b_leaves_out_the_own_class():
    model = Attention(dataclasses.replace(SMALL, negatives="other_class"))
    data = small_batch(b=4, cls=[7, 7, 2, 7])
    others = [[2], [2], [0, 1, 3], [2]]
    expected = [naive_loss(model, f_v, data.f_a, others) for f_v in (data.f_v1, data.f_v2)]
    assert model(data).loss.item() == pytest.approx(np.mean(expected), abs=1e-5)
    with_false_negatives = Attention(SMALL)
    with_false_negatives.load_state_dict(model.state_dict())
    assert abs(with_false_negatives(data).loss.item() - np.mean(expected)) > 1e-4


def test_a_frame_without_negatives_contributes_nothing():
    z = torch.tensor([[0.0, 0.0], [0.0, 0.0]])
    h = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    found = triplet_loss(z, h, torch.tensor([[False, True], [False, False]]))
    assert found.item() == pytest.approx(1 / (1 + math.exp(5)) ** 2, rel=1e-4)


def test_equal_distances_cost_a_quarter_and_have_finite_gradients():
    z = torch.zeros(3, 2, requires_grad=True)
    loss = triplet_loss(z, torch.zeros(3, 2), EVERY)
    loss.backward()
    assert loss.item() == pytest.approx(0.25)
    assert torch.isfinite(z.grad).all()


def test_a_card_from_before_the_relu_has_none(tmp_path):
    path = tmp_path / "old.safetensors"
    old = {k: v for k, v in dataclasses.asdict(SMALL).items() if k != "relu"} | {
        "sound": "embedding"
    }
    save(path, Attention(SMALL), Card("attention", old, FeatureSpec()))
    loaded, card = load(path)
    assert not loaded.config.relu
    assert card.config["relu"] is False  # so that an export of it says so
    save(path, Attention(SMALL), Card("attention", dataclasses.asdict(SMALL), FeatureSpec()))
    assert load(path)[0].config.relu


def test_a_run_from_before_the_relu_is_another_recipe(tmp_path):
    new = Recipe(tmp_path, "attention")
    assert new.model["relu"] is True
    values = to_dict(new)
    del values["model"]["relu"]
    values["model"]["rectified"] = False
    (tmp_path / "recipe.json").write_text(json.dumps(values))
    with pytest.raises(SoundspotError):
        check_same(tmp_path / "recipe.json", new)
    check_same(tmp_path / "recipe.json", Recipe(tmp_path, "attention", {"relu": False}))


def test_names_made_before_the_relu_stay_with_runs_without_it():
    """Folders of table lines are named after what differs from the defaults."""
    assert non_defaults(AttentionConfig(relu=False)) == {}
    assert non_defaults(AttentionConfig()) == {"relu": True}
