"""A small sample of `make fuzz`, and whether it would notice trouble."""

import os

import numpy as np
import pytest

import fuzzing
from fuzzing import KINDS, Kind, Reader, damage, read_damaged


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_refused_in_one_sentence(tmp_path, name):
    kind = KINDS[name]
    path = kind.make(tmp_path)
    assert read_damaged(kind, path) == "read"
    whole = path.read_bytes()
    for seed in range(3):
        path.write_bytes(damage(whole, np.random.default_rng([7, seed]), kind.text))
        assert read_damaged(kind, path) in ("read", "refused")


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="needs Linux")
def test_making_a_file_does_not_change_how_urgent_the_process_is(tmp_path):
    before = os.sched_getscheduler(0)
    KINDS["av1"].make(tmp_path)
    assert os.sched_getscheduler(0) == before


def test_damage_is_the_same_every_time_and_never_nothing_alone():
    data = bytes(range(256)) * 4
    made = [damage(data, np.random.default_rng(seed), True) for seed in range(30)]
    assert made == [damage(data, np.random.default_rng(seed), True) for seed in range(30)]
    assert sum(one != data for one in made) > 25


def test_a_traceback_is_told(tmp_path):
    def fail(path):
        raise IndexError("list index out of range")

    assert "IndexError" in read_damaged(Kind(lambda folder: folder, fail), tmp_path)


def test_a_hang_and_a_death_are_told_and_the_next_file_is_read(tmp_path, monkeypatch):
    path = KINDS["ids"].make(tmp_path)
    reader = Reader()
    try:
        monkeypatch.setattr(fuzzing, "SECONDS", 0)  # nobody answers at once
        assert reader.read("ids", path)[1] == "no answer in 0 s"
        monkeypatch.setattr(fuzzing, "SECONDS", 60)
        assert reader.read("ids", path) == ("read", None)
        reader.process.kill()
        assert reader.read("ids", path)[1] == "the process died"
        assert reader.read("ids", path) == ("read", None)
    finally:
        reader.stop()
