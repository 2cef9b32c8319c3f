"""What is heard, and whether it is in the picture, as a friend would say it."""

from collections.abc import Sequence
from typing import Literal

Verdict = Literal["visible", "not visible", "unknown"]
Labels = Sequence[tuple[str, float]]

CAPTION_LABELS = 3
WORTH_SAYING = 0.1  # the lowest score of a name that captions list
SURE = 1.25  # times the threshold: a peak this high is quite sure
# Names that say little where a more particular one is nearly as likely.
BROAD = frozenset((
    "Animal", "Domestic animals, pets", "Livestock, farm animals, working animals", "Wild animals",
    "Vehicle", "Alarm", "Sound effect", "Inside, small room", "Inside, large room or hall",
    "Inside, public space", "Outside, urban or manmade", "Outside, rural or natural",
))  # fmt: skip
NEARLY = 0.6  # of the score of the best name
UNNAMED = "A sound"
VOICES = frozenset(("Speech", "Conversation", "Narration", "Child speech", "Singing", "Shout"))


def worth_saying(labels: Labels) -> list[tuple[str, float]]:
    """The labels that probably name the sound: at most three, none that is a mere guess."""
    return [label for label in labels[:CAPTION_LABELS] if label[1] >= WORTH_SAYING]


def short_name(labels: Labels) -> str:
    """What a sound probably is, in a word or two; "A sound" if that is a mere guess.

    Args:
        labels: Names with their scores, best first.
    """
    if not labels or labels[0][1] < WORTH_SAYING:
        return UNNAMED
    likely = [name for name, score in labels if score >= NEARLY * labels[0][1]]
    name = next((name for name in likely if name not in BROAD), likely[0])
    return name.partition(",")[0]


def caption(labels: Labels, verdict: Verdict, score: float, threshold: float | None) -> str:
    """One line: what is heard, and whether its source is in the picture."""
    name = short_name(labels)
    if verdict == "unknown":
        known = "" if name == UNNAMED else f"{name}, perhaps. "
        return f"{known}Cannot tell where this sound comes from."
    if verdict == "not visible":
        absent = "nobody in the picture seems to be speaking"
        if name not in VOICES:
            absent = "nothing in the picture seems to be making it"
        return f"{name}, but {absent}."
    sure = threshold is not None and score >= SURE * threshold
    return f"{name}. {'Quite sure.' if sure else 'Fairly sure.'}"
