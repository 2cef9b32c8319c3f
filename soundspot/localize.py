"""The one-call path: a frame and its sound, or a file, in; a Localization out.

Axes: h w the grid of the map, height width pixels of the frame, t passes of the PCM.
"""

import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot import figures, weights
from soundspot.config import nearest, plain
from soundspot.encoders import ENCODERS
from soundspot.encoders.yamnet import YAMNet
from soundspot.errors import SoundspotError
from soundspot.features import FeatureSpec, load_encoders
from soundspot.figures import CONTOUR_LEVEL
from soundspot.files import write_text
from soundspot.media import SOUND_SAMPLES, Clip, cut, is_silent, read_clip
from soundspot.methods.method import Method
from soundspot.methods.sspl import SSPLConfig
from soundspot.regions import Box, largest_region
from soundspot.training import checkpoints
from soundspot.training.checkpoints import Card
from soundspot.views import evaluation_view

DEFAULT_MODEL = "sspl-v0"  # ships in soundspot/models/
MODELS = Path(__file__).parent / "models"
UNTRAINED = {
    "untrained-sspl": SSPLConfig(c_a=ENCODERS["yamnet"].channels),
    "untrained-sspl-pcm": SSPLConfig(c_a=ENCODERS["yamnet"].channels, pcm=True),
}
TOP_LABELS = 5
FLAT = 1e-6  # a map whose cosines differ by less points nowhere

FrameLike = NDArray[Any] | Image.Image | Tensor
WaveformLike = NDArray[Any] | Tensor

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Localization:
    """Where a sound comes from.

    Attributes:
        map: Cosine similarity of the sound with every pixel: the grid, resized bilinearly.
        similarity: The map S of the paper, on the grid of the visual feature.
        box: x1, y1, x2, y2 in pixels around the largest connected region where the map, stretched
            to 0..1, is at least one half; x2 and y2 lie just outside. None if the map is flat.
        score: The peak of S, in -1..1.
        labels: What is heard, best first, with scores of 0..1; empty if the audio encoder is not
            a classifier.
        model: Name of the model.
        trained: False if the model was never trained: then the map means nothing.
        frame: The frame as it was seen, RGB.
        waveform: The 3 s that were heard, mono 16 kHz.
        at: Seconds into the video; None for a photograph or an array.
    """

    map: Float32[np.ndarray, "height width"] = field(repr=False)
    similarity: Float32[np.ndarray, "h w"] = field(repr=False)
    box: Box | None
    score: float
    labels: list[tuple[str, float]]
    model: str
    trained: bool
    frame: UInt8[np.ndarray, "height width 3"] = field(repr=False)
    waveform: Float32[np.ndarray, "samples"] = field(repr=False)
    at: float | None = None

    @property
    def heat(self) -> Float32[np.ndarray, "height width"]:
        """The map stretched to 0..1; a flat map is 0 everywhere."""
        return _stretched(self.map)

    def picture(self) -> Image.Image:
        """The frame, the map over it, and the sound, side by side."""
        return figures.triptych(
            self.frame,
            self.heat,
            self.waveform,
            box=self.box,
            labels=self.labels,
            footer=self._footer(),
            trained=self.trained,
        )

    def save(self, path: str | Path) -> None:
        """Write the picture; the ending of the path names its format."""
        figures.write_picture(Path(path), self.picture())

    def save_json(self, path: str | Path) -> None:
        """Write the summary as JSON."""
        figures.check_file(Path(path))
        write_text(Path(path), json.dumps(self.summary()) + "\n")

    def summary(self) -> dict[str, Any]:
        """Everything but the pixels, as plain values for JSON."""
        height, width = self.map.shape
        return {
            "model": self.model,
            "trained": self.trained,
            "at": self.at,
            "width": width,
            "height": height,
            "score": self.score,
            "box": None if self.box is None else list(self.box),
            "labels": [{"name": name, "score": score} for name, score in self.labels],
            "map": {
                "min": float(self.map.min()),
                "max": float(self.map.max()),
                "mean": float(self.map.mean()),
                "area": float((self.heat >= CONTOUR_LEVEL).mean()),
            },
            "similarity": self.similarity.round(5).tolist(),
        }

    def describe(self) -> str:
        """A few lines for people."""
        lines = [f"model: {self.model}" + ("" if self.trained else f" ({figures.WARNING})")]
        if self.labels:
            heard = ", ".join(f"{name} {score:.2f}" for name, score in self.labels)
            lines.append(f"heard: {heard}")
        place = "nowhere (the map is flat)" if self.box is None else f"box {self.box}"
        lines.append(f"where: {place}, peak cosine {self.score:.3f}")
        return "\n".join(lines)

    def _footer(self) -> str:
        parts = [self.model, f"peak cosine {self.score:.3f}"]
        if self.box is not None:
            parts.append("box {}, {}, {}, {}".format(*self.box))
        if self.at is not None:
            parts.append(f"at {self.at:.2f} s")
        return "   ·   ".join(parts)


@dataclass(frozen=True, eq=False)
class Localizer:
    """A trained method on its frozen encoders; made by `load`.

    Attributes:
        name: Of the model.
        method: The trained part.
        visual: The visual encoder.
        audio: The audio encoder.
        card: What the checkpoint says of itself.
        class_names: Of the sounds that the audio encoder can name, if it can.
        device: Where all of it lives.
    """

    name: str
    method: Method
    visual: nn.Module
    audio: nn.Module
    card: Card
    class_names: tuple[str, ...]
    device: torch.device

    def localize(
        self, frame: FrameLike, waveform: WaveformLike, cycles: int | None = None
    ) -> Localization:
        """Find where in a frame a sound comes from.

        Args:
            frame: RGB of any size: H x W x 3 uint8 array, PIL image, or 3 x H x W uint8 tensor.
            waveform: Mono 16 kHz floats; the middle 3 s are heard, a shorter sound is repeated.
            cycles: T of a PCM model, if not the one it was trained with.
        """
        self._check_cycles(cycles)
        pixels, sound = as_frame(frame), as_waveform(waveform)
        with torch.inference_mode():
            f_v, f_a = self._features(pixels, sound)
            s = self.method.maps(f_v, f_a, cycles)
            labels = self._labels(f_a)
        full = F.interpolate(s[:, None], size=pixels.shape[:2], mode="bilinear")[0, 0].cpu().numpy()
        return Localization(
            map=full,
            similarity=s[0].cpu().numpy(),
            box=largest_region(_stretched(full) >= CONTOUR_LEVEL),
            score=float(s.max()),
            labels=labels,
            model=self.name,
            trained=self.card.trained,
            frame=pixels,
            waveform=sound,
        )

    def localize_file(
        self,
        path: str | Path,
        audio: str | Path | None = None,
        at: float | None = None,
        cycles: int | None = None,
    ) -> Localization:
        """Find where the sound of a video comes from, or a sound file's in a photograph.

        Args:
            path: A video, or an image.
            audio: A sound file; needed with an image, and replaces the sound of a video.
            at: Seconds into the video; default: its middle.
            cycles: T of a PCM model, if not the one it was trained with.
        """
        clip = read_clip(Path(path), None if audio is None else Path(audio), at)
        return self.localize_clip(clip, cycles)

    def localize_clip(self, clip: Clip, cycles: int | None = None) -> Localization:
        """The same, of a clip that has been read already."""
        return replace(self.localize(clip.frame, clip.waveform, cycles), at=clip.at)

    def maps_by_cycle(
        self, frame: FrameLike, waveform: WaveformLike, cycles: int | None = None
    ) -> Float32[np.ndarray, "t h w"]:
        """The map S after each pass t = 1, ..., T of a PCM model (the paper's Fig. 7)."""
        if not self._has_pcm:
            raise SoundspotError(f"{self.name} has no PCM: it has one map, not one a cycle")
        self._check_cycles(cycles)
        with torch.inference_mode():
            f_v, f_a = self._features(as_frame(frame), as_waveform(waveform))
            maps = self.method.maps_by_cycle(f_v, f_a, cycles)
        return torch.cat(maps).cpu().numpy()

    @property
    def _has_pcm(self) -> bool:
        return bool(self.card.config.get("pcm"))

    def _check_cycles(self, cycles: int | None) -> None:
        if cycles is None:
            return
        if not self._has_pcm:
            raise SoundspotError(f"{self.name} has no PCM, so cycles={cycles} means nothing to it")
        if cycles < 1:
            raise SoundspotError(f"the PCM needs at least one pass, not cycles={cycles}")

    def _features(
        self, frame: UInt8[np.ndarray, "height width 3"], sound: Float32[np.ndarray, "samples"]
    ) -> tuple[Float[Tensor, "1 c h w"], Float[Tensor, "1 p a"]]:
        # A copy: PIL lends its pixels read-only, which torch does not take.
        pixels = torch.from_numpy(frame.copy()).permute(2, 0, 1)
        view = evaluation_view(pixels)[None].contiguous(memory_format=torch.channels_last)
        f_v: Tensor = self.visual(view.to(self.device))
        f_a: Tensor = self.audio(torch.from_numpy(sound)[None].to(self.device))
        return f_v, f_a

    def _labels(self, f_a: Float[Tensor, "1 p a"]) -> list[tuple[str, float]]:
        if not isinstance(self.audio, YAMNet) or not self.class_names:
            return []
        scores, classes = self.audio.classify(f_a[0]).mean(dim=0).topk(TOP_LABELS)
        return [
            (self.class_names[i], score)
            for i, score in zip(classes.tolist(), scores.tolist(), strict=True)
        ]


def load(name_or_path: str | Path | None = None, device: str = "cpu") -> Localizer:
    """A model ready to localise, with its encoders (fetched once, then from the cache).

    Args:
        name_or_path: A name (see `model_names`), a .safetensors checkpoint, or the folder of a
            training run; default: the model that ships with soundspot.
        device: As torch names them: "cpu", "cuda", "mps".
    """
    place = _device(device)
    chosen = DEFAULT_MODEL if name_or_path is None else name_or_path
    method, card = _read_model(str(chosen))
    if not card.trained:
        log.warning(
            "WARNING: %s HAS UNTRAINED HEADS: ITS MAPS MEAN NOTHING. It only shows that the whole "
            "chain runs.",
            chosen,
        )
    encoders = load_encoders(card.features)
    named = card.features.pretrained and isinstance(encoders.audio, YAMNet)
    return Localizer(
        name=str(chosen),
        method=method.to(place).eval(),
        visual=encoders.visual.to(place),
        audio=encoders.audio.to(place),
        card=card,
        class_names=tuple(weights.class_names("yamnet-audioset")) if named else (),
        device=place,
    )


def model_names() -> list[str]:
    """The names that `load` knows: models that ship with soundspot, and the untrained ones."""
    return [*_shipped(), *UNTRAINED]


def _shipped() -> list[str]:
    return sorted(path.stem for path in MODELS.glob("*.safetensors"))


def _read_model(chosen: str) -> tuple[Method, Card]:
    if chosen in UNTRAINED:
        return _untrained(UNTRAINED[chosen])
    if chosen in _shipped():
        return checkpoints.load(MODELS / f"{chosen}.safetensors")
    if not Path(chosen).exists():
        raise SoundspotError(
            f"no model {chosen!r}: {nearest(chosen, model_names())}, "
            "or the path of a checkpoint or of a training run's folder"
        )
    return checkpoints.load(Path(chosen))


def _untrained(config: SSPLConfig) -> tuple[Method, Card]:
    card = Card("sspl", plain(config), FeatureSpec(), trained=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return checkpoints.build_method(card.method, card.config), card


def _device(name: str) -> torch.device:
    present = ["cpu"]
    present += ["cuda"] if torch.cuda.is_available() else []
    present += ["mps"] if torch.backends.mps.is_available() else []
    if name.partition(":")[0] not in present:
        raise SoundspotError(f"no device {name!r} here: {nearest(name, present)}")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise SoundspotError(f"{name!r} is not a device torch knows") from error


def as_frame(frame: FrameLike) -> UInt8[np.ndarray, "height width 3"]:
    """The pixels of a frame in any of the accepted forms."""
    if isinstance(frame, Image.Image):
        frame = np.asarray(frame.convert("RGB"))
    elif isinstance(frame, Tensor):
        if frame.ndim != 3 or frame.shape[0] != 3:
            raise SoundspotError(
                f"expected a frame tensor of shape 3 x H x W, not {tuple(frame.shape)}"
            )
        frame = frame.detach().cpu().permute(1, 2, 0).numpy()
    elif not isinstance(frame, np.ndarray):
        raise SoundspotError(
            f"expected a frame as NumPy array, PIL image or tensor, not {type(frame).__name__}"
        )
    if frame.dtype != np.uint8:
        raise SoundspotError(f"expected a frame of uint8 values 0..255, not {frame.dtype}")
    if frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise SoundspotError(f"expected a frame of shape H x W x 3, not {frame.shape}")
    return frame


def as_waveform(waveform: WaveformLike) -> Float32[np.ndarray, "48000"]:
    """The 3 s that are heard of a waveform in any of the accepted forms."""
    if isinstance(waveform, Tensor):
        waveform = waveform.detach().cpu().numpy()
    elif not isinstance(waveform, np.ndarray):
        raise SoundspotError(
            f"expected a waveform as NumPy array or tensor, not {type(waveform).__name__}"
        )
    if not np.issubdtype(waveform.dtype, np.floating):
        raise SoundspotError(f"expected a waveform of floats in -1..1, not {waveform.dtype}")
    if waveform.ndim != 1 or waveform.size == 0:
        raise SoundspotError(f"expected a mono waveform of one axis, not {waveform.shape}")
    if not np.isfinite(waveform).all():
        raise SoundspotError("expected a waveform of finite numbers, but it holds NaN or infinity")
    sound = cut(waveform.astype(np.float32), None, SOUND_SAMPLES)
    if is_silent(sound):
        raise SoundspotError("expected a sound, but the waveform is silent: nothing can be located")
    return sound


def _stretched(
    values: Float32[np.ndarray, "height width"],
) -> Float32[np.ndarray, "height width"]:
    """Eq. 5 on the full map; resizing leaves rounding errors on a flat one, which are no map."""
    low, high = values.min(), values.max()
    if high - low < FLAT:
        return np.zeros_like(values)
    return np.asarray((values - low) / (high - low))
