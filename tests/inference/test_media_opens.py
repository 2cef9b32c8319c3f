"""How often a job opens its files: a file is opened once and handed on."""

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from brightness import brightness_localizer
from soundspot.inference.file_job import FileJob, run_file_jobs
from soundspot.inference.video import render_video
from soundspot.media import clips as media

MOST = 3  # openings of all files of a job together
TONE = 0.5 * np.sin(np.arange(16_000) / 7).astype(np.float32)
PAUSE = np.zeros(16_000, np.float32)
SOUND = np.concatenate([TONE, PAUSE, 0.3 * TONE, PAUSE, 0.2 * TONE])


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were opened for decoding, once for each opening."""
    names: list[str] = []
    open_media, open_image = av.open, Image.open

    def spy_media(file, mode=None, *args, **kwargs):
        if mode != "w":
            names.append(Path(file).name)
        return open_media(file, mode, *args, **kwargs)

    def spy_image(file, *args, **kwargs):
        image = open_image(file, *args, **kwargs)  # raises if it is not an image
        names.append(Path(file).name)
        return image

    monkeypatch.setattr(av, "open", spy_media)
    monkeypatch.setattr(Image, "open", spy_image)
    return names


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    tmp_path = tmp_path_factory.mktemp("files")
    frame = np.random.default_rng(0).integers(0, 256, (46, 62, 3), dtype=np.uint8)
    media.write_video(tmp_path / "v.mp4", [frame] * 50, SOUND, 10.0)
    media.write_video(tmp_path / "v.mkv", [frame] * 50, SOUND, 10.0)
    media.write_video(tmp_path / "long.mp4", [frame] * 320, np.tile(SOUND, 7)[:510_000], 10.0)
    Image.fromarray(frame).save(tmp_path / "p.png")
    media.write_flac(tmp_path / "s.flac", SOUND)
    return tmp_path


INPUTS = [
    ("v.mp4", None),
    ("v.mkv", None),
    ("long.mp4", None),
    ("v.mp4", "s.flac"),
    ("p.png", "s.flac"),
]


@pytest.mark.parametrize(("file", "audio"), INPUTS)
@pytest.mark.parametrize("options", [{}, {"at": 1.0}, {"sources": 3}])
@pytest.mark.parametrize("threshold", [0.0, 9.0])  # above all maps, more moments are seen
def test_a_picture(files, opens, file, audio, options, threshold):
    sound = None if audio is None else files / audio
    opens.clear()
    job = FileJob(files / file, sound, files / "out.png", **options)
    model = brightness_localizer(threshold=threshold)
    run_file_jobs([job], lambda: model, lambda line: None, lambda line: None)
    assert len(opens) <= MOST, opens
    if "sources" not in options and threshold == 0:
        assert sorted(opens) == sorted(filter(None, (file, audio)))  # each of them once


@pytest.mark.parametrize(("file", "audio"), [INPUTS[0], INPUTS[1], INPUTS[3]])
def test_a_whole_video(files: Path, opens: list[str], file: str, audio: str | None):
    sound = None if audio is None else files / audio
    opens.clear()
    job = FileJob(files / file, sound, files / "out.mp4", fps_map=1.0)
    run_file_jobs([job], brightness_localizer, lambda line: None, lambda line: None)
    assert len(opens) <= MOST + 1, opens  # pictures and sound are each decoded twice


def test_what_was_learned_is_handed_on(files: Path, opens: list[str]):
    info = media.probe(files / "v.mp4")
    assert opens == ["v.mp4"]
    opens.clear()
    assert media.probe(info) is not None and len(opens) <= 1
    opens.clear()
    for read in (media.read_frame, media.read_sound, media.read_waveform, media.read_clip):
        read(info)
    assert len(opens) == 4
    opens.clear()
    with media.opened(info) as file:
        media.read_frame(file)
        media.read_frame(file, 0.3)
        render_video(brightness_localizer(), file, files / "out.mkv", maps_per_second=1.0)
    assert len(opens) <= 2 + MOST
