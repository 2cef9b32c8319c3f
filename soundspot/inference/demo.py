"""The demo: a photo of a dog with its bark and with a siren, and the bark as a video.

Photo and bark come, verified, from the cache of `weights`, the siren from a formula; soundspot
itself ships no picture or sound.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float32
from PIL import Image

from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.inference import figures
from soundspot.inference.files import localize
from soundspot.inference.models import load
from soundspot.media.clips import SAMPLE_RATE, SOUND_SAMPLES, read_frame, read_waveform, write_video

VIDEO_WIDTH, VIDEO_FPS = 480, 10.0
# A yelping siren: between two pitches, three times a second.
SIREN_HZ, SIREN_PERIOD, SIREN_HARMONICS = (650.0, 1450.0), 0.3, 3


def run_demo(folder: Path, say: Callable[[str], None], device: str = "auto") -> None:
    """Localize the bark and the siren, and say the results and what to try next."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SoundspotError(f"cannot create the folder {folder}: {error.strerror}") from error
    photo, bark = weights.media("demo-dog-photo"), weights.media("demo-dog-bark")
    video = folder / "demo.mp4"
    _join(photo, bark, video)

    localizer = load(device=device)
    barking = localize(photo, audio=bark, model=localizer)
    barking.save(folder / "demo-photo.png")
    wailing = localizer.localize(read_frame(photo), siren())
    scale = (float(barking.map.min()), float(barking.map.max()))  # the bark's own, for both
    rows = [result.picture(scale) for result in (barking, wailing)]
    figures.write_picture(folder / "demo-two-sounds.png", figures.stack(rows))
    localize(video, model=localizer).save(folder / "demo-video.png")

    for line in (
        barking.describe(),
        "",
        f"The same photo with a siren: {wailing.describe()}",
        "Look at the two rows of the second picture: they share one color scale, so the dog should",
        "glow in the first and stay dark in the second. A model that does not listen shows the",
        "same map twice.",
        "",
        f"A photo and a sound:         {folder / 'demo-photo.png'}",
        f"The same with another sound: {folder / 'demo-two-sounds.png'}",
        f"Photo and bark as a video:   {folder / 'demo-video.png'}  (of {video})",
        "",
        "Next, try your own files:",
        "    soundspot localize clip.mp4 -o where.png",
        "    soundspot localize clip.mp4 -o where.mp4",
        "    soundspot localize photo.jpg --audio sound.wav -o where.png",
        "    soundspot --help",
    ):
        say(line)


def siren() -> Float32[np.ndarray, "48000"]:
    """Three seconds of a synthetic siren."""
    low, high = SIREN_HZ
    time = np.arange(SOUND_SAMPLES) / SAMPLE_RATE
    pitch = low + (high - low) * (1 - np.cos(2 * np.pi * time / SIREN_PERIOD)) / 2
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    harmonics = np.arange(1, SIREN_HARMONICS + 1)[:, None]
    return np.asarray(0.3 * (np.sin(harmonics * phase) / harmonics).sum(axis=0), np.float32)


def _join(photo: Path, bark: Path, video: Path) -> None:
    """Write a video that shows the photo for as long as the bark lasts."""
    image = Image.fromarray(read_frame(photo))
    height = round(image.height * VIDEO_WIDTH / image.width)
    frame = np.asarray(image.resize((VIDEO_WIDTH, height)))
    waveform = read_waveform(bark)
    frames = [frame] * round(len(waveform) / SAMPLE_RATE * VIDEO_FPS)
    write_video(video, frames, waveform, VIDEO_FPS)
