"""Impossible recipes, lists and files are one sentence and exit code 2, quickly."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from made_files import refused
from soundspot.cli import main
from soundspot.media.clips import write_video

RECIPES = {
    "nested 3,000 deep": ("pairs: " + "[" * 3000 + "]" * 3000, "nested"),
    "a circle": ("pairs: x\nmodel: &m {a: *m}", "alias"),
    "a huge seed": (f"pairs: x\ntrain: {{seed: {10**40}}}", "train.seed"),
    "a billion views": ("pairs: x\nfeatures: {views: 1000000000}", "features.views"),
    "a billion cycles": ("pairs: x\nmodel: {pcm: true, cycles: 1000000000}", "model.cycles"),
    "endless epochs": (f"pairs: x\ntrain: {{epochs: {10**30}}}", "train.epochs"),
    "a number of 5,000 digits": ("pairs: x\ntrain: {seed: " + "9" * 5000 + "}", "YAML"),
    "no text": ("\xff\xfe", "YAML"),
    "pretrained as a number": ("pairs: x\nfeatures: {pretrained: 1}", "features.pretrained"),
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
        ("model.cycles=1000000000", "model.cycles must be"),
        ("pairs=" + "[" * 3000, "not valid YAML"),
        ("a" + ".a" * 3000 + "=1", "unknown key 'a'"),
    ],
)
def test_impossible_overrides(tmp_path: Path, capsys, setting: str, reason: str):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("pairs: x")
    assert reason in refused(capsys, "train", recipe, setting, "--out", tmp_path / "run")


def test_a_list_that_is_no_list(tmp_path: Path, capsys):
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "v.mp4").write_bytes(b"x")
    names = tmp_path / "noise.txt.gz"
    names.write_bytes(b"\x1f\x8b" + bytes(99))
    words = "prepare", "folder", tmp_path / "videos", tmp_path / "out", "--ids", names
    assert names.name in refused(capsys, *words)


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
