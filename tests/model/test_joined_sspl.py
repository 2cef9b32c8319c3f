"""SSPL on joined encoders: an SSPL each, and one map."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from small_batch import small_batch

from soundspot.model.checkpoint import Card, build_method, load, save
from soundspot.model.methods.method import Batch
from soundspot.training.recipe import FeatureSpec

SMALL = {"c_a": 5, "projection": 7, "hidden": 13, "visual_conv": True, "embedding": 5}
CLUSTERS = {"alignment": 3.0, "alignment_objective": "clusters", "clusters": 4}
MAPS = {"map_self_attention": 0.3, "map_centering": 0.6}


def build(method="joined-sspl", **settings):
    torch.manual_seed(0)
    built = build_method(method, {**SMALL, **CLUSTERS, **settings})
    for name, buffer in built.named_buffers():
        if "common_sound" in name:
            buffer.copy_(torch.randn(len(buffer)))
    return built


def test_one_encoder_is_sspl_itself():
    data = small_batch(11, (7, 7), 17)
    alone, joined = build("sspl", c_v=17, **MAPS), build(c_v=17, **MAPS)
    assert alone(data).loss == joined(data).loss
    for method in (alone, joined):
        method.eval()
    torch.testing.assert_close(
        alone.maps(data.f_v1, data.f_a), joined.maps(data.f_v1, data.f_a), atol=1e-6, rtol=0
    )


def test_the_map_is_the_mean_of_the_cosines_and_the_loss_that_of_the_losses():
    joined, data = build(c_v=17, parts=[11, 6]), small_batch(11, (7, 7), 17)
    parts = [(data.f_v1[:, :11], data.f_v2[:, :11]), (data.f_v1[:, 11:], data.f_v2[:, 11:])]
    outputs = [
        tower(Batch(*views, data.f_a, data.cls))
        for tower, views in zip(joined.towers, parts, strict=True)
    ]
    output = joined(data)
    assert output.loss == sum(o.loss for o in outputs) / 2
    assert output.report["z_std"] == sum(o.report["z_std"] for o in outputs) / 2
    joined.eval()
    maps = [t.maps(views[0], data.f_a) for t, views in zip(joined.towers, parts, strict=True)]
    assert not torch.allclose(*maps, atol=0.01)
    torch.testing.assert_close(joined.maps(data.f_v1, data.f_a), (maps[0] + maps[1]) / 2)


def test_no_encoder_learns_from_the_other():
    joined, data = build(c_v=17, parts=[11, 6]), small_batch(11, (7, 7), 17)
    (first,) = torch.autograd.grad(joined(data).loss, [joined.towers[0].branch.conv.weight])
    changed = data.f_v1.clone()
    changed[:, 11:] = 5 * torch.randn(11, 6, 7, 7)
    output = joined(data._replace(f_v1=changed))
    (again,) = torch.autograd.grad(output.loss, [joined.towers[0].branch.conv.weight])
    assert torch.equal(first, again) and first.abs().sum() > 0


@pytest.mark.parametrize(("first_attends", "part"), [(1.0, 0), (0.0, 1)])
def test_the_self_attention_compares_locations_by_the_encoders_that_count(first_attends, part):
    joined, data = (
        build(c_v=17, parts=[11, 6], first_attends=first_attends, **MAPS),
        small_batch(1, (7, 7), 17),
    )
    joined.eval()
    towers, views = joined.towers, (data.f_v1[:, :11], data.f_v1[:, 11:])
    convolved = [t.branch.conv(view)[0] for t, view in zip(towers, views, strict=True)]
    seen = [F.normalize(feature, dim=0).flatten(1) for feature in convolved]
    weights = (seen[part].T @ seen[part] / 0.3).softmax(dim=1)
    mixed = torch.cat(seen) @ weights.T
    heard = torch.cat([F.normalize(t.hear(data.f_a), dim=1)[0] for t in towers])
    expected = F.normalize(heard, dim=0) @ F.normalize(mixed, dim=0)
    maps = joined.maps(data.f_v1, data.f_a)
    torch.testing.assert_close(maps.flatten(), expected, atol=1e-5, rtol=0)


def test_what_maps_do_not_need_is_left_out_of_an_exported_model(tmp_path):
    joined, data = (
        build(c_v=17, parts=[11, 6], **MAPS).half().float().eval(),
        small_batch(2, (7, 7), 17),
    )
    card = Card("joined-sspl", dataclasses.asdict(joined.config), FeatureSpec(), slim=True)
    save(tmp_path / "slim.safetensors", joined, card)
    loaded, _ = load(tmp_path / "slim.safetensors")
    expected = joined.maps(data.f_v1, data.f_a)
    torch.testing.assert_close(loaded.maps(data.f_v1, data.f_a), expected)
    assert (tmp_path / "slim.safetensors").stat().st_size < 10_000
    names = {name for name, _ in joined.named_parameters()}
    kept = {name for name in names if not name.startswith(joined.training_only)}
    assert {n.split(".", 2)[2] for n in kept} == {
        *("branch.g.layers.0.weight", "branch.g.layers.0.bias", "branch.g.layers.2.weight"),
        *("branch.g.layers.2.bias", "branch.conv.weight", "branch.conv.bias"),
    }
