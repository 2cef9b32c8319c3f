"""Impossible recipes, lists and files are one sentence and exit code 2, quickly."""

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from soundspot.cli import main
from soundspot.media.clips import write_video


def refused(capsys, *words: object) -> str:
    assert main([str(word) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "Traceback" not in captured.err
    return captured.err


RECIPES = {
    "nested 3,000 deep": ("pairs: " + "[" * 3000 + "]" * 3000, "nested"),
    "sections 3,000 deep": ("{a: " * 3000 + "1" + "}" * 3000, "nested"),
    "a circle": ("pairs: x\nmodel: &m {a: *m}", "alias"),
    "a negative seed": ("pairs: x\ntrain: {seed: -1}", "train.seed must be from 0"),
    "a huge seed": (f"pairs: x\ntrain: {{seed: {10**40}}}", "train.seed must be from 0"),
    "a seed of 1e40": ("pairs: x\ntrain: {seed: 1.0e+40}", "train.seed must be int"),
    "a negative seed of views": ("pairs: x\nfeatures: {seed: -1}", "features.seed must be"),
    "a billion views": ("pairs: x\nfeatures: {views: 1000000000}", "features.views must be"),
    "a billion cycles": (
        "pairs: x\nmodel: {pcm: true, cycles: 1000000000}",
        "model.cycles must be",
    ),
    "endless epochs": (f"pairs: x\ntrain: {{epochs: {10**30}}}", "train.epochs must be"),
    "an infinite rate": ("pairs: x\ntrain: {lr: .inf}", "train.lr must be a finite"),
    "no rate": ("pairs: x\ntrain: {lr: .nan}", "train.lr must be a finite"),
    "a NUL in a path": ('pairs: "a\\0b"', "pairs contains a NUL"),
    "a NUL": ("pairs: a\0b", "not a readable YAML"),
    "an unclosed quote": ("pairs: 'x", "not a readable YAML"),
    "a number of 5,000 digits": (
        "pairs: x\ntrain: {seed: " + "9" * 5000 + "}",
        "not a readable YAML",
    ),
    "a date that is none": ("pairs: 2020-99-99", "not a readable YAML"),
    "no text": ("\xff\xfe", "not a readable YAML"),
    "pretrained as a number": ("pairs: x\nfeatures: {pretrained: 1}", "features.pretrained=1: "),
}


@pytest.mark.parametrize(("text", "reason"), RECIPES.values(), ids=RECIPES.keys())
def test_impossible_recipes(tmp_path: Path, capsys, text: str, reason: str):
    recipe = tmp_path / "r.yaml"
    recipe.write_bytes(text.encode("latin-1"))
    message = refused(capsys, "train", recipe, "--out", tmp_path / "run")
    assert reason in message and len(message) < 600
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("train.seed=-1", "train.seed must be"),
        ("model.cycles=1000000000", "model.cycles must be"),
        ("pairs=[[[", "not valid YAML"),
        ("pairs=" + "[" * 3000, "not valid YAML"),
        ("a" + ".a" * 3000 + "=1", "unknown key 'a'"),
    ],
)
def test_impossible_overrides(tmp_path: Path, capsys, setting: str, reason: str):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("pairs: x")
    assert reason in refused(capsys, "train", recipe, setting, "--out", tmp_path / "run")


def test_lists_that_are_no_lists(tmp_path: Path, capsys):
    source = tmp_path / "videos"
    source.mkdir()
    (source / "v.mp4").write_bytes(b"x")
    lists = {
        "nul.txt": b"a\0b\n",
        "quote.csv": b'"a\nb\n',
        "noise.txt.gz": b"\x1f\x8b" + bytes(99),
        "deep.csv.gz": gzip.compress(b"\xff\xfe"),
    }
    for name, data in lists.items():
        (tmp_path / name).write_bytes(data)
        message = refused(
            capsys, "prepare", "folder", source, tmp_path / "out", "--ids", tmp_path / name
        )
        assert name in message


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
def test_a_subset_of_files_whose_names_are_not_utf_8(tmp_path: Path, capsys):
    source = tmp_path / "videos"
    source.mkdir()
    frames = [np.full((32, 32, 3), 99, np.uint8)] * 5
    sound = 0.5 * np.sin(np.arange(8_000) / 5).astype(np.float32)
    write_video(source / "a.mp4", frames, sound, 10.0)
    (source / "a.mp4").rename(os.fsdecode(os.fsencode(source) + b"/\xff\xfea.mp4"))
    write_video(source / "b.mp4", frames, sound, 10.0)
    assert main(["prepare", "folder", str(source), str(tmp_path / "out"), "--subset", "2"]) == 0
