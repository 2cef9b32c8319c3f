import os
import signal
from collections.abc import Iterator

import pytest

from soundspot.engines import AHEAD, run
from soundspot.errors import SoundspotError


def halve(number: int) -> float:
    return number / 2


def halve_or_die(number: int) -> float:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def lost(number: int) -> float:
    return -float(number)


def test_results_keep_the_order_of_the_items() -> None:
    assert list(run(halve, range(7), 1, lost)) == [n / 2 for n in range(7)]
    assert list(run(halve, range(53), 2, lost)) == [n / 2 for n in range(53)]
    assert list(run(halve, [], 2, lost)) == []


def test_a_process_that_dies_takes_only_its_own_item() -> None:
    assert list(run(halve_or_die, range(41), 2, lost)) == [
        -5.0 if n == 5 else n / 2 for n in range(41)
    ]


def test_items_are_read_as_results_are_taken() -> None:
    read = []

    def items() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    results = run(halve, items(), 2, lost)
    assert [next(results) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert len(read) <= 3 + 2 * AHEAD
    results.close()  # type: ignore[attr-defined]


def test_an_error_of_the_function_comes_through() -> None:
    with pytest.raises(TypeError):
        list(run(halve, ["x"], 2, lost))  # type: ignore[list-item]


def test_no_processes_are_refused() -> None:
    with pytest.raises(SoundspotError, match="from 1 on, got 0"):
        list(run(halve, range(3), 0, lost))
