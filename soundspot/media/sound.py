"""Windows of mono 16 kHz sound: how they are cut, and how many are cut in constant memory.

Axes: samples, total = mono sound at 16 kHz.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from jaxtyping import Float32
from numpy.typing import NDArray

from soundspot.common.errors import MediaError
from soundspot.media import decoding
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

    `center` is in seconds; None is the middle.
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

    `frames` is the decoded sound from `begin` or before, a whole second before all windows, of
    which the longest has `longest` seconds.
    """
    blocks = sound_blocks(path, begin, frames)
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


_HOLE = 0.1  # s; time stamps this far ahead of the samples mean missing sound, less is jitter
LONGEST_HOLE = 600  # s; beyond it the time stamps are broken
_FULL_SCALE = {"u8": 2**7, "s16": 2**15, "s32": 2**31, "flt": 1, "dbl": 1}


def sound_blocks(path: Path, second: int, frames: Iterable[TimedSound]) -> Iterator[Waveform]:
    """Resample the sound from a whole second on.

    At whole seconds the two sampling grids meet, so that from any of them the same samples follow,
    except in the first half second, where the decoder and the filter may lack what came before.
    `frames` is the decoded sound from `second` or before; `path` is named in errors.
    """
    resampler = av.AudioResampler("fltp", "mono", SAMPLE_RATE)
    for rate, block in _native_blocks(path, second, frames):
        frame = av.AudioFrame.from_ndarray(block[None], "fltp", "mono")
        frame.sample_rate = rate
        yield from (part.to_ndarray()[0] for part in resampler.resample(frame))
    # A resampler that had nothing to do answers the flush with [None].
    yield from (part.to_ndarray()[0] for part in resampler.resample(None) if part is not None)


def _native_blocks(
    path: Path, second: int, frames: Iterable[TimedSound]
) -> Iterator[tuple[int, Float32[np.ndarray, " native"]]]:
    """Give (rate, about a second of mono sound) from a whole second on, silence in its holes."""
    rate = clock = fed = given = 0  # samples: the decoder's place, what was taken, what was given
    pieces: list[Any] = []
    for time, frame in frames:
        if rate == 0:
            rate = frame.sample_rate
            clock, fed, given = round(time * rate), second * rate, second * rate
        if frame.sample_rate != rate:
            raise MediaError(f"{path} changes its sampling rate at {time:.2f} s: convert it first")
        if time - clock / rate > _HOLE:
            clock = round(time * rate)
        hole = clock - fed
        if hole > LONGEST_HOLE * rate:
            raise MediaError(f"{path} is damaged: its sound jumps ahead to {time:.2f} s")
        clock += frame.samples
        if clock > fed:
            pieces += [np.zeros(max(hole, 0), np.float32), _mono(path, frame)[max(-hole, 0) :]]
            fed = clock
        if fed - given >= rate:
            yield rate, np.concatenate(pieces)
            pieces, given = [], fed
    if fed > given:
        yield rate, np.concatenate(pieces)


def _mono(path: Path, frame: av.AudioFrame) -> Float32[np.ndarray, " native"]:
    """Average the channels; full scale is 1."""
    name = frame.format.packed.name
    if name not in _FULL_SCALE:
        raise MediaError(f"{path} has samples of type {name}: convert it to 16 or 32 bits first")
    data: Any = frame.to_ndarray()
    if frame.format.is_packed:
        data = data.reshape(-1, frame.layout.nb_channels).T
    if name == "flt":  # what most decoders give, some hundred times per clip
        return np.asarray(data[0] if len(data) == 1 else np.add.reduce(data) / len(data))
    mean = data.mean(axis=0) - (128 if name == "u8" else 0)
    return np.asarray(mean / _FULL_SCALE[name], np.float32)


Wave = NDArray[np.float32]

LOWEST_HZ = 20.0  # below it noise of any color is white
MOST_TILT = 2.0  # power falls as 1 / frequency^tilt: 0 is white noise, 2 brown
SNR_DB = (0.0, 20.0)


def mix(sound: Wave, other: Wave, snr_db: float = 0.0) -> Wave:
    """Both together, the first louder by `snr_db`, scaled down if they exceed full scale."""
    power = float(np.sqrt(np.mean(sound**2))) * 10 ** (-snr_db / 20)
    both = sound + other * (power / max(float(np.sqrt(np.mean(other**2))), 1e-9))
    return np.asarray(both / max(1.0, float(np.abs(both).max())), np.float32)


def add_noise(sound: Wave, rng: np.random.Generator) -> Wave:
    """The sound with noise of a random color and loudness."""
    spectrum = np.fft.rfft(rng.standard_normal(len(sound)))
    frequencies = np.fft.rfftfreq(len(sound), 1 / SAMPLE_RATE)
    spectrum *= np.maximum(frequencies, LOWEST_HZ) ** (-rng.uniform(0, MOST_TILT) / 2)
    noise = np.fft.irfft(spectrum, len(sound))
    return mix(sound, np.asarray(noise, np.float32), rng.uniform(*SNR_DB))
