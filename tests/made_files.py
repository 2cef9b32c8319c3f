"""Sounds to write into files, and the files of a folder to compare."""

from pathlib import Path

import numpy as np


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def tone(hertz: float, seconds: float, rate: int = 16_000) -> np.ndarray:
    times = np.arange(round(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * hertz * times)).astype(np.float32)
