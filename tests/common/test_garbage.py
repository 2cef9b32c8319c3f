import gc
import subprocess
import sys

import pytest

from soundspot.common.garbage import uncollected


def test_collection_is_off_for_a_while():
    assert gc.isenabled()
    with pytest.raises(ValueError), uncollected():
        assert not gc.isenabled()
        raise ValueError
    assert gc.isenabled()


def test_collection_that_was_off_stays_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_command_does_not_look_for_garbage_when_it_ends():
    # What is registered first runs last.
    program = """
import atexit, gc
atexit.register(lambda: print(gc.get_freeze_count()))
import soundspot.cli
print(gc.get_freeze_count())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    running, at_the_end = map(int, done.stdout.split())
    assert at_the_end > running + 1000
