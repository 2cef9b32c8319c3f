"""routing.py: by hand on a table of six sounds."""

import numpy as np
import pytest

from soundspot.model import routing
from soundspot.model.label_map import LabelMap, Thing
from soundspot.model.routing import Route, choose_route, is_unknown, route_table

NAMES = ("Bark", "Speech", "Banjo", "Animal", "Noise", "Yip")
LABELS = LabelMap((Thing("banjo", (2, 0), (7,)),), learned=(0, 5), related=(1,), broad=(3,))


@pytest.fixture(autouse=True)
def constants(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("KNOWN", 0.1), ("LEARNED", 1.0), ("NAMED", 4.0)):
        monkeypatch.setattr(routing, name, value)


def route(**scores: float) -> Route:
    heard = [scores.get(name, 0.0) for name in NAMES]
    return choose_route(np.array(heard, np.float32), route_table(LABELS, NAMES))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({"Bark": 0.5, "Banjo": 0.4}, Route("learned", 0.0, "Bark")),
        ({"Yip": 0.5, "Speech": 0.4}, Route("learned", 0.0, "Yip")),
        ({"Bark": 0.5, "Speech": 0.6}, Route("related", 0.0, "Speech")),
        ({"Bark": 0.1, "Banjo": 0.4}, Route("named", 1.0, "Banjo")),
        ({"Animal": 0.9, "Bark": 0.02, "Banjo": 0.01}, Route("learned", 0.0, "Bark")),
        ({"Bark": 0.09, "Banjo": 0.09, "Noise": 0.9}, Route("unknown", 0.0, "")),
    ],
)
def test_the_best_name_decides(scores: dict[str, float], expected: Route) -> None:
    assert route(**scores) == expected


def test_between_the_two_the_maps_are_blended() -> None:
    by, share, sound = route(Bark=0.2, Banjo=0.4)  # twice: half way from 1 to 4 in logarithms
    assert (by, sound) == ("both", "Banjo") and share == pytest.approx(0.5)
    assert route(Bark=0.3, Banjo=0.4).sound == "Bark"


def test_a_route_is_told_in_words() -> None:
    assert route(Banjo=0.9).describe() == 'by the name "banjo"'
    assert is_unknown(route()) and "without a known counterpart" in route().describe()
    assert not is_unknown(None) and not is_unknown(route(Bark=0.9))
