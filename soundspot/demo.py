"""The demo: a dog's photograph and its bark, as a photograph with a sound and as a video.

Both come verified out of the cache of `weights.py`; no picture or sound is part of soundspot.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from soundspot import weights
from soundspot.errors import SoundspotError
from soundspot.localize import load
from soundspot.media import SAMPLE_RATE, read_frame, read_waveform, write_video

VIDEO_WIDTH, VIDEO_FPS = 480, 10.0


def run(folder: Path, say: Callable[[str], None]) -> None:
    """Localise the bark twice and say what was found and what to try next.

    Args:
        folder: Where the pictures and the video go; made if need be.
        say: Takes every line of the report.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoundspotError(f"cannot make the folder {folder}: {error.strerror}") from error
    photo, bark = weights.media("demo-dog-photo"), weights.media("demo-dog-bark")
    video = folder / "demo.mp4"
    _join(photo, bark, video)

    localizer = load()
    still = localizer.localize_file(photo, audio=bark)
    still.save(folder / "demo-photo.png")
    moving = localizer.localize_file(video)
    moving.save(folder / "demo-video.png")

    say(still.describe())
    say("")
    say(f"A photograph and a sound:  {folder / 'demo-photo.png'}")
    say(f"The same two as a video:   {folder / 'demo-video.png'}  (of {video})")
    say("")
    say("Next, try your own:")
    program = sys.argv[0] if Path(sys.argv[0]).stem == "soundspot" else "soundspot"
    for line in (
        "localize clip.mp4 -o where.png",
        "localize photo.jpg --audio sound.wav -o where.png",
        "--help",
    ):
        say(f"    {program} {line}")


def _join(photo: Path, bark: Path, video: Path) -> None:
    """Make a video that shows the photograph for as long as the bark lasts."""
    image = Image.fromarray(read_frame(photo))
    height = round(image.height * VIDEO_WIDTH / image.width)
    frame = np.asarray(image.resize((VIDEO_WIDTH, height)))
    waveform = read_waveform(bark)
    frames = [frame] * round(len(waveform) / SAMPLE_RATE * VIDEO_FPS)
    write_video(video, frames, waveform, VIDEO_FPS)
