"""What a model knows, in plain words."""

from soundspot.inference.localizer import Localizer
from soundspot.inference.router import NAMES

# The kinds of things in the training data of the models that ship.
LEARNED = {
    "escvoc": "aeroplanes, birds, cars, cats, chickens, cows, dogs, motorbikes, people, sheep and "
    "trains"
}


def what_it_knows(localizer: Localizer) -> str:
    """A sentence or two on what a model has learned; empty if nobody can tell."""
    if not localizer.card.trained:
        return f"{localizer.name} has learned nothing: its maps mean nothing."
    if localizer.name == NAMES:
        return "names locates things by the name of their sound, as listed in its table."
    learned = LEARNED.get(str(localizer.card.provenance.get("data")))
    if learned is None:
        return ""
    other = "With any other sound the map may light up anything."
    if localizer.router is not None:
        other = "Other sounds are located by name, if both the sound and the thing have one."
    return f"{localizer.name} has learned what {learned} look and sound like. {other}"
