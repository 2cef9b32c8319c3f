"""A frame and its sound in, a Localization out: the one path from a model to its answer.

Files, folders, videos, evaluation from a feature cache and the ONNX export all go through
`Localizer.answer`.

Axes: b samples, p audio patches, a audio channels, c visual channels, h w the grid of the map,
t passes of the PCM.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.encoders.views import evaluation_views
from soundspot.encoders.yamnet import YAMNet
from soundspot.features.spec import Encoders, load_encoders
from soundspot.inference.inputs import FrameLike, WaveformLike, as_frame, as_waveform
from soundspot.inference.maps import FINER, motion_map, resize_map, zoom
from soundspot.inference.result import Localization
from soundspot.media.decoding import AnyPicture, AnyWaveform
from soundspot.media.films import Film
from soundspot.media.sound import SOUND_SAMPLES
from soundspot.model import evidence
from soundspot.model.checkpoint import Card
from soundspot.model.evidence import Known, Shares, SoundTable
from soundspot.model.methods.method import Method

TOP_LABELS = 5
CHUNK = 8  # frames that the encoders see at once
NOISES = 8  # different draws of white noise

Maps = Float32[np.ndarray, "b h w"]


@dataclass(frozen=True, eq=False)
class Part:
    """A method on its frozen encoders, which are loaded when they are first needed.

    The method is trained, or the label map's; encoders may be `given` if they are loaded already.
    """

    method: Method
    card: Card
    device: torch.device
    given: Encoders | None = None

    @cached_property
    def encoders(self) -> Encoders:
        """The frozen encoders."""
        return self.given or load_encoders(self.card.features, self.device)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of its maps."""
        side = self.card.features.grid * (FINER if self.card.zoom else 1)
        return side, side

    def see(self, pictures: Sequence[AnyPicture]) -> Float[Tensor, "b c h w"]:
        """The visual features f_v of pictures."""
        # A copy: PIL lends its pixels read-only, which torch does not take.
        pixels = [torch.from_numpy(picture.copy()).permute(2, 0, 1) for picture in pictures]
        views = evaluation_views(pixels, self.card.features.view_sizes)
        f_v: Tensor = self.encoders.visual(*(view.to(self.device) for view in views))
        return f_v

    def maps(
        self,
        f_v: Float[Tensor, "b c h w"],
        f_a: Float[Tensor, "b p a"],
        scenes: "Scenes",
        cycles: int | None = None,
    ) -> Float32[np.ndarray, "b h2 w2"]:
        """The maps S of scenes under sounds, zoomed in on small things if the card says so."""
        f_a = f_a.to(self.device)
        maps = self.method.maps(f_v, f_a, cycles).float().cpu().numpy()
        if not self.card.zoom:
            return maps

        def closer(windows: Sequence[AnyPicture], rows: Sequence[int]) -> Maps:
            return self.method.maps(self.see(windows), f_a[list(rows)], cycles).cpu().numpy()

        return zoom(maps, self.card.zoom, scenes.picture, closer)


@runtime_checkable  # the tests check types as they run
class Scenes(Protocol):
    """A batch of pictures whose visual features are computed now, or read from a cache."""

    def features(self, part: Part) -> Float[Tensor, "b c h w"]:
        """The visual features that a part of the model sees."""

    def picture(self, row: int) -> AnyPicture:
        """The pixels of one picture."""

    def film(self, row: int) -> Film | None:
        """The small pictures around one, if it belongs to a video."""

    def sound(self, row: int) -> AnyWaveform | None:
        """What is heard with one that has a film, if that is known."""


class Pictures(NamedTuple):
    """Pictures that are encoded now; those of videos have a film, and maybe its sound."""

    frames: Sequence[AnyPicture]
    films: Sequence[Film | None] = ()
    sounds: Sequence[AnyWaveform] = ()

    def features(self, part: Part) -> Float[Tensor, "b c h w"]:
        """The visual features that a part of the model sees."""
        return part.see(self.frames)

    def picture(self, row: int) -> AnyPicture:
        """The pixels of one picture."""
        return self.frames[row]

    def film(self, row: int) -> Film | None:
        """The small pictures around one, if it belongs to a video."""
        return self.films[row] if self.films else None

    def sound(self, row: int) -> AnyWaveform | None:
        """What is heard with one that has a film, if that is known."""
        return self.sounds[row] if self.sounds else None


@dataclass(frozen=True, eq=False)
class Localizer:
    """A trained method on its frozen encoders, maybe with a label map; made by `load`.

    It never changes, so several threads may use one.

    Attributes:
        name: Name of the model.
        learned: The trained method.
        class_names: The sounds that the audio encoder can name; empty if it cannot.
        cycles: T of a PCM model where a call gives none; None is that of its training.
        named: The label map, for sounds that were not learned.
        table: The sounds that each of the two knows.
    """

    name: str
    learned: Part
    class_names: tuple[str, ...] = ()
    cycles: int | None = None
    named: Part | None = None
    table: SoundTable | None = None

    def __post_init__(self) -> None:
        """Refuse a T that the model cannot have."""
        self._check_cycles(self.cycles)

    @property
    def card(self) -> Card:
        """What the checkpoint says about itself."""
        return self.learned.card

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.learned.device

    @property
    def audio(self) -> nn.Module:
        """The audio encoder, which all parts share."""
        return self.learned.encoders.audio

    @property
    def threshold(self) -> float | None:
        """The lowest score of a visible source, if the model was calibrated."""
        return self.card.calibration.get("threshold")

    @property
    def verdict_ends(self) -> tuple[float | None, float | None]:
        """The peak from which a source counts as visible, and from which that cannot be told."""
        if self.threshold is None or self.table is None:
            return self.threshold, None
        return evidence.VISIBLE, evidence.DOUBT

    @property
    def trained_cycles(self) -> int | None:
        """T of a PCM model; None without a PCM."""
        config = self.card.config
        return int(config["cycles"]) if config.get("pcm") else None

    def localize(
        self,
        frame: FrameLike,
        waveform: WaveformLike,
        cycles: int | None = None,
        film: Film | None = None,
    ) -> Localization:
        """Find where in a frame a sound comes from.

        Args:
            frame: RGB of any size: H x W x 3 uint8 array, PIL image, or 3 x H x W uint8 tensor.
            waveform: Mono 16 kHz floats; the middle 3 s are heard, a shorter sound is repeated.
            cycles: T of a PCM model, if not the one it was trained with.
            film: Small gray pictures of the video around the frame, see `media.films`.

        Example:
            >>> model = soundspot.load()
            >>> result = model.localize(frame, waveform)
            >>> result.map.shape == frame.shape[:2]
            True
            >>> -1 <= result.score <= 1
            True
        """
        return self.localize_batch([frame], [waveform], cycles, [film])[0]

    def localize_batch(
        self,
        frames: Sequence[FrameLike],
        waveforms: Sequence[WaveformLike],
        cycles: int | None = None,
        films: Sequence[Film | None] = (),
    ) -> list[Localization]:
        """Find where in each frame its sound comes from, a chunk of samples at a time.

        Args:
            frames: As `localize` takes them; their sizes may differ.
            waveforms: One for each frame.
            cycles: As `localize` takes it.
            films: One for each frame, or none.

        Example:
            >>> model = soundspot.load()
            >>> whole, left = model.localize_batch([frame, frame[:, :100]], [waveform, waveform])
            >>> left.map.shape[1]
            100
        """
        if len(frames) != len(waveforms):
            raise SoundspotError(f"got {len(waveforms)} waveforms for {len(frames)} frames")
        results: list[Localization] = []
        for start in range(0, len(frames), CHUNK):
            pixels = [as_frame(frame) for frame in frames[start : start + CHUNK]]
            sounds = [as_waveform(waveform) for waveform in waveforms[start : start + CHUNK]]
            scenes = Pictures(pixels, films[start : start + CHUNK], sounds)
            found = self.answer(scenes, self.hear(sounds), cycles)
            for frame, sound, result in zip(pixels, sounds, found, strict=True):
                results.append(replace(result, frame=frame, waveform=sound))
        return results

    def hear(self, sounds: Sequence[Float32[np.ndarray, "_"]]) -> Float[Tensor, "b p a"]:
        """The audio features f_a of sounds of one length."""
        with torch.inference_mode():
            f_a: Tensor = self.audio(torch.from_numpy(np.stack(sounds)).to(self.device))
        return f_a

    @torch.inference_mode()
    def answer(
        self, scenes: Scenes, f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> list[Localization]:
        """The map, labels and threshold of every scene under its sound.

        Args:
            scenes: The pictures, or their cached features.
            f_a: The audio features of the sounds, as `hear` gives them.
            cycles: As `localize` takes it.
        """
        cycles = self.cycles if cycles is None else cycles
        self._check_cycles(cycles)
        scores = self.name_scores(f_a)
        shares: list[Shares | None] = [None] * len(scores)
        threshold, doubt = self.verdict_ends
        if self.table is None:
            maps = self.learned.maps(scenes.features(self.learned), f_a, scenes, cycles)
        else:
            # With a label map, all evidence is combined; the peak is then a probability.
            known = self.known(scenes, f_a, cycles)
            maps = evidence.combine(known, evidence.read_weights()).cpu().numpy()
            shares = [Shares(*row) for row in evidence.shares_of(known).tolist()]
        return [
            Localization(
                similarity=s,
                labels=self._labels(named),
                model=self.name,
                trained=self.card.trained,
                threshold=threshold,
                doubt=doubt,
                shares=share,
            )
            for s, named, share in zip(maps, scores, shares, strict=True)
        ]

    @torch.inference_mode()
    def known(
        self, scenes: Scenes, f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> Known:
        """All evidence about scenes and their sounds, on the learned model's grid."""
        assert self.named is not None and self.table is not None  # `answer` asks before
        f_v = scenes.features(self.learned)
        learned = self.learned.maps(f_v, f_a, scenes, cycles)
        height, width = learned.shape[1:]
        named = self.named.maps(scenes.features(self.named), f_a, scenes)
        films = [scenes.film(row) for row in range(len(f_a))]
        moving = [
            motion_map(film, height, width, None if film is None else scenes.sound(row))
            for row, film in enumerate(films)
        ]
        noise = self.noise.to(f_v.device).expand(len(f_a), -1, -1)
        scores = torch.from_numpy(self.name_scores(f_a))
        common = torch.from_numpy(self.noise_scores)
        return Known(
            learned=torch.from_numpy(learned),
            named=torch.from_numpy(resize_map(named, height, width)),
            motion=torch.from_numpy(np.stack(moving)),
            noise=self.learned.method.maps(f_v, noise, cycles).amax(dim=(1, 2)).float().cpu(),
            threshold=self.threshold or 1.0,
            sure=evidence.how_sure(scores, common, self.table),
            recorded=torch.tensor([film is not None for film in films]),
        )

    @cached_property
    def noise(self) -> Float[Tensor, "1 p a"]:
        """The audio features of white noise: the mean of a few draws."""
        rng = np.random.default_rng(0)
        drawn = [rng.uniform(-0.1, 0.1, SOUND_SAMPLES).astype(np.float32) for _ in range(NOISES)]
        return self.hear(drawn).mean(dim=0, keepdim=True)

    @cached_property
    def noise_scores(self) -> Float32[np.ndarray, "classes"]:
        """What white noise sounds like."""
        return np.asarray(self.name_scores(self.noise)[0])

    @torch.inference_mode()
    def trace(
        self, scenes: Scenes, f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> Float32[np.ndarray, "t b h w"]:
        """The learned map S after each pass t = 1, ..., T of the PCM (the paper's Fig. 7)."""
        if self.trained_cycles is None:
            raise SoundspotError(f"{self.name} has no PCM: it makes one map, not one per cycle")
        cycles = self.cycles if cycles is None else cycles
        self._check_cycles(cycles)
        f_v, heard = scenes.features(self.learned), f_a.to(self.device)
        maps = self.learned.method.maps_by_cycle(f_v, heard, cycles)
        return torch.stack(maps).float().cpu().numpy()

    def _check_cycles(self, cycles: int | None) -> None:
        if cycles is not None and self.trained_cycles is None:
            raise SoundspotError(f"{self.name} has no PCM, so cycles={cycles} has no meaning")
        if cycles is not None and cycles < 1:
            raise SoundspotError(f"the PCM needs at least one cycle, got cycles={cycles}")

    def name_scores(self, f_a: Float[Tensor, "b p a"]) -> Float32[np.ndarray, "b classes"]:
        """Scores of all sounds that have a name; no classes if the encoder cannot name sounds."""
        if not self.class_names:
            return np.ones((len(f_a), 0), np.float32)
        assert isinstance(self.audio, YAMNet)
        with torch.inference_mode():
            return self.audio.classify(f_a.to(self.device)).mean(dim=1).cpu().numpy()

    def _labels(self, scores: Float32[np.ndarray, "classes"]) -> list[tuple[str, float]]:
        """What is heard, best first."""
        best = np.argsort(-scores, kind="stable")[:TOP_LABELS]
        return [(self.class_names[k], float(scores[k])) for k in best]

    @cached_property
    def digest(self) -> str:
        """Identifies everything that decides a map; caches of results are keyed by it."""
        sha = hashlib.sha256()
        for part in filter(None, (self.learned, self.named)):
            card = part.card
            facts = [card.method, card.config, card.calibration, card.zoom]
            sha.update(json.dumps([*facts, to_dict(card.features)]).encode())
            for module in (part.method, part.encoders.visual, part.encoders.audio):
                for name, tensor in sorted(module.state_dict().items()):
                    sha.update(name.encode())
                    sha.update(tensor.cpu().contiguous().numpy().tobytes())
        weights = None if self.table is None else evidence.read_weights()
        sha.update(json.dumps([self.cycles, self.table, weights, self.class_names]).encode())
        return sha.hexdigest()[:16]
