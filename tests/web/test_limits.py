"""What is refused of an upload before any of its pictures is decoded."""

import io
from fractions import Fraction
from pathlib import Path

import av
import pytest
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.media import clips as media
from soundspot.media import deadline, decoding
from soundspot.media.clips import MediaError
from soundspot.web.limits import Limits, check_upload
from web_media import write_clip

SMALL, LARGE = (64, 48), (640, 480)
LIMITS = Limits(megapixels=0.01)  # between the two


def write_mjpeg(path: Path, *sizes: tuple[int, int]) -> Path:
    """A video of one picture a second, each with a size of its own; the header has the first."""
    with av.open(str(path), "w") as out:
        stream = out.add_stream("mjpeg", rate=1)
        stream.width, stream.height = sizes[0]
        stream.pix_fmt = "yuvj420p"
        for second, size in enumerate(sizes):
            jpeg = io.BytesIO()
            Image.new("RGB", size, (90, 60, second)).save(jpeg, "JPEG")
            packet = av.Packet(jpeg.getvalue())
            packet.stream, packet.time_base = stream, Fraction(1)
            packet.pts, packet.dts, packet.duration = second, second, 1
            packet.is_keyframe = True
            out.mux(packet)
    return path


def test_limits(tmp_path: Path):
    path = write_clip(tmp_path / "a.mp4")
    assert check_upload(path, Limits()).kind == "video"
    with pytest.raises(
        SoundspotError, match="a.mp4 is 2 s long, but this page accepts up to 1.5 s"
    ):
        check_upload(path, Limits(seconds=1.5))
    with pytest.raises(SoundspotError, match="64 x 48 pixels, .* up to 0.003 megapixels"):
        check_upload(path, Limits(megapixels=0.003))
    with pytest.raises(SoundspotError, match="a limit above 0 for seconds, got nan"):
        Limits(seconds=float("nan"))


def test_decoders_that_hang_are_few(tmp_path: Path, monkeypatch):
    """Each keeps a core busy: somebody with a file on which they hang must not get them all."""
    path = write_clip(tmp_path / "a.mp4")
    monkeypatch.setattr(deadline, "hung", lambda: 2)
    assert check_upload(path, Limits(hung=3)).kind == "video"
    with pytest.raises(SoundspotError, match="damaged videos keep this server's decoders busy"):
        check_upload(path, Limits(hung=2))
    Image.new("RGB", SMALL).save(tmp_path / "a.png")
    assert check_upload(tmp_path / "a.png", Limits(hung=2)).kind == "image"


def test_the_header_is_enough_to_refuse_a_large_video(tmp_path: Path, monkeypatch):
    def no_decoding(*_):
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr(decoding, "decode", no_decoding)
    monkeypatch.setattr(decoding, "frame_at", no_decoding)
    for name in ("a.avi", "a.mkv", "a.mov"):
        path = write_mjpeg(tmp_path / name, LARGE, LARGE)
        with pytest.raises(SoundspotError, match=f"{name} has 640 x 480 pixels, .* up to 0.01"):
            check_upload(path, LIMITS)


def test_pictures_that_are_larger_than_the_header_says_are_refused_too(tmp_path: Path):
    path = write_mjpeg(tmp_path / "later.mkv", SMALL, SMALL, SMALL, LARGE, LARGE)
    info = check_upload(path, LIMITS)
    assert media.read_frame(info, at=1.5).shape == (48, 64, 3)
    assert media.read_frame(path, at=3.5).shape == (480, 640, 3)  # elsewhere nothing is limited
    sentence = "later.mkv is cut short or damaged, or has pictures of more than 10,000 pixels"
    with pytest.raises(MediaError, match=sentence):
        media.read_frame(info, at=3.5)
    with pytest.raises(MediaError, match=sentence):
        list(media.iter_frames(info, fps=2.0))
