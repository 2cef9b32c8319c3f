"""The timeline: the waveform of a sound with its events named along it, as HTML.

A click on it is answered by page.js (play from there) and by the server (the map of that moment).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float32

from soundspot.inference.localizer import Localizer
from soundspot.inference.named_events import NamedEvent, name_events
from soundspot.inference.sound_events import CHUNK, SLICE, listen
from soundspot.media import clips as media
from soundspot.media.clips import SAMPLE_RATE, SOUND_SECONDS, Media
from soundspot.web.comparing import Report

COLUMNS, HEIGHT = 240, 64
LABEL = 0.2  # share of the timeline that the name of an event needs on a phone
LANES = 3  # rows of names; an event that finds no room has none

Columns = Float32[np.ndarray, "columns 2"]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A sound of some seconds: the extremes of its waveform, and its events."""

    seconds: float
    columns: Columns
    events: tuple[NamedEvent, ...]


def read_timeline(sound: Media, seconds: float, localizer: Localizer, report: Report) -> Timeline:
    """Walk through a sound: once for its waveform, once for what is heard."""
    report(0.0, "Listening")
    columns = read_columns(sound, seconds)
    chunks = max(1.0, seconds / (SLICE * CHUNK))
    heard = 0

    def classify(
        sounds: Float32[np.ndarray, "b samples"],
    ) -> Float32[np.ndarray, "b classes"]:
        nonlocal heard
        report(min(0.2 + 0.8 * heard / chunks, 1.0), "Listening")
        heard += 1
        return localizer.class_scores(sounds)

    slices = listen(sound, seconds, classify)
    return Timeline(seconds, columns, tuple(name_events(slices, localizer.class_names)))


def read_columns(sound: Media, seconds: float) -> Columns:
    """The lowest and highest sample in every column of a sound, in constant memory."""
    step = seconds / COLUMNS
    middles = [(k + 0.5) * step for k in range(COLUMNS)]
    columns = np.zeros((COLUMNS, 2), np.float32)
    length = max(step, 1 / SAMPLE_RATE)
    for k, windows in enumerate(media.iter_windows(sound, middles, (length,))):
        if windows is not None:
            columns[k] = windows[0].min(), windows[0].max()
    return columns


def timeline_html(timeline: Timeline, at: float, sound: str | None = None) -> str:
    """The waveform with a mark at a moment and what is heard there, and the named events.

    Args:
        timeline: The sound.
        at: The moment in seconds.
        sound: Address of the sound, to be played if the page has no video to play.
    """
    seconds = timeline.seconds
    heard = min(SOUND_SECONDS, seconds)
    start = min(max(at - heard / 2, 0.0), seconds - heard)
    names, lanes = _names_html(timeline.events, seconds)
    audio = f'<audio preload="none" src="{escape(sound)}"></audio>' if sound else ""
    return (
        f'<div class="timeline" data-seconds="{seconds}" data-heard="{heard}">'
        f'<div class="wave" role="slider" tabindex="0" aria-label="Moment" aria-valuemin="0" '
        f'aria-valuemax="{seconds:.2f}" aria-valuenow="{at:.2f}" '
        f'aria-valuetext="{at:.2f} seconds">'
        f'<svg viewBox="0 0 1000 {HEIGHT}" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="sound" d="{_wave_path(timeline.columns)}"/></svg>'
        f'<i class="heard" style="left:{_percent(start, seconds)};'
        f'width:{_percent(heard, seconds)}"></i>'
        f'<i class="moment" style="left:{_percent(at, seconds)}"></i><i class="playing"></i></div>'
        f'<div class="events" style="--lanes:{lanes}">{names}</div>'
        f'<div class="ends" aria-hidden="true"><span>0 s</span><span>{seconds:.1f} s</span></div>'
        f"{audio}</div>"
    )


def _wave_path(columns: Columns) -> str:
    """The waveform, scaled to the full height."""
    peak = max(float(np.abs(columns).max()), 1e-6)
    width = 1000 / len(columns)
    path = ""
    for k, (low, high) in enumerate((columns / peak).tolist()):
        top, height = (1 - high) / 2 * HEIGHT, max((high - low) / 2 * HEIGHT, 1.0)
        path += f"M{k * width:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
    return path


def _names_html(events: Sequence[NamedEvent], seconds: float) -> tuple[str, int]:
    """A button for every event, in as many rows as they need; the longest get theirs first."""
    ends: list[list[tuple[float, float]]] = []
    buttons: dict[float, str] = {}
    for event in sorted(events, key=lambda event: event.start - event.end):
        width = max((event.end - event.start) / seconds, LABEL)
        left = min(event.start / seconds, 1 - width) if width < 1 else 0.0
        lane = next((k for k, row in enumerate(ends) if _has_room(row, left, width)), len(ends))
        if lane == LANES:
            continue
        if lane == len(ends):
            ends.append([])
        ends[lane].append((left, left + width))
        span = f"{event.start:.1f} to {event.end:.1f} s"
        name = escape(event.name)
        buttons[event.start] = (
            f'<button type="button" data-at="{event.at:.2f}" title="{name}, {span}" '
            f'aria-label="{name}, {span}: show this moment" '
            f'style="left:{100 * left:.2f}%;width:{100 * min(width, 1):.2f}%;--lane:{lane}">'
            f"{name}</button>"
        )
    return "".join(buttons[start] for start in sorted(buttons)), len(ends)


def _has_room(row: Sequence[tuple[float, float]], left: float, width: float) -> bool:
    return all(left + width <= start or end <= left for start, end in row)


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%"
