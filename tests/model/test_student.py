"""The small model: hearing from contrast, extent from a teacher."""

import json

import numpy as np
import pytest
import torch

from brightness import brightness_localizer
from soundspot.common.errors import ConfigError
from soundspot.encoders.mobilenetv2 import FineMobileNetV2, MobileNetV2
from soundspot.evaluation.predictions import validate
from soundspot.features.cache import FeatureCache, cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.inference import teacher
from soundspot.model.checkpoint import build_method
from soundspot.model.methods.method import Batch
from soundspot.training.data import TrainingData, batches
from soundspot.training.loop import train
from soundspot.training.recipe import Recipe, TrainConfig

C_V = 1664


def student(**settings):
    torch.manual_seed(0)
    return build_method("student", {"c_v": C_V, "c_a": 5, "fine": 96, "embedding": 11, **settings})


def batch(taught=True, b=3, grid=(2, 3)):
    rng = torch.Generator().manual_seed(1)
    views = [torch.randn(b, C_V, *grid, generator=rng) for _ in range(2)]
    heat = torch.rand(b, 2, 2 * grid[0], 2 * grid[1], generator=rng) if taught else None
    return Batch(*views, torch.randn(b, 3, 5, generator=rng), torch.full((b,), -1), heat)


def test_the_finer_feature_keeps_its_places():
    torch.manual_seed(0)
    encoder = FineMobileNetV2().eval()
    image = torch.rand(1, 3, 64, 96)
    with torch.no_grad():
        feature = encoder(image)
        last, fine = feature[:, :1280], torch.nn.functional.pixel_shuffle(feature[:, 1280:], 2)
        plain = MobileNetV2().eval()
        plain.load_state_dict(encoder.state_dict())
        torch.testing.assert_close(last, plain(image))
        middle = encoder.blocks[:13](torch.nn.functional.relu6(encoder.stem(image)))
    torch.testing.assert_close(fine, middle)
    assert last.shape == (1, 1280, 2, 3) and fine.shape == (1, 96, 4, 6)


def test_maps_are_heat_on_the_finer_grid():
    model, data = student().eval(), batch()
    maps = model.maps(data.f_v1, data.f_a)
    assert maps.shape == (3, 4, 6) and maps.min() > 0 and maps.max() < 1
    assert not torch.allclose(maps, model.maps(data.f_v1, -data.f_a), atol=1e-3)
    alone = model.maps(data.f_v1[:1], data.f_a[:1])
    torch.testing.assert_close(alone[0], maps[0])


def test_it_learns_the_teachers_maps_and_every_weight_takes_part():
    model, data = student(extent=50.0), batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    first = model(data)
    for _ in range(40):
        optimizer.zero_grad()
        model(data).loss.backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    assert model(data).report["extent"] < first.report["extent"] - 0.05
    unseen = data._replace(taught=torch.full_like(data.taught, torch.nan))
    assert model(unseen).report["extent"] == 0


def test_without_a_teacher_it_only_hears_and_needs_channels_for_its_last_feature():
    alone = student()(batch(taught=False))
    assert alone.loss == alone.report["contrast"] and "extent" not in alone.report
    with pytest.raises(ConfigError):
        build_method("student", {"c_v": 384, "fine": 96})


def test_the_teacher_looks_at_every_third_frame_once(tiny_pairs, monkeypatch):
    monkeypatch.setattr(teacher, "load", lambda name, device: brightness_localizer())
    maps = teacher.teacher_maps("bright", tiny_pairs)
    rows = tiny_pairs.select("train")
    assert len(maps) == len(rows) and maps.dtype == np.float32
    seen = np.isfinite(maps).all(axis=(1, 2))
    np.testing.assert_array_equal(np.flatnonzero(seen), range(0, len(rows), 3))
    np.testing.assert_allclose(maps[seen].max(axis=(1, 2)), 1)
    monkeypatch.setattr(teacher, "Pictures", None)  # nothing is seen again
    np.testing.assert_array_equal(teacher.teacher_maps("bright", tiny_pairs), maps)


def test_a_student_trains_by_a_recipe(tiny_pairs, tmp_path):
    spec = FeatureSpec(visual="mobilenetv2-fine", pretrained=False, views=2)
    encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    config = TrainConfig(steps=2, validate_every=1, batch=4, patience=0)
    plan = Recipe(tiny_pairs.root, "student", {"fine": 96, "embedding": 5}, spec, config, "bright")
    maps = np.full((len(tiny_pairs.select("train")), 14, 14), np.nan, np.float32)
    maps[::3] = np.linspace(0, 1, 14)

    def teach(pairs):
        return maps

    state = train(plan, tmp_path / "run", validate, teach=teach)
    assert state.step == 2
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    assert all(np.isfinite(json.loads(line)["train_extent"]) for line in lines)
    cache = FeatureCache.open(cache_folder(tiny_pairs, spec), tiny_pairs, spec)
    data = TrainingData(tiny_pairs, "train", cache, None, 0, torch.from_numpy(maps))
    (batch,) = batches(data, 0, 4, stop=1)
    assert batch.taught.shape == (4, 2, 22, 22)
    # Each view is flipped or not, and so is what the teacher saw.
    known = batch.taught[~batch.taught.isnan().any(dim=(1, 2, 3))]
    rise = known[..., -4:].mean(dim=(2, 3)) - known[..., :4].mean(dim=(2, 3))
    assert (rise.abs() > 0.7).all()
