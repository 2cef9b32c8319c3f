"""Run work in another thread, and follow its progress."""

import queue
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from soundspot.web.comparing import Report

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
SOON = 1.0  # s of work before its end can be foretold


def no_type_check(handler: Function) -> Function:
    """Keep a handler as it is: jaxtyping, which goes by this name, would wrap it under pytest.

    Gradio does not see that a wrapped function is a generator. Unlike the decorator of the same
    name in `typing`, this one leaves the type hints, by which gradio finds the request.
    """
    return handler


@dataclass(frozen=True)
class Step:
    """What is done now, which share of all is done (0..1), and how many seconds are left."""

    share: float
    words: str
    left: float | None = None


def follow(work: Callable[[Report], T]) -> Generator[Step, None, T]:
    """Yield the steps that the work reports, leaving out those that came too fast; its result."""
    steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
    begin = time.monotonic()

    def report(share: float, words: str) -> None:
        spent = time.monotonic() - begin
        left = spent / share * (1 - share) if share > 0 and spent > SOON else None
        steps.put(Step(share, words, left))

    def run() -> T:
        try:
            return work(report)
        finally:
            steps.put(None)

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(run)
        while True:
            waiting = [steps.get()]
            while not steps.empty():
                waiting.append(steps.get())
            if (step := waiting[-1]) is None:  # it is always the last
                return coming.result()
            yield step
