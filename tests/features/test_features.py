import json
import multiprocessing
import shutil

import numpy as np
import pytest
import torch

from soundspot.common.errors import SoundspotError
from soundspot.encoders.views import evaluation_view, random_view, view_generator
from soundspot.features import cache, encoding
from soundspot.features.cache import FeatureCache, FeatureSpec, load_encoders
from soundspot.features.encoding import encode, plan

SPEC = FeatureSpec(pretrained=False, views=2)


@pytest.fixture(scope="module")
def made(tiny_pairs, tmp_path_factory):
    """A complete cache; copy it before breaking it."""
    folder = tmp_path_factory.mktemp("cache") / "features"
    seen = []
    cache = encode(tiny_pairs, folder, SPEC, advance=seen.append)
    return cache, folder, sum(seen)


def as_tensor(pairs, frame):
    return torch.from_numpy(pairs.frame(frame)).permute(2, 0, 1)


def test_the_plan_counts_what_the_cache_will_hold(tiny_pairs, made):
    todo = plan(tiny_pairs)
    assert (len(todo.sounds), len(todo.train_frames), len(todo.eval_frames)) == (8, 11, 6)
    _, folder, advanced = made
    assert advanced == encoding.views_and_sounds(SPEC, todo) == 8 + 6 + 22
    on_disk = sum(path.stat().st_size for path in folder.glob("*.npy"))
    headers = 128 * len(list(folder.glob("*.npy")))
    assert on_disk - headers == encoding.size_on_disk(SPEC, todo)


def test_cached_features_are_what_the_encoders_say(tiny_pairs, made):
    cache, _, _ = made
    encoders = load_encoders(SPEC)
    frame = "frames/train-7.jpg"
    view = random_view(as_tensor(tiny_pairs, frame), SPEC.augmentations, view_generator(0, 1, 7))
    expected = encoders.visual(view[None])
    torch.testing.assert_close(cache.view([frame], [1]), expected, rtol=2e-3, atol=2e-3)
    whole = encoders.visual(evaluation_view(as_tensor(tiny_pairs, "frames/val-3.jpg"))[None])
    torch.testing.assert_close(cache.evaluation(["frames/val-3.jpg"]), whole, rtol=2e-3, atol=2e-3)
    wave = torch.from_numpy(tiny_pairs.waveform("sounds/val-1.flac"))[None]
    torch.testing.assert_close(cache.sound(["sounds/val-1.flac"]), encoders.audio(wave))


def test_features_come_in_channels_last(made):
    feature = made[0].view(["frames/train-0.jpg", "frames/train-1.jpg"], [0, 1])
    assert feature.shape == (2, 512, 14, 14)
    assert feature.is_contiguous(memory_format=torch.channels_last)


def test_a_second_run_computes_nothing(tiny_pairs, made, monkeypatch):
    _, folder, _ = made
    monkeypatch.setattr(encoding, "_write_shard", lambda *_: pytest.fail("computed again"))
    encode(tiny_pairs, folder, SPEC)


def test_a_killed_run_goes_on_to_the_same_bytes(tiny_pairs, made, tmp_path):
    _, folder, _ = made
    partial = tmp_path / "partial"
    shutil.copytree(folder, partial)
    (partial / "view01-00000.npy").unlink()
    (partial / ".view01-00000.77.npy").write_bytes(b"half")
    with pytest.raises(SoundspotError, match="incomplete.*view01"):
        FeatureCache.open(partial, tiny_pairs, SPEC)
    encode(tiny_pairs, partial, SPEC)
    for path in folder.glob("*.npy"):
        assert path.read_bytes() == (partial / path.name).read_bytes(), path.name


def test_views_can_be_added_and_more_than_needed_serve(tiny_pairs, made, tmp_path):
    folder = tmp_path / "grown"
    shutil.copytree(made[1], folder)
    three = FeatureSpec(pretrained=False, views=3)
    assert cache.cache_folder(tiny_pairs, three) == cache.cache_folder(tiny_pairs, SPEC)
    with pytest.raises(SoundspotError, match="view02-00000.npy is missing.*views=3"):
        FeatureCache.open(folder, tiny_pairs, three)
    first = (folder / "view00-00000.npy").stat().st_mtime_ns
    encode(tiny_pairs, folder, three)
    assert (folder / "view00-00000.npy").stat().st_mtime_ns == first
    FeatureCache.open(folder, tiny_pairs, SPEC)


def _encode_alone(pairs, folder):
    torch.set_num_threads(1)
    encode(pairs, folder, SPEC)


def test_two_processes_share_the_work(tiny_pairs, made, tmp_path):
    folder = tmp_path / "shared"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_encode_alone, args=(tiny_pairs, folder)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    for path in made[1].glob("*.npy"):
        ours = np.load(folder / path.name)
        np.testing.assert_allclose(ours, np.load(path), rtol=2e-3, atol=2e-3)


def test_a_stale_cache_is_refused_with_the_reason(tiny_pairs, made, tmp_path):
    folder = tmp_path / "stale"
    shutil.copytree(made[1], folder)
    other = FeatureSpec(pretrained=False, seed=3)
    with pytest.raises(SoundspotError, match="stale: its spec"):
        FeatureCache.open(folder, tiny_pairs, other)
    with pytest.raises(SoundspotError, match="stale: its weights"):
        FeatureCache.open(folder, tiny_pairs, SPEC, digest="other")
    description = json.loads((folder / "features.json").read_text())
    description["pairs"] = "another pair set"
    (folder / "features.json").write_text(json.dumps(description))
    with pytest.raises(SoundspotError, match="stale: its pairs"):
        encode(tiny_pairs, folder, SPEC)


@pytest.mark.parametrize("keep", [0, 40, 5000])
def test_a_torn_shard_is_refused_by_name(tiny_pairs, made, tmp_path, keep):
    folder = tmp_path / "torn"
    shutil.copytree(made[1], folder)
    shard = folder / "view00-00000.npy"
    shard.write_bytes(shard.read_bytes()[:keep])
    with pytest.raises(SoundspotError, match="view00-00000.npy is damaged"):
        FeatureCache.open(folder, tiny_pairs, SPEC)


def test_no_cache_says_how_to_make_one(tiny_pairs, tmp_path):
    with pytest.raises(SoundspotError, match="soundspot encode"):
        FeatureCache.open(tmp_path, tiny_pairs, SPEC)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"visual": "vgg61"}, "did you mean 'vgg16'"),
        ({"audio": "vgg16"}, "unknown audio encoder"),
        ({"views": 1}, "two views"),
        ({"augmentations": ("zoom",)}, "unknown augmentation"),
    ],
)
def test_impossible_specs_are_refused(values, message):
    with pytest.raises(SoundspotError, match=message):
        FeatureSpec(**values)
