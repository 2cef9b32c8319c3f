"""A small sample of `make fuzz`, and whether it would notice trouble."""

import os
from pathlib import Path

import pytest

from made_files import load_script

fuzz = load_script(Path(__file__).parents[1] / ".ci" / "fuzz.py")
KINDS = fuzz.KINDS


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path, name):
    path = fuzz.make(name, tmp_path / "made")
    assert fuzz.read_damaged(name, path) == "read"
    whole = path.read_bytes()
    for seed in range(3):
        path.write_bytes(fuzz.damage(whole, [7, seed], KINDS[name].text))
        assert fuzz.read_damaged(name, path) in fuzz.FINE


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="needs Linux")
def test_making_a_file_does_not_change_how_urgent_the_process_is(tmp_path):
    before = os.sched_getscheduler(0)
    fuzz.make("av1", tmp_path / "made")
    assert os.sched_getscheduler(0) == before


def test_a_traceback_is_told(tmp_path, monkeypatch):
    def fail(path):
        raise IndexError("list index out of range")

    monkeypatch.setitem(KINDS, "ids", fuzz.Kind("ids", fail, fail))
    assert "IndexError" in fuzz.read_damaged("ids", tmp_path)
