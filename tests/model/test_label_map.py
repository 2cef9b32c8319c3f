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
    ("text", "message"),
    [
        ("dog: Bark -> boxr", r"mine.yaml, 'dog': there is no ImageNet class 'boxr'; .*'boxer'\?"),
        ("dog: Barks -> boxer", "'dog': there is no AudioSet sound 'Barks'; did you mean 'Bark'"),
        ("dog: Bark ->", "'dog': a name is missing, expected an ImageNet class"),
        ("dog: Bark; -> pug", "'dog': a name is missing, expected an AudioSet sound"),
        ("dog: Bark", "'dog': expected AudioSet names -> ImageNet classes"),
        ("dog: Bark -> pug ... beagle", "'beagle' comes before 'pug'"),
        ("{}", "has no lines"),
        ("learned: {dog: Barks}", "'learned' dog: there is no AudioSet sound 'Barks'; did you"),
        ("broad: Roar\ndog: Bark -> pug", "'broad': there is no AudioSet sound 'Roar'"),
        ("- dog", "must contain a YAML mapping"),
    ],
)
def test_a_bad_line_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SoundspotError, match=message) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_label_map_that_is_not_there_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(SoundspotError):
        read_label_map(tmp_path / "none.yaml", SOUNDS, CLASSES)


def test_the_label_map_that_ships_names_only_what_exists() -> None:
    things, learned, kin, wide = read_label_map(LABEL_MAP, yamnet.class_names(), class_names())
    assert len(learned) > 50 and len(kin) > 70 and not {*learned} & {*kin} and not {*kin} & {*wide}
    assert len(things) > 200
    by_name = {thing.name: thing for thing in things}
    assert by_name["dog"].classes == tuple(range(151, 269))
    assert [class_names()[k] for k in by_name["accordion"].classes] == ["accordion"]
