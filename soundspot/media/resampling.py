"""Decoded sound of any rate and layout -> mono at 16 kHz, with silence where it has holes.

Axes: samples = mono at 16 kHz; native = mono at the file's own rate.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from jaxtyping import Float32

from soundspot.common.errors import MediaError
from soundspot.media.decoding import SAMPLE_RATE, TimedSound, Waveform

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
