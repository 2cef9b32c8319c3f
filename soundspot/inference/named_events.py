"""The sound events of a file with a short name each, in order of time: what a timeline shows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from soundspot.inference.result import WORTH_SAYING
from soundspot.inference.sound_events import SLICE, Slices, passages

# Names that say little where a more particular one is nearly as likely.
BROAD = frozenset((
    "Animal", "Domestic animals, pets", "Livestock, farm animals, working animals", "Wild animals",
    "Vehicle", "Alarm", "Sound effect", "Inside, small room", "Inside, large room or hall",
    "Inside, public space", "Outside, urban or manmade", "Outside, rural or natural",
))  # fmt: skip
NEARLY = 0.6  # of the score of the best name
UNNAMED = "A sound"


@dataclass(frozen=True)
class NamedEvent:
    """A sound from start to end in seconds, loudest at `at`."""

    start: float
    end: float
    at: float
    name: str


def name_events(slices: Slices, class_names: Sequence[str]) -> list[NamedEvent]:
    """All events of a sound; neighbours of one name are joined."""
    events: list[NamedEvent] = []
    loudness: list[float] = []
    for group in passages(slices):
        loudest = group.start + int(slices.rms[group].argmax())
        name = short_name(slices.classes[group].mean(axis=0), class_names)
        end = min(group.stop * SLICE, slices.seconds)
        event = NamedEvent(group.start * SLICE, end, min((loudest + 0.5) * SLICE, end), name)
        loud = float(slices.rms[loudest])
        if events and events[-1].name == name and event.start - events[-1].end <= SLICE:
            louder = event.at if loud > loudness[-1] else events[-1].at
            events[-1] = replace(events[-1], end=end, at=louder)
            loudness[-1] = max(loud, loudness[-1])
        else:
            events.append(event)
            loudness.append(loud)
    return events


def short_name(scores: Float[np.ndarray, "classes"], class_names: Sequence[str]) -> str:
    """What a sound probably is, in a word or two; "A sound" if that is a mere guess."""
    if not class_names or scores.max() < WORTH_SAYING:
        return UNNAMED
    likely = [class_names[i] for i in np.argsort(-scores) if scores[i] >= NEARLY * scores.max()]
    name = next((name for name in likely if name not in BROAD), likely[0])
    return str(name).partition(",")[0]
