import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from soundspot.common.config import (
    Range,
    choose,
    from_dict,
    non_defaults,
    override,
    parse_json,
    parse_yaml,
    read_bytes,
    read_typed,
    to_dict,
)
from soundspot.common.errors import SoundspotError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    names: tuple[str, ...] = ("a",)
    kind: Literal["x", "y"] = "x"


@dataclass(frozen=True)
class Outer:
    where: Path
    count: int = 3
    flag: bool = False
    maybe: int | None = None
    inner: Inner = field(default_factory=Inner)
    free: dict[str, object] = field(default_factory=dict)
    few: Annotated[int, Range(1, 9)] = 2
    levels: dict[str, float] = field(default_factory=dict)
    score: Annotated[float, Range(-math.inf)] = 0.0


def test_nested_values_become_dataclasses_and_come_back():
    values = {"where": "a/b", "inner": {"rate": "5e-4", "names": ["p", "q"]}, "free": {"k": 1}}
    made = from_dict(Outer, values)
    assert made.where == Path("a/b")
    assert made.inner == Inner(5e-4, ("p", "q"))
    assert from_dict(Outer, to_dict(made)) == made


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cuont": 1}, ["'cuont'", "'count'"]),
        ({"inner": {"rat": 1}}, ["'inner.rat'", "'rate'"]),
        ({"count": "many"}, ["count", "int", "'many'"]),
        ({"count": True}, ["count", "int", "True"]),
        ({"flag": 1}, ["flag", "bool"]),
        ({"inner": 3}, ["inner"]),
        ({"inner": {"kind": "z"}}, ["inner.kind='z'", "x, y"]),
        ({"inner": {"names": "p"}}, ["inner.names", "list"]),
        ({"inner": {"rate": "fast"}}, ["inner.rate", "float"]),
        ({"inner": {"rate": math.nan}}, ["inner.rate", "finite"]),
        ({"inner": {"rate": "1e999"}}, ["inner.rate", "finite"]),
        ({"inner": {"rate": 10**400}}, ["inner.rate", "float"]),
        ({"few": 10}, ["few", "1", "9", "10"]),
        ({"few": 0}, ["few", "1", "9", "0"]),
        ({"levels": {"a": "high"}}, ["levels.a", "float", "'high'"]),
        ({"where": "w\0"}, ["where", "NUL"]),
        ({"count": "x" * 999}, ["count", f"'{'x' * 76}..."]),
    ],
)
def test_what_does_not_fit_is_refused_by_name(values, words):
    with pytest.raises(SoundspotError) as caught:
        from_dict(Outer, {"where": "w", **values})
    assert all(word in str(caught.value) for word in words) and len(str(caught.value)) < 200
    with pytest.raises(SoundspotError):
        from_dict(Outer, {})


def test_overrides_reach_into_sections_and_leave_the_original():
    original = {"where": "w", "inner": {"rate": 1}}
    changed = override(original, ["inner.rate=2e-3", "count=7", "maybe=null", "inner.names=[u, v]"])
    assert original["inner"] == {"rate": 1}
    made = from_dict(Outer, changed)
    assert (made.inner.rate, made.count, made.maybe, made.inner.names) == (
        2e-3,
        7,
        None,
        ("u", "v"),
    )


@pytest.mark.parametrize("bad", ["count", "=3", "where.deep=1", "count=[1"])
def test_bad_overrides_are_refused(bad):
    with pytest.raises(SoundspotError):
        override({"where": "w"}, [bad])


def test_choose_names_the_choices():
    with pytest.raises(SoundspotError):
        choose("method", "spl", {"sspl": 1, "other": 2})


def test_unusual_values_do_not_depend_on_new_switches():
    changed = non_defaults(Outer(Path("p"), inner=Inner(names=("y",)), score=0.25))
    assert changed["inner"] == {"names": ["y"]} and changed["score"] == 0.25
    assert "count" not in changed and non_defaults(Inner()) == {}


def test_scores_may_be_infinite_where_that_is_said():
    assert from_dict(Outer, {"where": "w", "score": -math.inf}).score == -math.inf


@pytest.mark.parametrize("bad", ["", "[]", "null", "{", '{"count": "x"}', "[" * 9999, '{"a": 1}'])
def test_a_damaged_file_of_ours_says_what_to_do(tmp_path, bad):
    path = tmp_path / "ours.json"
    path.write_text(json.dumps(to_dict(Outer(Path("w")))))
    assert read_typed(path, Outer, "delete it") == Outer(Path("w"))
    path.write_text(bad)
    with pytest.raises(SoundspotError):
        read_typed(path, Outer, "delete it")


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 3000 + "]" * 3000, "{a: " * 3000 + "1" + "}" * 3000, "a: " * 3000, "&a [*a]"),
        *("a: '", "a: \0", "a: " + "9" * 5000, "a: 2020-13-45", "? [1]\n: 2\n? {a: 1}\n: 3"),
    ],
)
def test_bad_yaml_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_yaml(text)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff\xfe\xfa", "9" * 5000])
def test_bad_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_what_is_good_is_read_in_full():
    values = {"a": [1, {"b": None}], "c": [0] * 200_000}
    assert parse_json(json.dumps(values)) == values
    assert parse_yaml("a: &x [1]\nb: 2") == {"a": [1], "b": 2}


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError):
        read_bytes(tmp_path / "a", 4)
