"""label_map.py: the lines of a label map, and what is refused."""

from pathlib import Path

import pytest

from soundspot.common.errors import SoundspotError
from soundspot.encoders import yamnet
from soundspot.encoders.mobilenetv2 import class_names
from soundspot.model.label_map import LABEL_MAP, LabelMap, Thing, read_label_map

SOUNDS = ["Bark", "Violin, fiddle", "Moo"]
CLASSES = ["beagle", "boxer", "pug", "violin", "ox"]


def read(tmp_path: Path, text: str) -> LabelMap:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return read_label_map(path, SOUNDS, CLASSES)


def test_a_line_names_sounds_and_classes_or_ranges_of_them(tmp_path: Path) -> None:
    things, *_ = read(
        tmp_path, "dog: Bark -> boxer ... pug; beagle\nband: Violin, fiddle; Moo -> ox\n"
    )
    assert things == (Thing("dog", (0,), (1, 2, 0)), Thing("band", (1, 2), (4,)))


def test_three_keys_say_what_a_learned_model_takes(tmp_path: Path) -> None:
    keys = (
        'learned: {dog: Bark, calf: Moo; Bark}\nrelated: {fiddler: "Violin, fiddle"}\nbroad: Moo\n'
    )
    assert read(tmp_path, keys + "dog: Bark -> pug") == (
        (Thing("dog", (0,), (2,)),),
        (0, 2),
        (1,),
        (2,),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dog: Bark -> boxr", ["mine.yaml", "'dog'", "'boxr'", "'boxer'"]),
        ("dog: Barks -> boxer", ["'dog'", "'Barks'", "'Bark'"]),
        ("dog: Bark ->", ["'dog'", "ImageNet"]),
        ("dog: Bark; -> pug", ["'dog'", "AudioSet"]),
        ("dog: Bark", ["'dog'", "->"]),
        ("dog: Bark -> pug ... beagle", ["'beagle'", "'pug'"]),
        ("{}", []),
        ("learned: {dog: Barks}", ["'learned'", "'Barks'", "'Bark'"]),
        ("broad: Roar\ndog: Bark -> pug", ["'broad'", "'Roar'"]),
        ("- dog", ["YAML"]),
    ],
)
def test_a_bad_line_is_one_sentence(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(SoundspotError) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value) and all(word in str(caught.value) for word in words)
    with pytest.raises(SoundspotError):
        read_label_map(tmp_path / "none.yaml", SOUNDS, CLASSES)


def test_the_label_map_that_ships_names_only_what_exists() -> None:
    names = yamnet.class_names(), class_names()
    things, learned, related, broad = read_label_map(LABEL_MAP, *names)
    assert len(learned) > 50 and len(related) > 70
    assert not {*learned} & {*related} and not {*related} & {*broad}
    assert len(things) > 200
    by_name = {thing.name: thing for thing in things}
    assert by_name["dog"].classes == tuple(range(151, 269))
    assert [class_names()[k] for k in by_name["accordion"].classes] == ["accordion"]
