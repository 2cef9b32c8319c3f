"""A deadline for each picture that a decoder makes.

A damaged file may keep a decoder busy forever, inside a call that nothing can interrupt. Pictures
are decoded in a separate thread, which is abandoned if it does not answer; it keeps a core and its
memory until it does, or the process ends.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
SECONDS = 60.0

_left_behind: dict[threading.Thread, Any] = {}  # what decoders that did not answer still work on


def within(items: Iterator[T], refuse: Callable[[], Exception], keep: object) -> Iterator[T]:
    """Take items in another thread, and raise `refuse()` if one takes longer than SECONDS.

    `keep` is what that thread needs, and is not freed as long as it is left behind.
    """
    asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[list[T], BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        while asked.get():
            try:
                answers.put(([next(items)], None))
            except StopIteration:
                answers.put(([], None))
            except BaseException as error:  # to be raised where the item is used
                answers.put(([], error))
        _left_behind.pop(threading.current_thread(), None)

    decoder = threading.Thread(target=work, name="decoder", daemon=True)
    decoder.start()
    try:
        while True:
            asked.put(True)
            try:
                answer, error = answers.get(timeout=SECONDS)
            except queue.Empty:
                _left_behind[decoder] = items, keep
                raise refuse() from None
            if error is not None:
                raise error
            if not answer:
                return
            yield answer.pop()
    finally:
        asked.put(False)
