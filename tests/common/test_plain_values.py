import json

import pytest

from soundspot.common.config import parse_json, parse_yaml, read_bytes

LAUGHS = "\n".join(
    ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    + [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 12)]
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 3000 + "]" * 3000, "nested"),
        ("a: " * 3000, "."),
        ("[" * 40 + "]" * 40, "nested deeper than 32"),
        (LAUGHS, "more than 100,000 values"),
        ("&a [*a]", "nested deeper"),
        ("a: '", "."),
        ("a: \0", "."),
        ("a: " + "9" * 5000, "."),
        ("a: 2020-13-45", "."),
        ("? [1]\n: 2\n? {a: 1}\n: 3", "."),
    ],
)
def test_bad_yaml_is_a_value_error(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_yaml(text)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "[" * 40 + "]" * 40, b"\xff\xfe\xfa", "9" * 5000]
)
def test_bad_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        parse_json(text)


def test_what_is_good_is_read_in_full():
    values = {"a": [1, {"b": None}], "c": [0] * 200_000}
    assert parse_json(json.dumps(values)) == values
    assert parse_yaml("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", 5) == b"12345"
    with pytest.raises(ValueError, match="larger than"):
        read_bytes(tmp_path / "a", 4)
