"""HTML of the page: texts, answers, progress."""

from dataclasses import replace

import pytest

from soundspot.model.routing import Route
from soundspot.web.comparing import Answer
from soundspot.web.following import Step
from soundspot.web.knowledge import what_it_knows
from soundspot.web.markup import (
    ShownMap,
    describe,
    findings_html,
    heard_html,
    maps_html,
    note_html,
    progress_html,
)
from web_media import quick_model, result

SHOWN = ShownMap("f.jpg", "m.jpg", "m.jpg", (15, 5))


def test_what_visitors_write_is_no_html():
    assert note_html("error", "a<b>.mp4 is empty") == (
        '<div class="note error" role="alert">a&lt;b&gt;.mp4 is empty.</div>'
    )
    assert note_html("hint", "now wait!") == '<div class="note hint" role="status">Now wait!</div>'
    answer = Answer((result([[0, 1]]), result([[0, 1]])), ("this sound", "<i>.wav"))
    shown = maps_html(answer, (SHOWN, replace(SHOWN, picture='"x'))) + findings_html(
        answer, {"<u>.json": "x"}
    )
    assert "&lt;i&gt;.wav" in shown and "Dog &lt;b&gt;" in shown and "&lt;u&gt;.json" in shown
    assert 'src="&quot;x"' in shown
    assert not any(tag in shown for tag in ("<i>.wav", "<b>", "<u>"))


def test_only_names_worth_saying_are_listed():
    shown = heard_html("", result([[0, 1]]))
    assert "width:25%" in shown and "Music" not in shown
    unsure = replace(result([[0, 1]]), labels=[("Music", 0.01)])
    assert "nothing it can name" in heard_html("", unsure)
    assert "cannot name sounds" in heard_html("", replace(unsure, labels=[]))


def test_two_models_hear_the_same_sound():
    named, mute = result([[0, 1]]), replace(result([[0, 1]]), labels=[])
    shown = findings_html(Answer((mute, named), ("mute", "named"), same_scale=False), {})
    assert shown.count("<h2>") == 1 and "<h2>Heard</h2>" in shown and "Dog" in shown
    both = findings_html(Answer((named, named), ("this sound", "a siren")), {})
    assert "Heard in this sound" in both and "Heard in a siren" in both


def test_a_map_in_words():
    found = replace(result([[0, 1, 2]]), box=(10, 0, 15, 5), at=2.0, threshold=0.4)
    assert describe(found) == (
        "The map over the frame at 2.0 s. Heard: Dog <b>. It is hottest at the middle right; "
        "the source is probably visible (peak 0.500, threshold 0.400)."
    )
    assert "The map is flat" in describe(result([[1, 1]]))


def test_the_page_says_who_made_the_map():
    def shown(route):
        return maps_html(Answer((replace(result([[0, 1]]), route=route),), ("",)), (SHOWN,))

    assert "Located by the name &quot;banjo&quot;." in shown(Route("names", 1.0, "Banjo"))
    unknown = shown(Route("unknown", 0.0, "Hum"))
    assert "Cannot tell: this sound was not learned" in unknown and "Located" not in unknown
    assert "Located" not in shown(None)


def test_one_color_scale_for_all_maps():
    loud, faint = result([[0.0, 0.8]], 0.8), result([[0.0, 0.2]], 0.2)
    sounds = maps_html(Answer((loud, faint), ("a", "b")), (SHOWN, SHOWN))
    assert sounds.count('class="scale"') == 1 and ">0.00<" in sounds and ">0.80<" in sounds
    models = maps_html(Answer((loud, faint), ("a", "b"), same_scale=False), (SHOWN, SHOWN))
    assert models.count('class="scale"') == 1 and "scaled for each model" in models


def test_progress_has_a_number():
    shown = progress_html(Step(0.374, "Listening", 8.6))
    assert "Listening: 37&nbsp;%, about 9 s left" in shown and 'value="0.374"' in shown
    assert "left" not in progress_html(Step(0.0, "Listening"))


@pytest.mark.parametrize(
    ("name", "trained", "words"),
    [
        ("soundspot-v1", True, "has learned what aeroplanes, birds, cars, cats,"),
        ("names", True, "by the name of their sound"),
        ("untrained-sspl", False, "its maps mean nothing"),
    ],
)
def test_what_a_model_knows(name: str, trained: bool, words: str):
    model = quick_model(name)
    assert words in what_it_knows(replace(model, card=replace(model.card, trained=trained)))
    own = replace(model, name="runs/mine", card=replace(model.card, provenance={"data": "mine"}))
    assert what_it_knows(own) == ""
