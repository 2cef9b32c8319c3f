"""A frame and its sound, or a file, in; a Localization out.

Axes: b pairs, h w the grid of the map, t passes of the PCM.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from soundspot.common.errors import SoundspotError
from soundspot.encoders.yamnet import YAMNet
from soundspot.inference import sound_events
from soundspot.inference.grids import resize_map
from soundspot.inference.inputs import FrameLike, WaveformLike, as_frame, as_waveform
from soundspot.inference.looks import look, see
from soundspot.inference.regions import hot_box, map_heat
from soundspot.inference.result import Localization
from soundspot.inference.router import Found, Router
from soundspot.inference.second_look import FINER
from soundspot.media.clips import Clip, read_clip, read_frames, read_sounds
from soundspot.media.decoding import AnyPicture
from soundspot.media.opening import Media, opened
from soundspot.model import checkpoint
from soundspot.model.methods.method import Method
from soundspot.model.routing import Route, choose_route, is_unknown

TOP_LABELS = 5
CHUNK = 8  # frames that the encoders see at once

Heard = Float32[np.ndarray, "48000"]


@dataclass(frozen=True, eq=False)
class Localizer:
    """A trained method on its frozen encoders, maybe with a bridge by names; made by `load`.

    Attributes:
        name: Name of the model.
        method: The trained part.
        visual: The visual encoder.
        audio: The audio encoder.
        card: What the checkpoint says about itself.
        class_names: The sounds that the audio encoder can name; empty if it cannot.
        device: Where all of it lives.
        cycles: T of a PCM model where a call gives none; None is that of its training.
        router: Lets the sound choose between this model and the bridge by names, if there is one.
    """

    name: str
    method: Method
    visual: nn.Module
    audio: nn.Module
    card: checkpoint.Card
    class_names: tuple[str, ...]
    device: torch.device
    cycles: int | None = None
    router: Router | None = None

    def __post_init__(self) -> None:
        """Refuse a T that the model cannot have."""
        self._check_cycles(self.cycles)

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
            >>> result = model.localize(frame, waveform)
            >>> result.map.shape == frame.shape[:2]
            True
            >>> -1 <= result.score <= 1
            True
        """
        return self.localize_batch([frame], [waveform], cycles)[0]

    def localize_batch(
        self,
        frames: Sequence[FrameLike],
        waveforms: Sequence[WaveformLike],
        cycles: int | None = None,
    ) -> list[Localization]:
        """Find where in each frame its sound comes from, a chunk of pairs at a time.

        Args:
            frames: As `localize` takes them; their sizes may differ.
            waveforms: One for each frame.
            cycles: As `localize` takes it.

        Example:
            >>> model = soundspot.load()
            >>> whole, left = model.localize_batch([frame, frame[:, :100]], [waveform, waveform])
            >>> left.map.shape[1]
            100
        """
        if len(frames) != len(waveforms):
            raise SoundspotError(
                f"expected a waveform for each frame, got {len(waveforms)} for {len(frames)}"
            )
        results = []
        for start in range(0, len(frames), CHUNK):
            pixels = [as_frame(frame) for frame in frames[start : start + CHUNK]]
            sounds = [as_waveform(waveform) for waveform in waveforms[start : start + CHUNK]]
            located = self.locate(pixels, sounds, cycles)
            for frame, sound, found in zip(pixels, sounds, located, strict=True):
                full = resize_map(found.similarity, *frame.shape[:2])
                result = Localization(
                    map=full,
                    similarity=found.similarity,
                    box=None if is_unknown(found.route) else hot_box(map_heat(full)),
                    score=float(found.similarity.max()),
                    labels=found.labels,
                    model=self.name,
                    trained=self.card.trained,
                    frame=frame,
                    waveform=sound,
                    threshold=found.threshold,
                    route=found.route,
                )
                results.append(result)
        return results

    def locate(
        self, frames: Sequence[AnyPicture], sounds: Sequence[Heard], cycles: int | None = None
    ) -> list[Found]:
        """Maps S on the grid and labels, all in one pass through the encoders."""
        cycles = self.cycles if cycles is None else cycles
        self._check_cycles(cycles)
        with torch.inference_mode():
            f_a = self._hear(sounds)
            if self.router is not None:
                return self.router.locate(self, frames, f_a, cycles)
            pairs = zip(self.maps(frames, f_a, cycles), f_a, strict=True)
            return [Found(s, self.labels(heard), self.threshold) for s, heard in pairs]

    def maps(
        self, frames: Sequence[AnyPicture], f_a: Float[Tensor, "b p a"], cycles: int | None = None
    ) -> Float32[np.ndarray, "b h w"]:
        """This model's own maps S on the grid, of sounds that are encoded already.

        With a second look, all of them are on the finer grid.
        """

        def maps_of(
            parts: Sequence[AnyPicture], rows: Sequence[int], shrink: int = 1
        ) -> Float32[np.ndarray, "k h w"]:
            seen = self._see(parts, shrink)
            return self.method.maps(seen, f_a[list(rows)], cycles).cpu().numpy()

        def whole(rows: Sequence[int]) -> Float32[np.ndarray, "k h w"]:
            return maps_of([frames[row] for row in rows], rows)

        with torch.inference_mode():
            if not self.card.second_look:
                return whole(range(len(frames)))
            side = self.card.features.grid
            return look(frames, self.card.second_look, side, whole, maps_of)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of its maps."""
        side = self.card.features.grid * (FINER if self.card.second_look else 1)
        return side, side

    @property
    def threshold(self) -> float | None:
        """The lowest score of a visible source (see `visibility`), if the model was calibrated."""
        return self.card.calibration.get("threshold")

    def localize_file(
        self,
        path: Media,
        audio: Media | None = None,
        at: float | None = None,
        cycles: int | None = None,
    ) -> Localization:
        """Find where the sound of a video, or of a sound file in a photo, comes from.

        Args:
            path: A video, or an image.
            audio: A sound file; required with an image, replaces the sound of a video.
            at: Seconds into the video; default: the middle.
            cycles: As `localize` takes it.
        """
        return self.localize_clip(read_clip(path, audio, at), cycles)

    def localize_clip(self, clip: Clip, cycles: int | None = None) -> Localization:
        """`localize_file` for a clip that has been read already."""
        result = self.localize(clip.frame, clip.waveform, cycles)
        return replace(result, at=clip.at, heard=clip.heard)

    def localize_sources(
        self, path: Media, audio: Media | None = None, count: int = 2, cycles: int | None = None
    ) -> list[Localization]:
        """Separate the sounds of a video by time, and find where each comes from.

        Each map shows the frame at the loudest moment of a sound event (see `sound_events`) and
        hears nothing but that event, which is its `span`. Simultaneous sounds are one event.

        Args:
            path: A video, or an image.
            audio: A sound file; required with an image, replaces the sound of a video.
            count: How many events at most, the most salient first; there may be fewer.
            cycles: As `localize` takes it.
        """
        with opened(path) as picture, opened(picture if audio is None else audio) as sound:
            picture.info.require_picture()
            sound.info.require_sound()
            lengths = (file.info.duration for file in (picture, sound))
            slices = sound_events.listen(sound, min(filter(None, lengths)), self.class_scores)
            events = sound_events.find_events(slices, count)
            heard = read_sounds(sound.info, [(event.middle, event.heard) for event in events])
            frames = read_frames(picture, [event.at for event in events])
            moving = picture.info.kind == "video"
        results = self.localize_batch(frames, heard, cycles)
        return [
            replace(
                result,
                at=event.at if moving else None,
                span=(event.start, event.end),
                heard=(event.middle - event.heard / 2, event.middle + event.heard / 2),
            )
            for event, result in zip(events, results, strict=True)
        ]

    def maps_by_cycle(
        self, frame: FrameLike, waveform: WaveformLike, cycles: int | None = None
    ) -> Float32[np.ndarray, "t h w"]:
        """The map S after each pass t = 1, ..., T of a PCM model (the paper's Fig. 7)."""
        if not self.card.config.get("pcm"):
            raise SoundspotError(f"{self.name} has no PCM: it makes one map, not one per cycle")
        cycles = self.cycles if cycles is None else cycles
        self._check_cycles(cycles)
        with torch.inference_mode():
            f_v, f_a = self._see([as_frame(frame)]), self._hear([as_waveform(waveform)])
            maps = self.method.maps_by_cycle(f_v, f_a, cycles)
        return torch.cat(maps).cpu().numpy()

    def _check_cycles(self, cycles: int | None) -> None:
        if cycles is not None and not self.card.config.get("pcm"):
            raise SoundspotError(f"{self.name} has no PCM, so cycles={cycles} has no meaning")
        if cycles is not None and cycles < 1:
            raise SoundspotError(f"the PCM needs at least one cycle, got cycles={cycles}")

    def _see(self, frames: Sequence[AnyPicture], shrink: int = 1) -> Float[Tensor, "b c h w"]:
        sizes = [size // shrink for size in self.card.features.view_sizes]
        return see(self.visual, frames, sizes, self.device)

    def _hear(self, sounds: Sequence[Heard]) -> Float[Tensor, "b p a"]:
        f_a: Tensor = self.audio(torch.from_numpy(np.stack(sounds)).to(self.device))
        return f_a

    @property
    def _namer(self) -> YAMNet | None:
        """The audio encoder, if it can name sounds."""
        return self.audio if isinstance(self.audio, YAMNet) and self.class_names else None

    def labels(self, f_a: Float[Tensor, "p a"]) -> list[tuple[str, float]]:
        """What is heard, best first; nothing if the encoder cannot name sounds."""
        if self._namer is None:
            return []
        scores, classes = self._namer.classify(f_a).mean(dim=0).topk(TOP_LABELS)
        names = [self.class_names[i] for i in classes.tolist()]
        return list(zip(names, scores.tolist(), strict=True))

    def name_scores(self, f_a: Float[Tensor, "b p a"]) -> Float32[np.ndarray, "b classes"]:
        """Scores of all sounds that have a name; no classes if the encoder cannot name sounds."""
        if self._namer is None:
            return np.ones((len(f_a), 0), np.float32)
        return self._namer.classify(f_a).mean(dim=1).cpu().numpy()

    def name_sounds(
        self, sounds: Sequence[Heard]
    ) -> list[tuple[list[tuple[str, float]], Route | None]]:
        """What is heard, best first, and who would make the map; no frame is needed."""
        named = []
        with torch.inference_mode():
            for start in range(0, len(sounds), CHUNK):
                f_a = self._hear(sounds[start : start + CHUNK])
                for heard, scores in zip(f_a, self.name_scores(f_a), strict=True):
                    route = None if self.router is None else choose_route(scores, self.router.table)
                    named.append((self.labels(heard), route))
        return named

    def class_scores(
        self, sounds: Float32[np.ndarray, "b samples"]
    ) -> Float32[np.ndarray, "b classes"]:
        """Scores of all names for sounds as they are heard."""
        if self._namer is None:
            return self.name_scores(torch.empty(len(sounds), 0, 0))
        with torch.inference_mode():
            return self.name_scores(self.audio(torch.from_numpy(sounds).to(self.device)))
