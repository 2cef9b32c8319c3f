"""encoding.py: what is computed, by one process or several, at once or resumed."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from filelock import FileLock

from soundspot.common.errors import SoundspotError
from soundspot.encoders.views import evaluation_view, random_view, view_generator
from soundspot.features import cache, encoding, spec
from soundspot.features.cache import FeatureCache, cache_folder, contents_of
from soundspot.features.encoding import encode, noise_generator
from soundspot.features.spec import FeatureSpec, load_encoders
from soundspot.media.sound import add_noise

pytestmark = pytest.mark.usefixtures("thin_vgg16")

SPEC = FeatureSpec(pretrained=False, views=2)


def as_tensor(pairs, frame):
    return torch.from_numpy(pairs.frame(frame)).permute(2, 0, 1)


def test_the_contents_of_a_cache_are_known_before_it_is_made(tiny_pairs, made):
    contents = contents_of(tiny_pairs)
    counted = (contents.sounds, contents.train_frames, contents.eval_frames)
    assert [len(names) for names in counted] == [8, 11, 6]
    _, folder, advanced = made
    assert advanced == encoding.views_and_sounds(SPEC, contents) == 8 + 6 + 22
    on_disk = sum(path.stat().st_size for path in folder.glob("*.npy"))
    headers = 128 * len(list(folder.glob("*.npy")))
    assert on_disk - headers == encoding.size_on_disk(SPEC, contents)


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


class Coarse(torch.nn.Module):
    """Quick in bfloat16 on any processor, unlike VGG16."""

    def forward(self, image):
        weight = torch.randn(512, 3, 1, 1, generator=torch.Generator().manual_seed(0))
        return F.conv2d(F.avg_pool2d(image, 16), weight)


def test_rounded_features_are_nearly_the_same_and_have_a_cache_of_their_own(
    tiny_pairs, tmp_path, monkeypatch
):
    def load(*arguments):
        return load_encoders(*arguments)._replace(visual=Coarse())

    monkeypatch.setattr(encoding, "load_encoders", load)
    plain, frames = replace(SPEC, views=0), ["frames/val-3.jpg"]
    exact = encode(tiny_pairs, tmp_path / "exact", plain).evaluation(frames)
    for multiplies in (False, True):
        monkeypatch.setattr(spec, "multiplies_bfloat16", lambda device, m=multiplies: m)
        folder = tmp_path / str(multiplies)
        found = encode(tiny_pairs, folder, replace(plain, amp=True)).evaluation(frames)
        assert torch.equal(found, exact) != multiplies
        assert (found - exact).norm() < 0.02 * exact.norm()
    assert cache_folder(tiny_pairs, replace(plain, amp=True)) != cache_folder(tiny_pairs, plain)
    with pytest.raises(SoundspotError):
        encode(tiny_pairs, folder, plain)


def test_noisy_sounds_are_added_to_a_cache(tiny_pairs, made, copied):
    noisy, folder = replace(SPEC, noisy=2), copied
    with pytest.raises(SoundspotError):
        FeatureCache.open(folder, tiny_pairs, noisy)
    done = []
    cache = encode(tiny_pairs, folder, noisy, done.append)
    assert sum(done) == encoding.views_and_sounds(noisy, contents_of(tiny_pairs))
    path, row = "sounds/val-1.flac", contents_of(tiny_pairs).sounds.index("sounds/val-1.flac")
    sound = tiny_pairs.waveform(path)
    heard = [sound, *(add_noise(sound, noise_generator(0, version, row)) for version in (1, 2))]
    expected = load_encoders(SPEC).audio(torch.from_numpy(np.stack(heard)))
    torch.testing.assert_close(cache.sound([path] * 3, [0, 1, 2]), expected)
    assert torch.equal(cache.sound([path]), made[0].sound([path]))


def test_a_killed_run_computes_what_is_missing_and_nothing_else(tiny_pairs, made, copied):
    """To the same bytes; what was left half-written is swept away."""
    left = [copied / ".features.0123abcd.json", copied / ".view01-00000.0123abcd.npy"]
    for path in left:
        path.write_bytes(b"half")
    (copied / "view01-00000.npy").unlink()
    before = {path.name: path.stat().st_mtime_ns for path in copied.glob("[a-z]*.npy")}
    with pytest.raises(SoundspotError):
        FeatureCache.open(copied, tiny_pairs, SPEC)
    encode(tiny_pairs, copied, SPEC)
    for path in made[1].glob("*.npy"):
        assert path.read_bytes() == (copied / path.name).read_bytes(), path.name
    assert all((copied / name).stat().st_mtime_ns == time for name, time in before.items())
    assert not any(path.exists() for path in left)


def test_the_folder_is_listed_as_often_for_many_shards_as_for_few(
    tiny_pairs, tmp_path, monkeypatch
):
    listed, plain = [], Path.glob
    monkeypatch.setattr(Path, "glob", lambda at, *how: listed.append(at) or plain(at, *how))
    counts = []
    for per_shard in (256, 1):
        monkeypatch.setattr(cache, "SHARD_FRAMES", per_shard)
        listed.clear()
        encode(tiny_pairs, tmp_path / str(per_shard), SPEC)
        counts.append(listed.count(tmp_path / str(per_shard)))
    assert len(list(plain(tmp_path / "1", "view*.npy"))) > 9
    assert counts[0] == counts[1] > 0


def test_views_can_be_added_and_more_than_needed_serve(tiny_pairs, copied):
    three = FeatureSpec(pretrained=False, views=3)
    assert cache_folder(tiny_pairs, three) == cache_folder(tiny_pairs, SPEC)
    with pytest.raises(SoundspotError):
        FeatureCache.open(copied, tiny_pairs, three)
    first = (copied / "view00-00000.npy").stat().st_mtime_ns
    encode(tiny_pairs, copied, three)
    assert (copied / "view00-00000.npy").stat().st_mtime_ns == first
    FeatureCache.open(copied, tiny_pairs, SPEC)


@pytest.mark.slow
def test_two_processes_share_the_work(tiny_pairs, made, tmp_path):
    folder = tmp_path / "shared"
    context = multiprocessing.get_context("fork")
    work = tiny_pairs, folder, SPEC
    workers = [context.Process(target=encode, args=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    for path in made[1].glob("*.npy"):
        ours = np.load(folder / path.name)
        np.testing.assert_allclose(ours, np.load(path), rtol=2e-3, atol=2e-3)


def test_frames_are_shown_at_the_size_of_their_encoder(tiny_pairs, tmp_path):
    spec = FeatureSpec("mobilenetv2", pretrained=False, views=0)
    cache = encode(tiny_pairs, tmp_path / "small", spec)
    frame = "frames/val-3.jpg"
    view = evaluation_view(as_tensor(tiny_pairs, frame), 448)
    expected = load_encoders(spec).visual(view[None])
    assert expected.shape == (1, 1280, 14, 14)
    torch.testing.assert_close(cache.evaluation([frame]), expected, rtol=2e-3, atol=2e-3)


def test_the_half_file_of_a_shard_is_swept_while_another_one_is_held(tiny_pairs, copied):
    """The lock of the held one belongs to a process that may still be writing."""
    folder = copied
    left, held = (folder / f".view{k:02d}-00000.0123abcd.npy" for k in (1, 9))
    left.write_bytes(b"half")
    held.write_bytes(b"half")
    with FileLock(folder / ".locks" / "view09-00000.npy"):
        encode(tiny_pairs, folder, SPEC)
    assert not left.exists()
    assert held.exists()
