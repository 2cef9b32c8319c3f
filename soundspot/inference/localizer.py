"""The one-call path: a frame and its sound, or a file, in; a Localization out.

Axes: h w the grid of the map, height width pixels of the frame, t passes of the PCM.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from soundspot.common.config import nearest, to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders import weights
from soundspot.encoders.table import ENCODERS
from soundspot.encoders.views import evaluation_view
from soundspot.encoders.yamnet import YAMNet
from soundspot.features.spec import FeatureSpec, load_encoders
from soundspot.inference import sound_events
from soundspot.inference.localization import (
    FrameLike,
    Localization,
    WaveformLike,
    as_frame,
    as_waveform,
    hot_box,
    stretched,
)
from soundspot.media.clips import Clip, check_sound, probe, read_clip, read_frame, read_sound
from soundspot.model import checkpoint
from soundspot.model.checkpoint import Card
from soundspot.model.methods.method import Method
from soundspot.model.methods.sspl import SSPLConfig

DEFAULT_MODEL = "soundspot-v1"  # ships in soundspot/pretrained/
MODELS = Path(__file__).parents[1] / "pretrained"
UNTRAINED = {
    "untrained-sspl": SSPLConfig(c_a=ENCODERS["yamnet"].channels),
    "untrained-sspl-pcm": SSPLConfig(c_a=ENCODERS["yamnet"].channels, pcm=True),
}
TOP_LABELS = 5
CHUNK = 8  # frames that the encoders see at once

__all__ = ["DEFAULT_MODEL", "Localization", "Localizer", "Located", "load", "model_names"]

log = logging.getLogger(__name__)


class Located(NamedTuple):
    """A map on the grid, and what was heard: all that a moving picture needs of a moment."""

    similarity: Float32[np.ndarray, "h w"]
    labels: list[tuple[str, float]]


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

        Example:
            >>> model = soundspot.load()
            >>> found = model.localize(frame, waveform)
            >>> found.map.shape == frame.shape[:2]
            True
            >>> -1 <= found.score <= 1
            True
        """
        return self.localize_batch([frame], [waveform], cycles)[0]

    def localize_batch(
        self,
        frames: Sequence[FrameLike],
        waveforms: Sequence[WaveformLike],
        cycles: int | None = None,
    ) -> list[Localization]:
        """Find where in each frame its own sound comes from, a chunk of pairs at a time.

        Args:
            frames: As `localize` takes them; their sizes may differ.
            waveforms: One for each frame.
            cycles: T of a PCM model, if not the one it was trained with.

        Example:
            >>> model = soundspot.load()
            >>> whole, left = model.localize_batch([frame, frame[:, :100]], [waveform, waveform])
            >>> left.map.shape[1]
            100
        """
        if len(frames) != len(waveforms):
            raise SoundspotError(
                f"expected a waveform for each frame, not {len(waveforms)} for {len(frames)}"
            )
        found = []
        for start in range(0, len(frames), CHUNK):
            pixels = [as_frame(frame) for frame in frames[start : start + CHUNK]]
            sounds = [as_waveform(waveform) for waveform in waveforms[start : start + CHUNK]]
            located = self.locate(pixels, sounds, cycles)
            found += [self._whole(*all_) for all_ in zip(pixels, sounds, located, strict=True)]
        return found

    def locate(
        self,
        frames: Sequence[UInt8[np.ndarray, "_height _width 3"]],
        sounds: Sequence[Float32[np.ndarray, "48000"]],
        cycles: int | None = None,
    ) -> list[Located]:
        """Maps on the grid and labels, all in one pass through the encoders."""
        self._check_cycles(cycles)
        with torch.inference_mode():
            f_v, f_a = self._features(frames, sounds)
            maps = self.method.maps(f_v, f_a, cycles).cpu().numpy()
            return [Located(s, self._labels(heard)) for s, heard in zip(maps, f_a, strict=True)]

    def _whole(
        self,
        pixels: UInt8[np.ndarray, "height width 3"],
        sound: Float32[np.ndarray, "48000"],
        located: Located,
    ) -> Localization:
        grid = torch.from_numpy(located.similarity)[None, None]
        full = F.interpolate(grid, size=pixels.shape[:2], mode="bilinear")[0, 0].numpy()
        return Localization(
            map=full,
            similarity=located.similarity,
            box=hot_box(stretched(full)),
            score=float(located.similarity.max()),
            labels=located.labels,
            model=self.name,
            trained=self.card.trained,
            frame=pixels,
            waveform=sound,
            threshold=self.threshold,
        )

    @property
    def threshold(self) -> float | None:
        """The score from which on a source is probably visible, if the model was calibrated."""
        return self.card.calibration.get("threshold")

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

    def localize_sources(
        self,
        path: str | Path,
        audio: str | Path | None = None,
        count: int = 2,
        cycles: int | None = None,
    ) -> list[Localization]:
        """Tell the sounds of a video apart by time, and find where each comes from.

        Each map is of the frame at the loudest moment of a sound event (see `sources`) and hears
        nothing but that event, which is its `span`. Sounds that are heard at the same time are
        one event.

        Args:
            path: A video, or an image.
            audio: A sound file; needed with an image, and replaces the sound of a video.
            count: How many events at most, the most salient first; there may be fewer.
            cycles: T of a PCM model, if not the one it was trained with.
        """
        sound = path if audio is None else audio
        check_sound(sound)
        moving = probe(path).kind == "video"
        seconds = min(length for file in (path, sound) if (length := probe(file).duration))
        events = sound_events.find_events(sound_events.listen(sound, seconds, self._classes), count)
        frames = [read_frame(path, event.at) for event in events]
        heard = [read_sound(sound, event.middle, event.heard) for event in events]
        return [
            replace(found, at=event.at if moving else None, span=(event.start, event.end))
            for event, found in zip(events, self.localize_batch(frames, heard, cycles), strict=True)
        ]

    def maps_by_cycle(
        self, frame: FrameLike, waveform: WaveformLike, cycles: int | None = None
    ) -> Float32[np.ndarray, "t h w"]:
        """The map S after each pass t = 1, ..., T of a PCM model (the paper's Fig. 7)."""
        if not self._has_pcm:
            raise SoundspotError(f"{self.name} has no PCM: it has one map, not one a cycle")
        self._check_cycles(cycles)
        with torch.inference_mode():
            f_v, f_a = self._features([as_frame(frame)], [as_waveform(waveform)])
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
        self,
        frames: Sequence[UInt8[np.ndarray, "_height _width 3"]],
        sounds: Sequence[Float32[np.ndarray, "48000"]],
    ) -> tuple[Float[Tensor, "b c h w"], Float[Tensor, "b p a"]]:
        # A copy: PIL lends its pixels read-only, which torch does not take.
        pixels = [torch.from_numpy(frame.copy()).permute(2, 0, 1) for frame in frames]
        views = torch.stack([evaluation_view(frame) for frame in pixels])
        views = views.contiguous(memory_format=torch.channels_last)
        f_v: Tensor = self.visual(views.to(self.device))
        f_a: Tensor = self.audio(torch.from_numpy(np.stack(sounds)).to(self.device))
        return f_v, f_a

    @property
    def _namer(self) -> YAMNet | None:
        """The audio encoder, if it can name sounds."""
        return self.audio if isinstance(self.audio, YAMNet) and self.class_names else None

    def _labels(self, f_a: Float[Tensor, "p a"]) -> list[tuple[str, float]]:
        if self._namer is None:
            return []
        scores, classes = self._namer.classify(f_a).mean(dim=0).topk(TOP_LABELS)
        return [
            (self.class_names[i], score)
            for i, score in zip(classes.tolist(), scores.tolist(), strict=True)
        ]

    def _classes(
        self, sounds: Float32[np.ndarray, "b samples"]
    ) -> Float32[np.ndarray, "b classes"]:
        """What each sound is like; an encoder that cannot name sounds has nothing to say."""
        namer = self._namer
        if namer is None:
            return np.ones((len(sounds), 0), np.float32)
        with torch.inference_mode():
            scores = namer.classify(namer(torch.from_numpy(sounds).to(self.device))).mean(dim=1)
        return scores.cpu().numpy()


def load(name_or_path: str | Path | None = None, device: str = "cpu") -> Localizer:
    """A model ready to localise, with its encoders (fetched once, then from the cache).

    Args:
        name_or_path: A name (see `model_names`), a .safetensors checkpoint, or the folder of a
            training run; default: the model that ships with soundspot.
        device: As torch names them: "cpu", "cuda", "mps".

    Example:
        >>> model = soundspot.load()
        >>> model.name in soundspot.model_names()
        True
    """
    place = _device(device)
    chosen = DEFAULT_MODEL if name_or_path is None else name_or_path
    method, card = read_model(str(chosen))
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


def read_model(chosen: str) -> tuple[Method, Card]:
    """The trained part of a model, by any name that `load` takes, and its card."""
    if chosen in UNTRAINED:
        return _untrained(UNTRAINED[chosen])
    if chosen in _shipped():
        return checkpoint.load(MODELS / f"{chosen}.safetensors")
    if not Path(chosen).exists():
        raise SoundspotError(
            f"no model {chosen!r}: {nearest(chosen, model_names())}, "
            "or the path of a checkpoint or of a training run's folder"
        )
    return checkpoint.load(Path(chosen))


def _untrained(config: SSPLConfig) -> tuple[Method, Card]:
    card = Card("sspl", to_dict(config), FeatureSpec(), trained=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return checkpoint.build_method(card.method, card.config), card


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
