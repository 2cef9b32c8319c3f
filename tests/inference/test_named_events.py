"""Names along a timeline."""

import numpy as np

from soundspot.inference.sound_events import NamedEvent, Slices, name_events
from soundspot.inference.words import short_name

NAMES = ("Animal", "Dog", "Vehicle horn, car horn, honking")


def slices(rms: list[float], classes: list[list[float]]) -> Slices:
    loud = np.array(rms)
    return Slices(len(rms) / 2, 2 * loud, loud, np.array(classes))


def test_events_in_order_of_time():
    dog, horn, none = [0.9, 0.8, 0.0], [0.0, 0.0, 0.7], [0.0, 0.0, 0.0]
    heard = slices([0.1, 0.3, 0.0, 0.2, 0.2], [dog, dog, none, horn, horn])
    assert name_events(heard, NAMES) == [
        NamedEvent(0.0, 1.0, 0.75, "Dog"),
        NamedEvent(1.5, 2.5, 1.75, "Vehicle horn"),
    ]


def test_a_short_pause_does_not_part_what_has_one_name():
    dog = [0.1, 0.9, 0.0]
    heard = slices([0.1, 0.0, 0.3, 0.0, 0.0, 0.2], [dog] * 6)
    assert name_events(heard, NAMES) == [
        NamedEvent(0.0, 1.5, 1.25, "Dog"),
        NamedEvent(2.5, 3.0, 2.75, "Dog"),
    ]
    assert name_events(slices([0.0, 0.0], [dog] * 2), NAMES) == []


def test_a_particular_name_is_better_than_a_broad_one():
    assert short_name([("Animal", 0.9), ("Dog", 0.8)]) == "Dog"
    assert short_name([("Animal", 0.9), ("Dog", 0.2)]) == "Animal"
    assert short_name([("Animal", 0.05)]) == short_name([]) == "A sound"
