"""What workers of this machine and of a cluster do in tests; they import this file."""

import os
import signal


def halve(number: int) -> float:
    return number / 2


def halve_or_die(number: int) -> float:
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number / 2


def lost(number: int) -> float:
    return -float(number)


class Counted:
    """Says how often its process made one."""

    made = 0

    def __init__(self) -> None:
        Counted.made += 1
        self.number = Counted.made

    def __call__(self, item: int) -> tuple[int, int]:
        return item, self.number


def nothing(item: int) -> tuple[int, int]:
    return item, 0
