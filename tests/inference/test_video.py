import json
import resource
import weakref
from pathlib import Path

import numpy as np
import pytest

from brightness import brightness_localizer
from made_files import limited, tone, write_clip
from soundspot.common.errors import SoundspotError
from soundspot.inference import figures, video
from soundspot.inference.maps import map_heat, resize_map
from soundspot.inference.result import Localization
from soundspot.inference.video import (
    Rendered,
    SmoothedMap,
    VideoMoment,
    blend,
    interpolate,
    render_video,
    smooth_maps,
)
from soundspot.media import clips as media
from soundspot.media import decoding

RATE = 16_000


def square(left: int, height: int = 47, width: int = 63) -> np.ndarray:
    frame = np.full((height, width, 3), 20, np.uint8)
    frame[height // 4 : height // 2, left : left + width // 4] = 250
    return frame


def make(path: Path, seconds: float, sound: np.ndarray | None, fps: float = 10.0) -> Path:
    """A white square that jumps from left to right half-way."""
    count = round(seconds * fps)
    frames = [square(3 if k < count / 2 else 40) for k in range(count)]
    media.write_video(path, frames, sound, fps)
    return path


@pytest.mark.parametrize("strength", [0.4, 1.0])
@pytest.mark.parametrize("shape", [(96, 152), (479, 271)])
def test_a_picture_looks_like_an_overlay_on_a_coarser_layer(shape, strength: float):
    y, x = np.mgrid[0 : 1 : shape[0] * 1j, 0 : 1 : shape[1] * 1j]
    frame = (255 * np.stack([x, 1 - y, 0.5 + 0.5 * np.sin(3 * (x + y))], -1)).astype(np.uint8)
    s = np.random.default_rng(3).random((5, 7), dtype=np.float32)
    heat = map_heat(resize_map(s, *shape))
    strip = figures.caption_strip(*shape, ("heard: dog", ""))
    wanted = np.vstack([figures.overlay(frame, heat, None, strength), strip])
    found = video.draw(frame, s, strength, ("heard: dog", ""))
    assert found.shape == wanted.shape
    assert np.abs(found - wanted.astype(float)).mean() < 2.5


def test_without_a_map_the_picture_is_only_muted():
    cold = figures.overlay(square(3), np.zeros((47, 63), np.float32))
    assert (video.draw(square(3), None, 1.0, ("",))[:47] == cold).all()


def constant(value: float) -> np.ndarray:
    return np.full((2, 3), value, np.float32)


def test_blending_weighs_maps_by_their_strength():
    mean, strength = blend(constant(0), 1.0, constant(1), 1.0, keep=0.75)
    np.testing.assert_allclose(mean, 0.25)
    assert strength == pytest.approx(1)
    mean, strength = blend(constant(0), 0.0, constant(1), 1.0, keep=0.75)  # after long silence
    np.testing.assert_allclose(mean, 1)
    assert strength == pytest.approx(0.25)
    mean, strength = blend(constant(0), 1.0, constant(1), 0.5, keep=0.5)
    np.testing.assert_allclose(mean, 1 / 3, rtol=1e-6)
    assert strength == pytest.approx(0.75)


def test_frames_between_two_maps_show_a_map_between_them():
    glows = [
        SmoothedMap(0.0, constant(0), 1.0, ("a",)),
        SmoothedMap(1.0, constant(1), 0.0, ("b",)),
        SmoothedMap(2.0, constant(3), 0.5, ("c",)),
    ]
    frames = [(t, i) for i, t in enumerate((0.0, 0.25, 1.0, 1.5, 2.0, 7.0))]
    shown = list(interpolate(iter(glows), frames))
    assert [frame for frame, _ in shown] == list(range(6))
    assert [glow.similarity[0, 0] for _, glow in shown] == [0, 0.25, 1, 2, 3, 3]
    assert [glow.strength for _, glow in shown] == [1, 0.75, 0, 0.25, 0.5, 0.5]
    assert [glow.caption[0] for _, glow in shown] == ["a", "a", "b", "b", "c", "c"]
    assert list(interpolate(iter([]), frames)) == []
    silence = SmoothedMap(0.0, None, 0.0, ("silence",))  # before the first sound
    (_, first), (_, second) = interpolate(iter([silence, glows[1]]), [(0.5, 0), (1.0, 1)])
    assert first.similarity is None and second.strength == 0.0


def test_silence_fades_and_is_said(tmp_path: Path):
    sound = np.concatenate([tone(440, 1.7), np.zeros(49_600, np.float32), tone(440, 1.2)])
    path = make(tmp_path / "v.mp4", 6, sound)
    moments: list[VideoMoment] = []
    glows = list(smooth_maps(brightness_localizer(), path, path, 2.0, moments.append))
    assert [m.at for m in moments] == [k / 2 for k in range(12)]
    assert [m.found is None for m in moments] == [k in (5, 6, 7, 8) for k in range(12)]
    assert moments[4].found.score > 0
    keep = np.exp(-0.5 / video.MEMORY)
    assert glows[4].strength == pytest.approx(1)
    assert [g.strength for g in glows[5:9]] == pytest.approx([keep**k for k in (1, 2, 3, 4)])
    assert glows[8].caption == (video.SILENCE,)
    assert glows[11].strength > 0.95
    np.testing.assert_array_equal(glows[8].similarity, glows[4].similarity)  # it stays and fades


def test_a_source_that_is_not_in_the_picture_is_drawn_faintly(tmp_path: Path):
    path = make(tmp_path / "v.mp4", 1, tone(440, 1))
    (sure,) = smooth_maps(brightness_localizer(threshold=0.01), path, path, 1.0)
    (unsure,) = smooth_maps(brightness_localizer(threshold=0.9), path, path, 1.0)
    assert sure.strength == 1.0 > unsure.strength > 0
    assert sure.caption != unsure.caption


@pytest.mark.parametrize("ending", [".mp4", ".mov", ".mkv", ".webm"])
def test_the_heat_moves_with_the_picture_and_the_sound_stays(tmp_path: Path, ending: str):
    sweep = 0.5 * np.sin(np.cumsum(np.linspace(0.05, 0.9, 2 * RATE))).astype(np.float32)
    path, out = make(tmp_path / "v.mp4", 2, sweep), tmp_path / f"out{ending}"
    out.write_text("old")
    assert render_video(brightness_localizer(), path, out) == Rendered(maps=8, silent=0)
    info = media.probe(out)
    assert info.duration == pytest.approx(2, abs=0.15) and info.has_sound
    assert info.size[0] == 64 and info.size[1] % 2 == 0 and info.size[1] > 48  # 63 x 47 + caption
    for at, inside, outside in ((0.5, 10, 48), (1.8, 48, 10)):
        frame = media.read_frame(out, at).astype(int)
        assert frame[16, inside].sum() > frame[16, outside].sum() + 200
    heard = media.read_waveform(out)
    overlap = np.correlate(heard[4_000 : 4_000 + 8_000], sweep[3_800 : 3_800 + 8_400], "valid")
    assert abs(int(overlap.argmax()) - 200) <= 32  # 2 ms
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["v.mp4", out.name])


def test_pictures_at_uneven_times_keep_them(tmp_path: Path):
    path, out = tmp_path / "v.mkv", tmp_path / "out.mp4"
    ticks = [0, 1, 2, 5, 6, 13, 14, 20]
    media.write_flac(tmp_path / "s.flac", tone(440, 3))
    write_clip(path, pictures=[square(3, 48, 64)] * 8, times=ticks)
    with pytest.raises(SoundspotError):
        render_video(brightness_localizer(), path, out)
    render_video(brightness_localizer(), path, out, audio=tmp_path / "s.flac", maps_per_second=1.0)
    times = [time for time, _ in decoding.decode(out, "video", 0.0)]
    assert times == pytest.approx([tick / 10 for tick in ticks], abs=1e-3)


def test_a_turned_video_comes_out_upright(tmp_path: Path):
    path, out = tmp_path / "v.mp4", tmp_path / "out.mp4"
    media.write_flac(tmp_path / "s.flac", tone(440, 3))
    write_clip(path, pictures=[square(3, 48, 64)] * 5, turn=(90.0, False, False))
    render_video(brightness_localizer(), path, out, audio=tmp_path / "s.flac")
    width, height = media.probe(out).size
    assert width == 48 and height > 64
    bright = media.read_frame(out, 0.2)[:64].mean(axis=2)
    y, x = np.unravel_index(bright.argmax(), bright.shape)
    assert media.read_frame(path, 0.2)[y, x].min() > 200  # the square turned with the picture


@pytest.mark.parametrize("sounding", [0.7, 9.0])
def test_a_sound_that_is_shorter_or_longer_than_the_pictures(tmp_path: Path, sounding: float):
    media.write_flac(tmp_path / "s.flac", tone(440, sounding))
    path, out = make(tmp_path / "v.mp4", 3, None), tmp_path / "out.mp4"
    done = render_video(
        brightness_localizer(), path, out, audio=tmp_path / "s.flac", maps_per_second=2.0
    )
    assert done.maps == 6 and (done.silent > 0) == (sounding < 3)
    assert media.probe(out).duration == pytest.approx(3, abs=0.15)
    assert len(media.read_waveform(out)) / RATE == pytest.approx(min(sounding, 3), abs=0.15)


class Held:
    """A decoded frame that is counted as long as anybody holds it."""

    alive = most = 0

    def __init__(self, frame) -> None:
        self.frame = frame
        Held.alive += 1
        Held.most = max(Held.most, Held.alive)

    def __getattr__(self, name: str):
        return getattr(self.frame, name)

    def __del__(self) -> None:
        Held.alive -= 1


@pytest.mark.slow
def test_no_more_than_a_few_frames_and_sounds_are_held(tmp_path: Path, monkeypatch):
    path = make(tmp_path / "v.mp4", 30, tone(440, 30), fps=4.0)
    decode, to_rgb, iter_windows = decoding.decode, decoding.to_rgb, media.iter_windows
    arrays = {"alive": 0, "most": 0}

    def counted(array: np.ndarray) -> np.ndarray:
        arrays["alive"] += 1
        arrays["most"] = max(arrays["most"], arrays["alive"])
        weakref.finalize(array, lambda: arrays.update(alive=arrays["alive"] - 1))
        return array

    def frames(path, kind, *arguments):
        for time, frame in decode(path, kind, *arguments):
            yield time, Held(frame) if kind == "video" else frame

    monkeypatch.setattr(decoding, "decode", frames)
    monkeypatch.setattr(
        decoding, "to_rgb", lambda path, held, *most: counted(to_rgb(path, held.frame, *most))
    )
    monkeypatch.setattr(
        video,
        "iter_windows",
        lambda *arguments: (tuple(map(counted, both)) for both in iter_windows(*arguments)),
    )
    assert render_video(brightness_localizer(), path, tmp_path / "out.mp4").maps == 120
    assert 0 < Held.most <= 6 + video.DRAWN_AHEAD  # of 240 that were decoded
    assert 0 < arrays["most"] <= 12  # of 120 pictures and 240 windows of sound


def test_an_interruption_leaves_the_old_file(tmp_path: Path):
    path, out = make(tmp_path / "v.mp4", 2, tone(440, 2)), tmp_path / "out.mp4"
    out.write_text("old")

    def interrupt(moment: VideoMoment) -> None:
        if moment.at > 0.6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        render_video(brightness_localizer(), path, out, note=interrupt)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.mp4", "v.mp4"]


def test_a_disk_that_takes_no_more_is_one_sentence(tmp_path: Path):
    path, out = make(tmp_path / "v.mp4", 2, tone(440, 2)), tmp_path / "out.mp4"
    with limited(resource.RLIMIT_FSIZE, 4_000), pytest.raises(SoundspotError):
        render_video(brightness_localizer(), path, out)
    assert [p.name for p in tmp_path.iterdir()] == ["v.mp4"]


def test_what_no_video_is_made_of(tmp_path: Path):
    path = make(tmp_path / "v.mp4", 1, tone(440, 1))
    media.write_jpeg(tmp_path / "p.jpg", square(3))
    half = tmp_path / "half.mp4"
    half.write_bytes(path.read_bytes()[:2000])
    for source, out in (
        (tmp_path / "p.jpg", "out.mp4"),
        (half, "out.mp4"),
        (path, "out.avi"),
        (path, "v.mp4"),
        (path, "absent/out.mp4"),
    ):
        with pytest.raises(SoundspotError):
            render_video(brightness_localizer(), source, tmp_path / out)
    with pytest.raises(SoundspotError):
        render_video(brightness_localizer(), path, tmp_path / "out.mp4", maps_per_second=0.0)


def test_a_moment_is_a_line_of_json():
    found = Localization(np.full((2, 2), 0.25, np.float32), [("Dog", 0.5)], "m", threshold=0.2)
    line = VideoMoment(0.5, found).line()
    assert "\n" not in line
    told = json.loads(line)
    assert (told["at"], told["silent"], told["score"]) == (0.5, False, 0.25)
    assert told["verdict"] == "visible" and told["labels"][0]["name"] == "Dog"
    assert json.loads(VideoMoment(1.0, None).line())["silent"]
