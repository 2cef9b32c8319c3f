"""Files whose headers and time stamps claim what they do not hold."""

import struct
import threading
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_clips import gray, refused

from made_files import tone, write_clip, write_media
from soundspot.common.errors import SoundspotError
from soundspot.inference.moments import listen
from soundspot.media import clips as media
from soundspot.media import deadline, decoding, images, writing

AGES = 1e12  # s


def flv_with_a_late_track(path: Path, kind: int) -> Path:
    """A packet of a track that nothing announces, far behind what opening looks at."""
    write_clip(
        path,
        pictures=[gray(k % 40) for k in range(300)],
        sound=tone(440, 30, 44_100),
        video_codec="flv1",
    )
    data = bytearray(path.read_bytes())
    at, tags = 13, []
    while at + 11 <= len(data):
        tags.append(at)
        at += 11 + int.from_bytes(data[at + 1 : at + 4], "big") + 4
    late = next(at for at in tags[-40:] if data[at] != kind)
    data[late] = kind
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", [8, 9, 18])  # sound, pictures, text
def test_a_track_that_appears_late_is_one_sentence(tmp_path: Path, kind: int):
    path = flv_with_a_late_track(tmp_path / "v.flv", kind)
    # PyAV looks the track up beyond the end of its list: what it finds there decides whether the
    # packet is passed over or the file is refused.
    for read in (media.read_waveform, lambda path: list(media.iter_frames(path, 4.0))):
        try:
            assert len(read(path)) > 0
        except SoundspotError as error:
            assert "v.flv is cut short or damaged" in str(error)


def matroska_of_ages(path: Path, seconds: float = AGES) -> Path:
    """Two seconds that announce a length of their own choice."""
    write_clip(path, pictures=[gray(k) for k in range(20)], sound=tone(440, 2, 44_100))
    data = bytearray(path.read_bytes())
    at = data.index(b"\x44\x89\x88")  # Duration, 8 bytes, in milliseconds
    data[at + 3 : at + 11] = struct.pack(">d", seconds * 1000)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("seconds", [AGES, 1e9, 1e17])
def test_an_absurd_length_is_not_believed(tmp_path: Path, seconds: float):
    path = matroska_of_ages(tmp_path / "v.mkv", seconds)
    assert media.probe(path).duration == pytest.approx(2, abs=0.1)
    assert media.read_clip(path).at == pytest.approx(1, abs=0.05)


def test_listening_stops_where_the_sound_does(tmp_path: Path):
    path = matroska_of_ages(tmp_path / "v.mkv")
    heard = listen(path, AGES, lambda sounds: np.ones((len(sounds), 1), np.float32))
    assert 4 <= len(heard.rms) <= 5
    assert heard.seconds == pytest.approx(2, abs=0.6)


def test_pictures_that_jump_ages_ahead_are_refused(tmp_path: Path):
    path = tmp_path / "v.mkv"
    write_clip(path, pictures=[gray(k) for k in range(3)], times=[0, 1, 10**11], b_frames=0)
    assert "pictures jump ahead to 10000000000.00 s" in refused(
        lambda: sum(1 for _ in media.iter_frames(path, 4.0))
    )


def test_a_copied_sound_that_jumps_ages_ahead_is_refused(tmp_path: Path):
    path = write_clip(
        tmp_path / "s.mka",
        sound=tone(440, 2, 44_100),
        sound_codec="flac",
        sound_times={44_032: 10**8},
    )
    frames = decoding.decode(path, "audio", 0.0)
    with pytest.raises(media.MediaError):
        sum(1 for _ in writing.stereo_blocks(path, frames))


def test_a_decoder_that_never_answers_is_one_sentence(tmp_path: Path, monkeypatch):
    path = write_clip(
        tmp_path / "v.mp4", pictures=[gray(k) for k in range(20)], sound=tone(440, 2, 44_100)
    )

    def never(items: object, refuse: Callable[[], Exception], keep: object) -> Iterator[object]:
        raise refuse()
        yield  # a generator, as the real one

    monkeypatch.setattr(deadline, "within", never)
    for read in (
        lambda: media.read_frame(path),
        lambda: list(media.iter_frames(path, 4.0)),
        lambda: list(decoding.decode(path, "video", 1.0)),
    ):
        assert "v.mp4 is damaged: a picture takes longer than 60 s" in refused(read)


def test_a_decoder_that_answers_late_ends_after_all(monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(deadline, "SECONDS", 0.01)
    late = (answer.wait(20) for _ in range(1))
    with pytest.raises(TimeoutError):
        next(deadline.within(late, TimeoutError, keep=late))
    left = [thread for thread in threading.enumerate() if thread.name == "decoder"]
    answer.set()
    for thread in left:
        thread.join(20)
        assert not thread.is_alive()


def test_a_large_jpeg_is_read_smaller_and_other_formats_are_refused(tmp_path: Path, monkeypatch):
    for module in (images, decoding):
        monkeypatch.setattr(module, "MOST_PIXELS", 50 * 100)
    pixels = np.full((101, 211, 3), 77, np.uint8)
    for name in ("a.jpg", "a.png", "a.webp"):
        Image.fromarray(pixels).save(tmp_path / name)
    small = media.read_frame(tmp_path / "a.jpg")
    assert small.shape == (26, 53, 3) and abs(int(small[5, 5, 0]) - 77) <= 1
    assert media.probe(tmp_path / "a.jpg").size == (53, 26)
    media.write_video(tmp_path / "a.mp4", [np.full((64, 96, 3), 9, np.uint8)] * 2, None, 5.0)
    for name in ("a.png", "a.webp", "a.mp4"):
        with pytest.raises(media.MediaError) as caught:
            media.read_frame(tmp_path / name)
        assert caught.value.code == "unreadable"


@pytest.mark.parametrize("rate", [1, 999])
def test_a_sound_of_a_few_samples_a_second_is_refused(tmp_path: Path, rate: int):
    with wave.open(str(tmp_path / "s.wav"), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(bytes(range(1, 251)) * 80)
    with pytest.raises(media.MediaError) as caught:
        media.read_sound(tmp_path / "s.wav")
    assert caught.value.code == "unreadable"


def test_a_walk_that_is_left_ends_its_thread(tmp_path: Path):
    path = write_clip(tmp_path / "v.mp4", pictures=[gray(k) for k in range(20)])
    before = threading.active_count()
    frames = media.iter_frames(path, 4.0)
    next(frames)
    assert threading.active_count() == before + 1
    frames.close()
    for thread in threading.enumerate():
        if thread.name == "decoder":
            thread.join(10)
    assert threading.active_count() == before


def test_pictures_of_an_unknown_codec_leave_the_sound(tmp_path: Path):
    path = tmp_path / "v.mov"
    write_media(path, "mjpeg", "aac")
    path.write_bytes(path.read_bytes().replace(b"jpeg", b"zzzz"))
    assert len(media.read_waveform(path)) == pytest.approx(2 * 16_000, rel=0.02)
    with pytest.raises(SoundspotError) as refusal:
        media.read_clip(path)
    assert refusal.value.code == "no-picture"
