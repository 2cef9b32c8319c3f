"""A small sample of `make fuzz`, and whether it would notice trouble."""

import os

import pytest

import fuzzing
from fuzzing import FINE, KINDS, Kind, Reader, damage, make, read_damaged


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


def test_damage_is_the_same_every_time_and_never_nothing_alone():
    data = bytes(range(256)) * 4
    made = [damage(data, [seed], True) for seed in range(30)]
    assert made == [damage(data, [seed], True) for seed in range(30)]
    assert sum(one != data for one in made) > 25
    assert damage(b"", [0], True) == b""


def test_a_traceback_is_told(tmp_path, monkeypatch):
    def fail(path):
        raise IndexError("list index out of range")

    monkeypatch.setitem(KINDS, "ids", Kind("ids", fail, fail))
    assert "IndexError" in read_damaged("ids", tmp_path)


@pytest.mark.slow
def test_a_hang_is_told_and_the_next_file_is_read(tmp_path, monkeypatch):
    path, reader = make("ids", tmp_path / "made"), Reader()
    monkeypatch.setattr(fuzzing, "SECONDS", 0)  # nobody answers at once
    assert reader.read("ids", path) not in FINE
    monkeypatch.setattr(fuzzing, "SECONDS", 60)
    assert reader.read("ids", path) == "read"
    reader.pool.terminate()
