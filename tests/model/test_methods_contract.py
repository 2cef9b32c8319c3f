"""What the training loop and the localizer rely on, for every method of the table."""

import copy
import dataclasses

import pytest
import torch

from soundspot.common.errors import SoundspotError
from soundspot.model.checkpoint import Card, build_method, load, save
from soundspot.model.methods import METHODS
from soundspot.model.methods.method import Batch
from soundspot.training.recipe import FeatureSpec

HEADS = {"projection": 7, "hidden": 13}
SMALLER = {"sspl": HEADS, "joined-sspl": HEADS, "fnac": {"warmup": 0}}
NEEDS_TWO = ["ezvsl", "slavc", "fnac", "sacl"]
OURS = [*NEEDS_TWO, "icl", "ssltie"]


def build(name, **settings):
    torch.manual_seed(0)
    return build_method(name, {"c_v": 5, "c_a": 3, **SMALLER.get(name, {}), **settings})


def batch(b=11, grid=7, seed=0):
    rng = torch.Generator().manual_seed(seed)
    views = [torch.randn(b, 5, grid, grid, generator=rng) for _ in range(2)]
    return Batch(*views, torch.rand(b, 2, 3, generator=rng), torch.full((b,), -1))


@pytest.mark.parametrize("name", OURS)
def test_gradients_reach_what_is_trained_and_nothing_else(name):
    method = build(name)
    method(batch()).loss.backward()
    silent = [
        n
        for n, p in method.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.abs().sum() > 0)
    ]
    assert silent == []
    slow = [n for n, p in method.named_parameters() if not p.requires_grad]
    assert {n.split(".")[0] for n in slow} <= {"slow", "last"}


@pytest.mark.parametrize("name", OURS)
def test_maps_have_a_grid_and_follow_the_sound(name):
    method, data = build(name).eval(), batch(b=1, grid=3)
    maps = method.maps(data.f_v1, data.f_a)
    assert maps.shape == (1, 3, 3)
    assert maps.abs().max() <= 1 + 1e-5
    other = method.maps(data.f_v1, 1 - data.f_a)
    assert not torch.allclose(maps, other, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in OURS), ("slavc", {"momentum_maps": False})]
)
def test_maps_need_every_weight_but_those_of_training_only(name, settings):
    method, data = build(name, **settings).eval(), batch(b=2)
    before = method.maps(data.f_v1, data.f_a)
    for key in method.state_dict():
        moved = copy.deepcopy(method)
        moved.state_dict()[key].add_(1)
        same = torch.equal(moved.maps(data.f_v1, data.f_a), before)
        assert same == key.startswith(method.training_only), key


@pytest.mark.parametrize("name", OURS)
def test_an_exported_method_makes_the_same_maps(name, tmp_path):
    method, data = build(name).half().float().eval(), batch(b=2)
    card = Card(name, dataclasses.asdict(method.config), FeatureSpec(), slim=True)
    save(tmp_path / "slim.safetensors", method, card)
    loaded, _ = load(tmp_path / "slim.safetensors")
    torch.testing.assert_close(loaded.maps(data.f_v1, data.f_a), method.maps(data.f_v1, data.f_a))


def train(method, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = method(batch(seed=step)).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", OURS)
def test_training_goes_on_from_its_state_with_the_same_numbers(name):
    """Whatever a method draws or follows is in its state; torch's own generator is not."""
    method = build(name).train()
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1)
    train(method, optimizer, [0, 1])
    resumed = build(name).train()
    resumed.load_state_dict(copy.deepcopy(method.state_dict()))
    torch.manual_seed(99)
    expected = train(method, optimizer, [2, 3])
    torch.manual_seed(5)
    found = train(resumed, torch.optim.SGD(resumed.parameters(), lr=0.1), [2, 3])
    assert found == expected


@pytest.mark.parametrize("name", OURS)
def test_evaluating_a_loss_changes_nothing(name):
    method = build(name).eval()
    before = {key: value.clone() for key, value in method.state_dict().items()}
    with torch.no_grad():
        assert method(batch()).loss.item() == method(batch()).loss.item()
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())


@pytest.mark.parametrize("name", OURS)
def test_a_single_pair_teaches_or_is_refused_in_one_sentence(name):
    method = build(name)
    if name in NEEDS_TWO:
        with pytest.raises(SoundspotError, match=r"a batch of 1 teaches it nothing; raise"):
            method(batch(b=1))
        return
    method(batch(b=1)).loss.backward()
    assert sum(p.grad.abs().sum() for p in method.parameters() if p.grad is not None) > 0


@pytest.mark.parametrize("name", OURS)
def test_a_constant_feature_leaves_finite_losses_and_gradients(name):
    """A black frame, whose every location looks the same."""
    method, data = build(name), batch(b=3)
    flat = torch.ones_like(data.f_v1)
    loss = method(data._replace(f_v1=flat, f_v2=flat)).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("ezvsl", {"temperature": 0.0}, "temperature must be positive"),
        ("fnac", {"dropout": 1.0}, "dropout from 0 to below 1"),
        ("fnac", {"audio_weight": -1.0}, "must not be negative"),
        ("slavc", {"momentum": 1.5}, "momentum in 0..1"),
        ("ssltie", {"shift": -1}, "must not be negative"),
        ("sacl", {"segments": 0}, "segments at least 1"),
        ("sacl", {"negatives": 0.0}, "negatives must be above 0"),
        ("icl", {"positive_threshold": 0.3}, "must hold"),
        ("icl", {"temperature": -0.1}, "temperature must be positive"),
    ],
)
def test_impossible_settings_are_refused(name, wrong, says):
    with pytest.raises(SoundspotError, match=says):
        build(name, **wrong)


CLUSTERS = {"alignment": 3.0, "alignment_objective": "clusters", "clusters": 4}
IN_BFLOAT16 = [
    (name, settings)
    for name in METHODS
    for settings in (
        *({}, {"visual_conv": True}, {"pcm": True, "cycles": 2}),
        *({"map_centering": 0.5}, CLUSTERS),
    )
    if METHODS[name].module.trainable
    and set(settings) <= {field.name for field in dataclasses.fields(METHODS[name].config)}
]


@pytest.mark.parametrize(("name", "settings"), IN_BFLOAT16)
def test_a_step_in_bfloat16_is_close_to_one_in_float32(name, settings):
    """train.amp: no two types meet, and what is learned is the same."""
    losses, gradients = [], []
    for amp in (False, True):
        method = build(name, **settings).train()
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            loss = method(batch()).loss
        loss.backward()
        losses.append(loss.float())
        gradients.append([p.grad for p in method.parameters() if p.grad is not None])
    assert losses[0] != losses[1], "nothing was multiplied in bfloat16"
    torch.testing.assert_close(losses[1], losses[0], rtol=0.03, atol=0.02)
    assert all(torch.isfinite(gradient).all() for gradient in gradients[1])
    exact, rounded = (torch.cat([g.flatten() for g in each]) for each in gradients)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.95


def test_the_table_has_them():
    assert set(OURS) <= set(METHODS)
