"""Windows of mono 16 kHz sound: how they are cut, and how many are cut in constant memory.

Axes: samples, total = mono sound at 16 kHz.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from soundspot.common.errors import MediaError
from soundspot.media import decoding, resampling
from soundspot.media.decoding import SAMPLE_RATE, AnyWaveform, TimedSound, Waveform
from soundspot.media.opening import OpenMedia

SOUND_SECONDS = 3.0
SOUND_SAMPLES = 48_000
SILENCE_PEAK = 1e-4  # half of the peak-to-peak swing; nothing can be heard below it (-80 dB)

_SOUND_END_SLACK = 0.5  # s; the tracks of a clip rarely end together
_SEEK_FROM = 20  # s; up to here decoding from the start costs no more than a seek

# A moment: the second in the middle of its windows, and the length of each window in seconds.
SoundMoment = tuple[float, Sequence[float]]
Windows = tuple[AnyWaveform, ...]


def cut(waveform: Float32[np.ndarray, " total"], center: float | None, samples: int) -> Waveform:
    """Take the window around a moment: shifted inside at the ends, tiled from a shorter sound.

    Args:
        waveform: The whole sound.
        center: Seconds; None for the middle.
        samples: The length of the window.
    """
    total = len(waveform)
    if total == 0:
        raise MediaError(f"expected a sound to take {samples} samples from, got an empty one")
    if total < samples:
        return np.resize(waveform, samples)  # np.resize repeats the array
    middle = total / 2 if center is None else center * SAMPLE_RATE
    start = min(max(round(middle - samples / 2), 0), total - samples)
    return waveform[start : start + samples].copy()


def is_silent(waveform: Waveform) -> bool:
    """Whether nothing can be heard; a constant offset is not a sound."""
    return float(np.ptp(waveform)) / 2 < SILENCE_PEAK


def walk_windows(
    path: Path,
    frames: Iterator[TimedSound],
    moments: Iterable[SoundMoment],
    longest: float,
    begin: int = 0,
) -> Iterator[Windows | None]:
    """`cut` the whole sound at growing moments; None after its end. Holds a few seconds of it.

    Args:
        path: Named in errors.
        frames: The decoded sound from `begin` or before.
        moments: Where to cut.
        longest: Seconds of the longest window of all moments.
        begin: A whole second of the sound, before all windows.
    """
    blocks = resampling.sound_blocks(path, begin, frames)
    buffer = np.zeros(0, np.float32)  # the sound from second `begin` on
    for at, lengths in moments:
        oldest = _oldest(at, longest)
        while begin + len(buffer) / SAMPLE_RATE < max(at + longest / 2, longest):
            if (block := next(blocks, None)) is None:
                break
            buffer = np.concatenate([buffer, block])
            # Whole seconds, so that `cut` rounds as it does on the whole.
            drop = max(0, min(oldest - begin, len(buffer) // SAMPLE_RATE))
            begin, buffer = begin + drop, buffer[drop * SAMPLE_RATE :]
        end = begin + len(buffer) / SAMPLE_RATE
        if len(buffer) == 0 or at > end + _SOUND_END_SLACK:
            yield None
            continue
        sizes = (round(seconds * SAMPLE_RATE) for seconds in lengths)
        windows = tuple(cut(buffer, at - begin, size) for size in sizes)
        if not all(np.isfinite(window).all() for window in windows):
            raise MediaError(f"{path} is damaged: its sound has infinite samples")
        yield windows


def seek_windows(file: OpenMedia, moments: Sequence[SoundMoment]) -> Iterator[Windows | None]:
    """`walk_windows` that seeks to each late moment, if the file's time stamps count samples."""
    exact = decoding.seeks_exactly(file.container, "audio")
    groups: list[list[SoundMoment]] = []
    for at, lengths in moments:
        if not groups or (exact and _begin(at, max(lengths)) > 0):
            groups.append([])
        groups[-1].append((at, lengths))
    for group in groups:
        longest = max(seconds for _, lengths in group for seconds in lengths)
        begin = _begin(group[0][0], longest)
        frames = file.walk("audio", float(begin))
        yield from walk_windows(file.info.path, frames, group, longest, begin)


def _oldest(at: float, seconds: float) -> int:
    """The second before which no sample is needed; one more is for the decoder to warm up."""
    return max(0, int(at - seconds - _SOUND_END_SLACK) - 1)


def _begin(at: float, seconds: float) -> int:
    """Where to begin decoding for a window."""
    oldest = _oldest(at, seconds)
    return oldest if oldest >= _SEEK_FROM else 0
