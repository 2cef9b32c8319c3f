"""Media and results that the tests of the web page share."""

from pathlib import Path

import numpy as np

from soundspot.inference.result import Localization
from soundspot.media import clips as media

FRAME = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
BARKS = (
    np.random.default_rng(0).normal(0, 0.2, 32_000) * np.exp(-(np.arange(32_000) % 8_000) / 900)
).astype(np.float32)


def write_clip(path: Path, frame: np.ndarray = FRAME, sound: np.ndarray | None = BARKS) -> Path:
    media.write_video(path, [frame] * 20, sound, 10.0)
    return path


def result(similarity: list[list[float]], score: float = 0.5) -> Localization:
    s = np.array(similarity, np.float32)
    return Localization(
        map=np.kron(s, np.ones((5, 5), np.float32)),
        similarity=s,
        box=None,
        score=score,
        labels=[("Dog <b>", 0.25)],
        model="m",
        trained=True,
        frame=np.zeros((5 * s.shape[0], 5 * s.shape[1], 3), np.uint8),
        waveform=np.zeros(48_000, np.float32),
    )
