"""Media, results and a quick model that the tests of the web page share."""

import time
from pathlib import Path

import numpy as np

from brightness import Shown, brightness_localizer
from soundspot.inference.localizer import Localizer
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
        labels=[("Dog <b>", 0.25), ("Music", 0.01)],
        model="m",
        trained=True,
        frame=np.zeros((5 * s.shape[0], 5 * s.shape[1], 3), np.uint8),
        waveform=np.zeros(48_000, np.float32),
    )


class Louder(Shown):
    """The map is the picture, hotter if the sound is louder; each takes a while."""

    seconds = 0.05

    def maps(self, f_v, f_a, cycles=None):
        time.sleep(self.seconds)
        return f_v[:, 0] / 10 * (0.2 + f_a.mean(dim=(1, 2)))[:, None, None]


class NamingLocalizer(Localizer):
    """Calls smooth sounds a horn and rough ones a dog."""

    def class_scores(self, sounds):
        rough = np.abs(np.diff(np.sign(sounds), axis=1)).mean(axis=1) / 2 > 0.2
        return np.stack([0.8 * rough, 0.8 * ~rough], axis=1).astype(np.float32)

    def labels(self, f_a):
        return [("Dog", 0.81), ("Rapping", 0.01), ("Music", 0.01)]


def quick_model(name: str, device: str = "auto") -> Localizer:
    made = brightness_localizer(threshold=0.01)
    made.card.provenance["data"] = "escvoc"
    fields = {key: value for key, value in vars(made).items() if key in made.__dataclass_fields__}
    names = ("Dog", "Vehicle horn, car horn, honking")
    return NamingLocalizer(**fields | {"name": name, "method": Louder(), "class_names": names})
