"""Following work in another thread."""

import pytest

from soundspot.web.following import follow


def finish(steps):
    seen = []
    while True:
        try:
            seen.append(next(steps))
        except StopIteration as end:
            return seen, end.value


def test_steps_and_the_result():
    def work(report):
        report(0.5, "half")
        return 7

    seen, value = finish(follow(work))
    assert value == 7
    assert [(step.share, step.words, step.left) for step in seen] in ([(0.5, "half", None)], [])


def test_an_error_reaches_who_follows():
    def work(report):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        finish(follow(work))
