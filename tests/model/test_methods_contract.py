"""What the training loop and the localizer rely on, for every method of the table."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from small_batch import small_batch

import reference
from soundspot.common.errors import ConfigError, SoundspotError
from soundspot.model.checkpoint import Card, build_method, load, save
from soundspot.model.methods import METHODS
from soundspot.model.methods.cosine import CosineMethod
from soundspot.training.recipe import FeatureSpec

HEADS = {"projection": 7, "hidden": 13}
SMALLER = {"sspl": HEADS, "fnac": {"warmup": 0}}
TRAINED = [name for name in METHODS if name != "names"]
TEACHES_ALONE = ["sspl", "contrastive", "icl", "ssltie", "student"]  # from a single pair
SECOND_MAPS = [("cavl", "distance"), ("dmc", "cosine"), ("dsol", "cosine"), ("mssl", "activation")]
# At first CAVL's centers may be nearest to all sounds, and DSOL's dictionary is empty.
MAPS = [
    *((name, {}) for name in TRAINED if name not in ("cavl", "dsol")),
    *((name, {"map": kind}) for name, kind in SECOND_MAPS),
]
COSINES = [name for name in TRAINED if issubclass(METHODS[name].module, CosineMethod)]
IN_STAGES = ["dsol", "mssl"]  # not every weight learns from the first step on


def build(name, **settings):
    torch.manual_seed(0)
    return build_method(name, {"c_v": 7, "c_a": 5, **SMALLER.get(name, {}), **settings})


@pytest.mark.parametrize("name", [n for n in TRAINED if n not in IN_STAGES])
def test_gradients_reach_what_is_trained_and_nothing_else(name):
    method = build(name)
    method(small_batch(11, (7, 7))).loss.backward()
    silent = [
        n
        for n, p in method.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.abs().sum() > 0)
    ]
    assert silent == []
    slow = [n for n, p in method.named_parameters() if not p.requires_grad]
    assert {n.split(".")[0] for n in slow} <= {"slow", "last"}


@pytest.mark.parametrize(("name", "settings"), MAPS)
def test_maps_have_a_grid_and_follow_the_sound(name, settings):
    method, data = build(name, **settings).eval(), small_batch(1, (3, 5))
    maps = method.maps(data.f_v1, data.f_a)
    assert maps.shape == (1, 3, 5)
    other = method.maps(data.f_v1, -data.f_a)
    assert not torch.allclose(maps, other, atol=1e-3)


@pytest.mark.parametrize("name", COSINES)
@pytest.mark.parametrize("visual_conv", [False, True])
def test_maps_of_two_projections_are_their_cosine(name, visual_conv):
    method, data = build(name, visual_conv=visual_conv), small_batch(1)
    with torch.no_grad():
        seen, heard = method.conv(data.f_v1).double().numpy(), method.g(data.f_a).double().numpy()
        found = method.maps(data.f_v1, data.f_a)
    np.testing.assert_allclose(found, reference.similarity(heard, seen), atol=1e-5)


@pytest.mark.parametrize(("name", "settings"), [each for each in MAPS if each[0] != "dsol"])
def test_maps_need_every_weight_but_those_of_training_only(name, settings):
    method, data = build(name, **settings).eval(), small_batch(2)
    before = method.maps(data.f_v1, data.f_a)
    for key in method.state_dict():
        if key.endswith("num_batches_tracked"):
            continue
        moved = copy.deepcopy(method)
        moved.state_dict()[key].add_(1)
        same = torch.equal(moved.maps(data.f_v1, data.f_a), before)
        assert same == key.startswith(method.training_only), key


@pytest.mark.parametrize("name", TRAINED)
def test_an_exported_method_makes_the_same_maps(name, tmp_path):
    method, data = build(name).half().float().eval(), small_batch(2)
    card = Card(name, dataclasses.asdict(method.config), FeatureSpec(), slim=True)
    save(tmp_path / "slim.safetensors", method, card)
    loaded, _ = load(tmp_path / "slim.safetensors")
    torch.testing.assert_close(loaded.maps(data.f_v1, data.f_a), method.maps(data.f_v1, data.f_a))


def train(method, optimizer, steps):
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = method(small_batch(11, (7, 7), seed=step)).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", TRAINED)
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


@pytest.mark.parametrize("name", TRAINED)
def test_evaluating_a_loss_changes_nothing(name):
    method = build(name).eval()
    before = {key: value.clone() for key, value in method.state_dict().items()}
    with torch.no_grad():
        assert (
            method(small_batch(11, (7, 7))).loss.item()
            == method(small_batch(11, (7, 7))).loss.item()
        )
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())


@pytest.mark.parametrize("name", [n for n in TRAINED if n not in TEACHES_ALONE])
def test_a_single_pair_has_nothing_to_be_told_from(name):
    with pytest.raises(SoundspotError):
        build(name)(small_batch(1))


@pytest.mark.parametrize("name", TRAINED)
def test_a_constant_feature_leaves_finite_losses_and_gradients(name):
    """A black frame, whose every location looks the same."""
    method, data = build(name), small_batch(3, (7, 7))
    flat = torch.ones_like(data.f_v1)
    loss = method(data._replace(f_v1=flat, f_v2=flat)).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in method.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("attention", {"c_v": 0}),
        ("cavl", {"margin": 0.0}),
        ("contrastive", {"parts": [2, 2]}),
        ("contrastive", {"embedding": 3, "visual_conv": False}),
        ("contrastive", {"first_attends": 1.1}),
        ("dmc", {"centers": 1}),
        ("dsol", {"kinds": 1}),
        ("fnac", {"audio_weight": -1.0}),
        ("hardway", {"background_threshold": 0.7}),
        ("marginnce", {"margin": 3.0}),
        ("icl", {"positive_threshold": 0.3}),
        ("mssl", {"threshold": 1.0}),
        ("names", {"root": 0.0}),
        ("sacl", {"negatives": 0.0}),
        ("slavc", {"momentum": 1.5}),
        ("sspl", {"objective": "none"}),
        ("sspl", {"embedding": 3}),
        ("ssltie", {"shift": -1}),
    ],
)
def test_impossible_settings_are_refused(name, wrong):
    with pytest.raises(ConfigError):
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


def test_losses_of_small_differences_stay_in_float32():
    kept = {name for name in METHODS if METHODS[name].module.full_precision}
    assert kept == {"cavl", "dmc", "sacl"}


@pytest.mark.parametrize(("name", "settings"), IN_BFLOAT16)
def test_a_step_in_bfloat16_is_close_to_one_in_float32(name, settings):
    """train.amp: no two types meet, and what is learned is the same."""
    losses, gradients = [], []
    for amp in (False, True):
        method = build(name, **settings).train()
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            loss = method(small_batch(11, (7, 7))).loss
        loss.backward()
        losses.append(loss.float())
        gradients.append([p.grad for p in method.parameters() if p.grad is not None])
    assert losses[0] != losses[1], "nothing was multiplied in bfloat16"
    torch.testing.assert_close(losses[1], losses[0], rtol=0.03, atol=0.02)
    assert all(torch.isfinite(gradient).all() for gradient in gradients[1])
    exact, rounded = (torch.cat([g.flatten() for g in each]) for each in gradients)
    assert torch.cosine_similarity(exact, rounded, dim=0) > 0.95
