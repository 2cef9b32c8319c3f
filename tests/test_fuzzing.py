"""A small sample of `make fuzz`, and whether it would notice trouble."""

import os

import pytest

from fuzzing import FINE, KINDS, Kind, damage, make, read_damaged


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path, name):
    path = make(name, tmp_path / "made")
    assert read_damaged(name, path) == "read"
    whole = path.read_bytes()
    for seed in range(3):
        path.write_bytes(damage(whole, [7, seed], KINDS[name].text))
        assert read_damaged(name, path) in FINE


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="needs Linux")
def test_making_a_file_does_not_change_how_urgent_the_process_is(tmp_path):
    before = os.sched_getscheduler(0)
    make("av1", tmp_path / "made")
    assert os.sched_getscheduler(0) == before


def test_a_traceback_is_told(tmp_path, monkeypatch):
    def fail(path):
        raise IndexError("list index out of range")

    monkeypatch.setitem(KINDS, "ids", Kind("ids", fail, fail))
    assert "IndexError" in read_damaged("ids", tmp_path)
