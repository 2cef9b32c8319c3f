"""Picture and sound stay together: a flash and a click, before and after rendering."""

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from brightness import brightness_localizer
from soundspot.inference.video import render_video
from soundspot.media import decoding
from soundspot.media.clips import read_waveform

RATE = 48_000
SECONDS = 3.0
EVENTS = (0.6, 2.2)  # s; of a flash and a click, one before and one after the hole
NEAR = 0.020  # s


def make(path: Path, times: list[float], sounding: list[tuple[float, float]]) -> Path:
    """A video with pictures at the given times, and sound from second to second."""
    clock = np.arange(round(-RATE), round(SECONDS * RATE)) / RATE
    sound = 0.01 * np.sin(2 * np.pi * 300 * clock)
    for at in EVENTS:
        sound[(at <= clock) & (clock < at + 0.01)] = 0.9
    with av.open(str(path), "w") as output:
        video: Any = output.add_stream("libx264", rate=25)
        video.height, video.width, video.pix_fmt = 48, 64, "yuv420p"
        video.codec_context.time_base = Fraction(1, 1000)
        audio: Any = output.add_stream("flac", rate=RATE, layout="mono")
        packets: list[Any] = []
        for at in times:
            flash = any(event <= at < event + 0.1 for event in EVENTS)
            picture = np.full((48, 64, 3), 250 if flash else 10, np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = round((at + 1) * 1000), Fraction(1, 1000)
            packets += video.encode(frame)
        packets += video.encode(None)
        for begin, end in sounding:
            for start in range(round((begin + 1) * RATE), round((end + 1) * RATE), 960):
                block = np.round(sound[None, start : start + 960] * 32767).astype(np.int16)
                samples = av.AudioFrame.from_ndarray(block, "s16", "mono")
                samples.sample_rate = RATE
                samples.pts, samples.time_base = start, Fraction(1, RATE)
                packets += audio.encode(samples)
        packets += audio.encode(None)
        for packet in sorted(packets, key=lambda p: p.dts * p.time_base):
            output.mux(packet)
    return path


def flashes(path: Path) -> list[float]:
    """When the picture turns bright; the caption below it does not count."""
    bright = [
        (time, float(decoding.to_rgb(path, frame)[4:44].mean()) > 130)
        for time, frame in decoding.decode(path, "video", 0.0)
    ]
    pairs = itertools.pairwise(bright)
    return [time for (_, before), (time, now) in pairs if now and not before]


def clicks(path: Path) -> list[float]:
    loud = np.flatnonzero(np.abs(read_waveform(path)) > 0.4) / 16_000
    starts = np.flatnonzero(np.diff(loud, prepend=-1.0) > 0.5)
    return loud[starts].tolist()


STEADY = [k / 25 for k in range(75)]
# Every third picture is missing before the first event, and every second one after it.
UNEVEN = [t for k, t in enumerate(STEADY) if t in (0.0, *EVENTS) or k % (3 if t < 1 else 2)]
WHOLE = [(0.0, SECONDS)]
CASES = {
    "constant rate": (STEADY, WHOLE),
    "early sound": (STEADY, [(-0.5, SECONDS)]),
    "a variable rate, a late sound and a hole in it": (UNEVEN, [(0.4, 1.0), (1.8, SECONDS)]),
}


@pytest.mark.parametrize("ending", [".mp4", ".webm"])
@pytest.mark.parametrize(("times", "sounding"), CASES.values(), ids=CASES.keys())
def test_flash_and_click_stay_where_they_were(tmp_path: Path, times, sounding, ending: str):
    path, out = make(tmp_path / "v.mkv", times, sounding), tmp_path / f"out{ending}"
    assert flashes(path) == pytest.approx(EVENTS, abs=0.002)
    assert clicks(path) == pytest.approx(EVENTS, abs=0.002)
    render_video(brightness_localizer(), path, out, maps_per_second=1.0)
    seen, heard = flashes(out), clicks(out)
    assert seen == pytest.approx(EVENTS, abs=NEAR)
    assert heard == pytest.approx(EVENTS, abs=NEAR)
    assert seen == pytest.approx(heard, abs=NEAR)
