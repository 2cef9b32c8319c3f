"""Media files made here, frame by frame and sample by sample, so that every answer is known."""

import gc
import io
import itertools
import os
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from made_files import tone, write_clip
from soundspot.common.errors import SoundspotError
from soundspot.media import clips as media
from soundspot.media import decoding

FPS = 10
WIDTH, HEIGHT = 64, 48
VIDEO_FORMATS = {
    "mp4": "libx264",
    "mov": "mjpeg",
    "mkv": "libx264",
    "webm": "libvpx",
    "ts": "libx264",
    "avi": "mpeg4",
}


def gray(index: int) -> NDArray[np.uint8]:
    """A picture whose brightness tells its number, for numbers up to 45."""
    return np.full((HEIGHT, WIDTH, 3), 20 + 5 * index, np.uint8)


def number(picture: NDArray[np.uint8]) -> int:
    return round((float(np.median(picture)) - 20) / 5)


def noise(seconds: float, rate: int) -> NDArray[np.float32]:
    draw = np.random.default_rng(seed=7).uniform(-0.5, 0.5, round(seconds * rate))
    return draw.astype(np.float32)


def refused(call: Any, *args: Any, **kwargs: Any) -> str:
    """The message of the refusal, which must be one sentence."""
    with pytest.raises(SoundspotError) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert not message.endswith(".")
    return message


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """3 s: 30 numbered pictures and a tone."""
    return write_clip(
        tmp_path / "clip.mp4", pictures=[gray(i) for i in range(30)], sound=tone(440, 3.0, 44_100)
    )


# Frames


@pytest.mark.parametrize("suffix", VIDEO_FORMATS)
def test_frame_at_a_moment(tmp_path: Path, suffix: str) -> None:
    path = write_clip(
        tmp_path / f"film.{suffix}",
        pictures=[gray(i) for i in range(31)],
        video_codec=VIDEO_FORMATS[suffix],
    )
    for at, expected in {0.0: 0, 0.05: 0, 0.1: 1, 0.79: 7, 1.43: 14, 3.0: 30, 3.1: 30}.items():
        assert number(media.read_frame(path, at)) == expected, at
    assert number(media.read_frame(path)) == 15  # shown at 3.1 s / 2
    assert media.probe(path).duration == pytest.approx(3.1)


@pytest.mark.parametrize(
    ("suffix", "codec"), [("mp4", "libx264"), ("mkv", "libx264"), ("webm", "libvpx")]
)
def test_one_frame_is_read_as_a_full_decode_shows_it(tmp_path, suffix, codec):
    rng = np.random.default_rng(seed=13)
    scene = rng.integers(0, 255, (HEIGHT, WIDTH + 37, 3), np.uint8)
    pictures = [np.ascontiguousarray(scene[:, i : i + WIDTH]) for i in range(37)]
    # Unevenly, and with a stop, in which a frame that no other refers to may be the one shown.
    times = [*range(17), *range(31, 51)]
    path = write_clip(
        tmp_path / f"film.{suffix}",
        pictures=pictures,
        video_codec=codec,
        times=times,
        key_frames=11,
        b_frames=3,
    )
    full = [p for _, p in media.iter_frames(path, float(FPS))]
    sought = {}
    for tick in range(51):
        with decoding.open_container(path) as container:
            frame = decoding.frame_at(path, container, tick / FPS)
        if frame is not None:
            sought[tick] = decoding.to_rgb(path, frame)
    assert set(range(48)) <= set(sought)  # of the last ones a full decode must tell
    for tick, picture in sought.items():
        np.testing.assert_array_equal(picture, full[tick], str(tick))


def test_what_seeking_cannot_tell_is_counted(tmp_path: Path, clip: Path) -> None:
    film = write_clip(tmp_path / "film.avi", pictures=[gray(i) for i in range(20)], b_frames=3)
    sound = write_clip(tmp_path / "a.wav", sound=tone(440, 1.0, 44_100), sound_codec="pcm_s16le")
    for path, at in ((film, 1.0), (clip, 2.95), (clip, 9.0), (sound, 0.5)):
        with decoding.open_container(path) as container:
            assert decoding.frame_at(path, container, at) is None
    assert number(media.read_frame(clip, 2.95)) == 29
    assert [number(media.read_frame(film, i / FPS)) for i in range(20)] == list(range(20))


@pytest.mark.parametrize("suffix", ["mp4", "mkv", "ts"])
def test_time_counts_from_the_first_time_stamp(tmp_path: Path, suffix: str) -> None:
    path = write_clip(
        tmp_path / f"late.{suffix}", pictures=[gray(i) for i in range(30)], times=range(50, 80)
    )
    assert media.probe(path).duration == pytest.approx(3.0)
    assert number(media.read_frame(path, 0.0)) == 0
    assert number(media.read_frame(path, 2.0)) == 20


def test_raw_stream_without_time_stamps(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "raw.h264", pictures=[gray(i) for i in range(20)])
    assert media.probe(path).duration == pytest.approx(2.0)
    assert number(media.read_frame(path, 1.3)) == 13


@pytest.mark.parametrize("at", [3.2, -0.1, float("nan"), float("inf")])
def test_moment_outside_is_refused_with_the_length(clip: Path, at: float) -> None:
    for read in (media.read_frame, media.read_sound):
        assert "3.00 s long" in refused(read, clip, at)


@pytest.mark.parametrize("mirror", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("turn", [0, 90, 180, -90])
def test_display_matrix(tmp_path: Path, turn: int, mirror: tuple[bool, bool]) -> None:
    stored = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    stored[:16, :16] = 220  # the corner tells the eight positions apart
    stored[:16, 16:32] = 130
    path = write_clip(tmp_path / "phone.mp4", pictures=[stored], turn=(turn, *mirror))
    expected = np.rot90(stored, turn // 90)
    expected = expected[:, ::-1] if mirror[0] else expected
    expected = expected[::-1] if mirror[1] else expected
    picture = media.read_frame(path, 0.0)
    assert picture.shape == expected.shape
    assert np.abs(picture.astype(int) - expected).mean() < 4
    assert media.probe(path).size == (expected.shape[1], expected.shape[0])


@pytest.mark.parametrize("suffix", ["mov", "avi"])
def test_pictures_with_exif_in_a_film(tmp_path: Path, suffix: str) -> None:
    # Cameras write them; PyAV 18 cannot list the side data of such frames.
    stored = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    stored[:16, :16] = 220
    exif = Image.Exif()
    exif[0x0112] = 6
    jpeg = io.BytesIO()
    Image.fromarray(stored).save(jpeg, "JPEG", exif=exif)
    path = tmp_path / f"camera.{suffix}"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("mjpeg", rate=FPS)
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuvj420p"
        packet = av.Packet(jpeg.getvalue())
        packet.stream, packet.time_base, packet.pts, packet.dts = stream, Fraction(1, FPS), 0, 0
        output.mux(packet)
    picture = media.read_frame(path, 0.0)
    assert picture.shape == (WIDTH, HEIGHT, 3)
    assert picture[4, -4, 0] > 200 > 60 > picture[4, 4, 0]  # the corner went to the right


def test_damaged_picture_is_refused_and_its_neighbors_read(tmp_path: Path) -> None:
    pictures = np.random.default_rng(seed=3).integers(0, 255, (9, HEIGHT, WIDTH, 3), np.uint8)
    path = write_clip(tmp_path / "a.mp4", pictures=list(pictures), key_frames=1, b_frames=0)
    with av.open(str(path)) as container:
        position, size = [(p.pos or 0, p.size) for p in container.demux(video=0)][5]
    data = bytearray(path.read_bytes())
    data[position + size // 3 : position + size] = bytes(size - size // 3)
    path.write_bytes(data)
    assert "damaged: its picture at 0.50 s" in refused(media.read_frame, path, 0.5)
    media.read_frame(path, 0.4)
    media.read_frame(path, 0.6)


def test_iter_frames_to_the_last_one_of_unknown_length(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.flv", pictures=[gray(i) for i in range(13)], video_codec="flv")
    assert [number(p) for _, p in media.iter_frames(path, float(FPS))] == list(range(13))


def test_iter_frames_shows_what_read_frame_shows(clip: Path) -> None:
    walk = list(media.iter_frames(clip, 7.0))
    assert [time for time, _ in walk] == [k / 7 for k in range(21)]
    for time, picture in walk:
        np.testing.assert_array_equal(picture, media.read_frame(clip, time))
    twice = media.iter_frames(clip, 2.0 * FPS)
    assert [number(picture) for _, picture in twice] == [k // 2 for k in range(60)]


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_frame_rate(clip: Path, fps: float) -> None:
    assert "above 0" in refused(lambda: next(media.iter_frames(clip, fps)))


# Images


def corner_picture() -> NDArray[np.uint8]:
    picture = np.zeros((5, 7, 3), np.uint8)
    picture[0, 0] = (250, 100, 20)
    picture[0, 6] = (10, 200, 30)
    return picture


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_exif_orientation(tmp_path: Path, orientation: int) -> None:
    stored = corner_picture()
    upright = {1: stored, 3: stored[::-1, ::-1], 6: np.rot90(stored, -1)}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "photo.png"
    Image.fromarray(stored).save(path, exif=exif)
    np.testing.assert_array_equal(media.read_frame(path), upright)
    assert media.probe(path).size == (upright.shape[1], upright.shape[0])


def test_image_modes(tmp_path: Path) -> None:
    rgb = Image.fromarray(corner_picture())
    for mode in ("RGB", "RGBA", "CMYK", "P"):
        path = tmp_path / f"{mode}.{'tif' if mode == 'CMYK' else 'png'}"
        rgb.convert(mode).save(path)
        picture = media.read_frame(path)
        assert picture.dtype == np.uint8
        np.testing.assert_allclose(picture, corner_picture(), atol=60 if mode == "P" else 0)


def test_gray_images(tmp_path: Path) -> None:
    ramp = np.arange(0, 231, 11, dtype=np.uint8).reshape(3, 7)
    expected = np.stack([ramp] * 3, axis=2)
    for name, image in {
        "L.png": Image.fromarray(ramp),
        "16 bits.png": Image.fromarray(ramp.astype(np.uint16) * 257),
        "16 bits.pgm": Image.fromarray(ramp.astype(np.int32) * 257),
    }.items():
        image.save(tmp_path / name)
        np.testing.assert_array_equal(media.read_frame(tmp_path / name), expected)
    Image.fromarray(ramp > 100).save(tmp_path / "1.png")
    np.testing.assert_array_equal(
        media.read_frame(tmp_path / "1.png"), np.where(expected > 100, 255, 0)
    )


@pytest.mark.parametrize("pixels", [np.float32([[0.5]]), np.int32([[70_000]])])
def test_32_bit_pixels_have_no_agreed_white(tmp_path: Path, pixels: NDArray[Any]) -> None:
    path = tmp_path / "deep.tif"
    Image.fromarray(pixels).save(path)
    assert "8 or 16 bits" in refused(media.read_frame, path)


def test_transparent_pixels_are_white(tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    pixels = np.zeros((3, 5, 4), np.uint8)
    pixels[0, 0] = (200, 100, 50, 255)
    pixels[0, 1] = (0, 0, 0, 51)
    Image.fromarray(pixels).save(path)
    picture = media.read_frame(path)
    assert picture[0, :3].tolist() == [[200, 100, 50], [204] * 3, [255] * 3]


def test_animated_image_gives_its_first_frame(tmp_path: Path) -> None:
    path = tmp_path / "wink.gif"
    first, second = Image.new("RGB", (11, 7), (255, 0, 0)), Image.new("RGB", (11, 7), (0, 0, 255))
    first.save(path, save_all=True, append_images=[second])
    assert media.probe(path) == media.MediaInfo(path, "image", None, (11, 7), has_sound=False)
    assert (media.read_frame(path, at=99.0) == (255, 0, 0)).all()


# Sound


@pytest.mark.parametrize(
    ("name", "codec", "rate"),
    [
        ("a.wav", "pcm_s16le", 44_100),
        ("a.wav", "pcm_u8", 8_000),
        ("a.wav", "pcm_f32le", 48_000),
        ("a.wav", "pcm_s32le", 22_050),
        ("a.flac", "flac", 16_000),
        ("a.mp3", "libmp3lame", 44_100),
        ("a.m4a", "aac", 48_000),
        ("a.ogg", "libopus", 48_000),
    ],
)
def test_tone_comes_back_in_place(tmp_path: Path, name: str, codec: str, rate: int) -> None:
    path = write_clip(tmp_path / name, sound=tone(440, 2.0, rate), sound_codec=codec, rate=rate)
    waveform = media.read_waveform(path)
    assert waveform.dtype == np.float32
    assert len(waveform) == pytest.approx(32_000, abs=800)  # codecs pad the last frame
    expected = tone(440, 2.0, media.SAMPLE_RATE)
    apart = {
        shift: float(np.abs(waveform[3000 + shift : 29_000 + shift] - expected[3000:29_000]).mean())
        for shift in (-1, 0, 1)  # a shift by one sample alone makes 0.055
    }
    assert min(apart, key=apart.__getitem__) == 0
    assert apart[0] < 0.04
    info = media.probe(path)
    assert (info.kind, info.size, info.has_sound) == ("sound", None, True)
    assert info.duration == pytest.approx(2.0, abs=0.06)


@pytest.mark.parametrize("codec", ["pcm_s16le", "pcm_f32le"])
def test_channels_are_averaged(tmp_path: Path, codec: str) -> None:
    left = tone(440, 1.0, 16_000)
    both = np.stack([left, -0.5 * left])
    path = write_clip(tmp_path / "a.wav", sound=both, sound_codec=codec, rate=16_000)
    np.testing.assert_allclose(media.read_waveform(path), 0.25 * left, atol=1e-4)


def test_cuts_by_hand_are_copies_and_repeat_a_short_sound() -> None:
    ramp = np.arange(10 * media.SAMPLE_RATE, dtype=np.float32)
    starts = {None: 56_000, 5.0: 56_000, 1.5: 0, 0.0: 0, 1.75: 4_000, 8.5: 112_000, 10.0: 112_000}
    for center, start in starts.items():
        window = media.cut(ramp, center, media.SOUND_SAMPLES)
        np.testing.assert_array_equal(window, np.arange(start, start + 48_000))
        window[:] = -1  # a copy
    assert ramp.min() == 0
    short = np.array([1, 2, 3], np.float32)
    assert media.cut(short, 0.0, 7).tolist() == [1, 2, 3, 1, 2, 3, 1]
    refused(media.cut, np.zeros(0, np.float32), None, 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "codec", "rate"),
    [
        ("long.mp4", "aac", 44_100),
        ("long.flac", "flac", 8_000),
        ("long.mkv", "libopus", 48_000),  # milliseconds do not tell the sample
        ("long.mp3", "libmp3lame", 44_100),
    ],
)
def test_window_equals_the_slice_of_the_whole(tmp_path, name, codec, rate):
    path = write_clip(tmp_path / name, sound=noise(23.0, rate), sound_codec=codec, rate=rate)
    whole = media.read_waveform(path)
    for at in (0.0, 0.4, 1.7, 12.013, 19.33331, 23.0):
        window = media.read_sound(path, at)
        np.testing.assert_array_equal(window, media.cut(whole, at, media.SOUND_SAMPLES), str(at))
    assert media.read_sound(path, 20.0, seconds=0.5).shape == (8_000,)


def click(seconds: float, at: float, rate: int) -> NDArray[np.float32]:
    sound = np.zeros(round(seconds * rate), np.float32)
    sound[round(at * rate)] = 0.9
    return sound


@pytest.mark.parametrize(("suffix", "codec"), [("mov", "pcm_s16le"), ("mkv", "flac")])
def test_sound_that_starts_after_the_pictures(tmp_path: Path, suffix: str, codec: str) -> None:
    path = write_clip(
        tmp_path / f"late.{suffix}",
        pictures=[gray(i) for i in range(40)],
        sound=click(3.0, 0.5, 44_100),
        sound_codec=codec,
        sound_times={0: 44_100},
    )
    waveform = media.read_waveform(path)
    assert len(waveform) == 64_000
    assert np.argmax(waveform) == 24_000  # a second late, half a second in
    assert not waveform[:15_900].any()
    assert np.argmax(media.read_sound(path, at=2.0)) == 24_000 - 8_000


@pytest.mark.parametrize("suffix", ["mov", "mkv", "ts"])
def test_pictures_that_start_after_the_sound(tmp_path: Path, suffix: str) -> None:
    path = write_clip(
        tmp_path / f"late.{suffix}",
        pictures=[gray(i) for i in range(30)],
        times=range(7, 37),
        sound=click(3.7, 2.0, 44_100),
        sound_codec={"mov": "pcm_s16le", "mkv": "flac", "ts": "mp2"}[suffix],
    )
    assert media.probe(path).duration == pytest.approx(3.0)
    assert [number(media.read_frame(path, at)) for at in (0.0, 1.3, 2.9)] == [0, 13, 29]
    waveform = media.read_waveform(path)
    assert len(waveform) == pytest.approx(48_000, abs=600)
    assert abs(int(np.argmax(waveform)) - 20_800) <= 16  # 2.0 s of sound is 1.3 s of pictures


def test_hole_in_the_sound_is_silence(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "hole.mkv",
        sound=click(3.0, 2.0, 44_100),
        sound_codec="pcm_s16le",
        sound_times={44_032: 44_032 + 44_100},  # the 44th block of 1024 samples and all after it
    )
    waveform = media.read_waveform(path)
    assert len(waveform) == pytest.approx(64_000, abs=16)
    assert abs(int(np.argmax(waveform)) - 48_000) <= 16  # Matroska rounds to milliseconds


def test_absurd_hole_is_refused(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "hole.mkv",
        sound=tone(440, 2.0, 44_100),
        sound_codec="pcm_s16le",
        sound_times={44_032: 700 * 44_100},
    )
    assert "jumps ahead to 700.00 s" in refused(media.read_waveform, path)


def test_change_of_sampling_rate_is_refused(tmp_path: Path) -> None:
    one = write_clip(tmp_path / "1.aac", sound=tone(440, 1.0, 44_100))
    two = write_clip(tmp_path / "2.aac", sound=tone(440, 1.0, 22_050), rate=22_050)
    path = tmp_path / "both.aac"
    path.write_bytes(one.read_bytes() + two.read_bytes())
    assert "sampling rate" in refused(media.read_waveform, path)


def test_sound_that_ends_before_the_pictures(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "a.mp4", pictures=[gray(i) for i in range(40)], sound=tone(440, 2.0, 44_100)
    )
    whole = media.read_waveform(path)
    np.testing.assert_array_equal(media.read_sound(path, 2.3), media.cut(whole, 2.3, 48_000))
    assert "no sound at 3.50 s" in refused(media.read_sound, path, 3.5)
    windows = list(media.iter_windows(path, [k / 2 for k in range(8)], (3.0,)))
    assert [window is None for window in windows] == [False] * 6 + [True] * 2


@pytest.mark.parametrize("level", [0.0, 5e-5, 0.25])
def test_silence_is_refused_and_quiet_is_not(tmp_path: Path, level: float) -> None:
    # A constant level is as silent as zero; so is a whisper below 1e-4.
    still = np.full(32_000, level, np.float32) + 5e-5 * tone(440, 2.0, 16_000)
    path = write_clip(tmp_path / "quiet.wav", sound=still, sound_codec="pcm_f32le", rate=16_000)
    assert "silent" in refused(media.read_sound, path)
    assert media.read_waveform(path).shape == (32_000,)
    quiet = 4e-4 * tone(440, 2.0, 16_000)  # a peak of 2e-4
    path = write_clip(tmp_path / "quiet.wav", sound=quiet, sound_codec="pcm_f32le", rate=16_000)
    assert media.read_sound(path).any()


def test_infinite_samples_are_refused(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "a.wav", sound=tone(440, 1.0, 44_100), sound_codec="pcm_f32le")
    data = bytearray(path.read_bytes())
    data[-4000:-3996] = struct.pack("<f", float("nan"))
    path.write_bytes(data)
    assert "damaged" in refused(media.read_sound, path)


# Clips


def test_clip_is_read_from_one_opening(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    open_container = decoding.open_container

    def spy(path: Path, *limits: Any) -> Any:
        opened.append(path)
        return open_container(path, *limits)

    monkeypatch.setattr(decoding, "open_container", spy)
    for at in (0.4, None, 2.2):
        read = media.read_clip(clip, at=at)
        assert read.at == (at or 1.5) and number(read.frame) == round(read.at * FPS)
        assert opened == [clip]
        np.testing.assert_array_equal(read.waveform, media.read_sound(clip, read.at))
        opened.clear()


def test_clip_without_an_announced_length(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "recorded.webm",
        pictures=[gray(i) for i in range(30)],
        sound=tone(440, 3.0, 48_000),
        video_codec="libvpx",
        sound_codec="libopus",
        rate=48_000,
        options={"live": "1"},
    )
    read = media.read_clip(path)
    assert number(read.frame) == 15
    np.testing.assert_array_equal(
        read.waveform, media.cut(media.read_waveform(path), read.at, media.SOUND_SAMPLES)
    )


def test_lost_picture_is_told_before_silence(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "a.mkv",
        pictures=[gray(i) for i in range(10)],
        sound=np.zeros(4 * 44_100, np.float32),
        sound_codec="flac",
    )
    assert "silent" in refused(media.read_clip, path, at=0.5)
    assert "no picture at 2.00 s" in refused(media.read_clip, path, at=2.0)


def test_clip_of_an_image_and_a_sound(tmp_path: Path) -> None:
    image, sound = tmp_path / "a.png", tmp_path / "a.flac"
    Image.fromarray(corner_picture()).save(image)
    media.write_flac(sound, noise(7.0, 16_000))
    middle = media.read_clip(image, sound)
    assert middle.at is None
    np.testing.assert_array_equal(middle.frame, corner_picture())
    np.testing.assert_array_equal(middle.waveform, media.read_sound(sound, 3.5))
    np.testing.assert_array_equal(
        media.read_clip(image, sound, at=5.0).waveform, media.read_sound(sound, 5.0)
    )


def test_clip_of_a_video_with_another_sound_on_its_clock(tmp_path: Path, clip: Path) -> None:
    media.write_flac(tmp_path / "a.flac", noise(7.0, 16_000))
    read = media.read_clip(clip, tmp_path / "a.flac")
    assert (number(read.frame), read.at) == (15, 1.5)
    np.testing.assert_array_equal(read.waveform, media.read_sound(tmp_path / "a.flac", 1.5))


@pytest.mark.slow
def test_walked_windows_equal_those_that_are_read(tmp_path: Path) -> None:
    path = write_clip(
        tmp_path / "a.mp4", pictures=[gray(i % 40) for i in range(70)], sound=noise(7.0, 44_100)
    )
    times = [k / 3 for k in range(21)]
    walked = list(media.iter_windows(path, times, (3.0, 1.0, 0.3)))
    for at, windows in zip(times, walked, strict=True):
        for seconds, window in zip((3.0, 1.0, 0.3), windows or (), strict=True):
            np.testing.assert_array_equal(window, media.read_sound(path, at, seconds))


# Refusals


def test_cover_picture_is_no_video(tmp_path: Path) -> None:
    path = write_clip(tmp_path / "song.mp3", sound=tone(440, 1.0, 44_100), sound_codec="libmp3lame")
    cover = io.BytesIO()
    Image.fromarray(corner_picture()).save(cover, "PNG")
    body = b"\0image/png\0\3\0" + cover.getvalue()
    frame = b"APIC" + struct.pack(">IH", len(body), 0) + body
    size = bytes(len(frame) >> shift & 127 for shift in (21, 14, 7, 0))  # ID3v2.3: 7 bits a byte
    sound = path.read_bytes()
    assert sound[:3] == b"ID3"
    own = sum(b << s for b, s in zip(sound[6:10], (21, 14, 7, 0), strict=True)) + 10
    path.write_bytes(b"ID3\3\0\0" + size + frame + sound[own:])
    with av.open(str(path)) as container:
        assert len(container.streams.video) == 1
    assert media.probe(path).kind == "sound"
    assert "no picture" in refused(media.read_frame, path)
    assert "a sound, not a video" in refused(lambda: next(media.iter_frames(path, 1.0)))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    film = write_clip(tmp_path / "film.mp4", pictures=[gray(1)] * 5)
    image = tmp_path / "a.png"
    Image.fromarray(corner_picture()).save(image)
    sound = write_clip(tmp_path / "a.wav", sound=tone(440, 1.0, 44_100), sound_codec="pcm_s16le")
    assert not media.probe(film).has_sound
    for read in (media.read_clip, media.read_sound, media.read_waveform):
        assert "video without sound" in refused(read, film)
        assert "image without sound" in refused(read, image)
    assert "video without sound" in refused(lambda: next(media.iter_windows(film, [1.0], (1.0,))))
    assert "no picture" in refused(media.read_clip, sound)
    assert "no picture" in refused(media.read_clip, sound, sound)
    assert "image without sound" in refused(media.read_clip, image, image)


TEXTS = {
    "notes.txt": "FFmpeg draws such a file as a video.\n" * 9,
    "list.m3u8": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nnowhere.ts\n",
    "join.ffconcat": "ffconcat version 1.0\nfile 'clip.mp4'\n",
    "named.mp4": "not a video",
    "named.png": "not an image",
    "sub.srt": "1\n00:00:01,000 --> 00:00:02,000\nHello\n\n",
}


@pytest.mark.parametrize("read", [media.probe, media.read_frame, media.read_sound, media.read_clip])
def test_files_that_are_no_media(tmp_path: Path, clip: Path, read: Any) -> None:
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
        assert name in refused(read, tmp_path / name)
    # Pillow knows these first bytes, but cannot read what follows.
    (tmp_path / "a.mpg").write_bytes(b"\0\0\1\xb3\x04\0\x03" + b"\xff" * 100)
    assert "a.mpg" in refused(read, tmp_path / "a.mpg")
    (tmp_path / "empty.mp4").touch()
    assert "empty.mp4 is empty (0 bytes)" in refused(read, tmp_path / "empty.mp4")
    assert "No such file" in refused(read, tmp_path / "missing.mp4")
    assert "not a file" in refused(read, tmp_path)
    assert "No such file" in refused(lambda: next(media.iter_frames(tmp_path / "missing.mp4", 1.0)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file(clip: Path) -> None:
    clip.chmod(0)
    assert "Permission denied" in refused(media.probe, clip)


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_file_cut_in_the_middle(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(seed=3)
    whole = write_clip(
        tmp_path / f"whole.{suffix}",
        pictures=list(rng.integers(0, 255, (40, HEIGHT, WIDTH, 3), np.uint8)),
        sound=noise(4.0, 44_100),
        sound_codec="flac",
        options={"movflags": "+faststart"} if suffix == "mp4" else {},
    )
    path = tmp_path / f"cut.{suffix}"
    data = whole.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 5])
    assert media.probe(path).duration == pytest.approx(4.0, abs=0.05)  # what it announces
    np.testing.assert_array_equal(media.read_frame(path, 0.9), media.read_frame(whole, 0.9))
    for read in (media.read_frame, media.read_sound, media.read_clip):
        message = refused(read, path, at=3.0)
        assert "cut short or damaged" in message
        assert str(path) in message


def test_decoders_are_quiet(tmp_path, clip, capfd, caplog):
    rng = np.random.default_rng(seed=11)
    for round_ in range(20):
        data = bytearray(clip.read_bytes())
        for place in rng.integers(0, len(data), 30):
            data[place] ^= 0xFF
        (tmp_path / "bad.mp4").write_bytes(data)
        for read in (media.probe, media.read_clip, media.read_waveform):
            try:
                read(tmp_path / "bad.mp4")
            except SoundspotError as error:
                assert "bad.mp4" in str(error), round_
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize("name", ["a:b.mp4", "-n.mp4", "spaß %d #1?.mp4", "http:x.mp4"])
def test_odd_names(clip: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    clip.rename(clip.with_name(name))
    monkeypatch.chdir(clip.parent)
    assert number(media.read_clip(name).frame) == 15


# Writing


def test_flac_comes_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    waveform = np.round(noise(2.3, 16_000) * 2**15).astype(np.float32) / 2**15
    media.write_flac(path, waveform)
    np.testing.assert_array_equal(media.read_waveform(path), waveform)
    first = path.read_bytes()
    media.write_flac(path, waveform)
    assert path.read_bytes() == first


def test_flac_clips_what_16_bits_cannot_hold(tmp_path: Path) -> None:
    media.write_flac(tmp_path / "a.flac", np.float32([-1.5, -1.0, 0.5, 1.0, 7.0] * 20))
    top = 1 - 2**-15
    assert media.read_waveform(tmp_path / "a.flac")[:5].tolist() == [-1, -1, 0.5, top, top]


@pytest.mark.parametrize("suffix", ["mp4", "mov", "mkv"])
def test_video_comes_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    sound = tone(440, 2.0, 16_000)
    media.write_video(path, (gray(i)[:47, :63] for i in range(24)), sound, fps=12.5)
    info = media.probe(path)
    assert info.size == (64, 48)  # odd sides gain a line
    assert info.duration == pytest.approx(24 / 12.5, abs=0.15)
    assert [number(p) for _, p in media.iter_frames(path, 12.5)] == list(range(24))
    waveform = media.read_waveform(path)
    assert len(waveform) == pytest.approx(24 / 12.5 * 16_000, abs=2048)
    np.testing.assert_allclose(waveform[3000:29_000], sound[3000:29_000], atol=0.05)


def test_video_may_lack_sound_or_outlast_it(tmp_path: Path) -> None:
    media.write_video(tmp_path / "a.mp4", [gray(3)] * 20, None, 10.0)
    assert not media.probe(tmp_path / "a.mp4").has_sound
    media.write_video(tmp_path / "b.mp4", [gray(3)] * 20, tone(440, 0.5, 16_000), 10.0)
    assert media.probe(tmp_path / "b.mp4").duration == pytest.approx(2.0)
    assert len(media.read_waveform(tmp_path / "b.mp4")) == pytest.approx(8_000, abs=1100)


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_text("the old one")

    def frames() -> Iterator[NDArray[np.uint8]]:
        yield from itertools.repeat(gray(1), 200)  # more than the encoder keeps back
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        media.write_video(path, frames(), None, 10.0)
    assert path.read_text() == "the old one"
    assert "change size at 0.10 s" in refused(
        media.write_video, path, iter([gray(1), gray(1)[:32]]), None, 10.0
    )
    assert [p.name for p in tmp_path.iterdir()] == ["a.mp4"]
    assert path.read_text() == "the old one"


def test_what_cannot_be_written(tmp_path: Path) -> None:
    assert ".mp4" in refused(media.write_video, tmp_path / "a.txt", [gray(1)], None, 10.0)
    assert "got none" in refused(media.write_video, tmp_path / "a.mp4", [], None, 10.0)
    assert "above 0" in refused(media.write_video, tmp_path / "a.mp4", [gray(1)], None, 0.0)
    assert "No such" in refused(media.write_video, tmp_path / "no/a.mp4", [gray(1)], None, 10.0)
    assert "No such" in refused(media.write_flac, tmp_path / "no/a.flac", tone(440, 1.0, 44_100))
    assert "No such" in refused(media.write_jpeg, tmp_path / "no/a.jpg", gray(1))
    (tmp_path / "file").touch()
    assert "Not a directory" in refused(media.write_jpeg, tmp_path / "file/a.jpg", gray(1))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("at", "heard"), [(0.4, (0.0, 3.0)), (2.5, (1.0, 4.0)), (4.9, (2.0, 5.0)), (None, (1.0, 4.0))]
)
def test_a_clip_knows_which_seconds_it_holds(tmp_path: Path, at: float | None, heard: tuple):
    clock = (np.arange(80_000) / 80_000 - 0.5).astype(np.float32)  # tells where it was cut
    media.write_flac(tmp_path / "s.flac", clock)
    frame = np.zeros((8, 8, 3), np.uint8)
    media.write_jpeg(tmp_path / "p.jpg", frame)
    clip = media.read_clip(tmp_path / "p.jpg", tmp_path / "s.flac", at)
    assert clip.heard == pytest.approx(heard)
    assert (clip.waveform[0] + 0.5) * 5 == pytest.approx(heard[0], abs=1e-3)
    media.write_flac(tmp_path / "s.flac", clock[:20_000])
    clip = media.read_clip(tmp_path / "p.jpg", tmp_path / "s.flac")
    assert clip.heard == pytest.approx((0.0, 1.25)) and len(clip.waveform) == 48_000


def test_pictures_are_freed_at_once(clip: Path) -> None:
    """Not only when Python looks for cycles: a decoded picture takes megabytes."""
    media.read_clip(clip, at=0.4)
    gc.collect()
    gc.disable()
    try:
        media.read_clip(clip, at=0.4)
        media.probe(clip)
        list(media.iter_frames(clip, 5.0))
        left = [thing for thing in gc.get_objects() if type(thing) is av.VideoFrame]
    finally:
        gc.enable()
    assert left == []
