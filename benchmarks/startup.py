"""The first map of a photograph and a sound from the shell, before and after: CPU and wall seconds.

    python benchmarks/startup.py --before OTHER_CHECKOUT [-o results/startup.json]

Both checkouts run the same command in turns, and each counts by its fastest round. Beside them: a
process that does nothing but import torch, which includes Python's cleaning up at its end.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from soundspot.encoders import weights

ROUNDS = 3


class Took(NamedTuple):
    """Seconds of one run, or of the fastest."""

    cpu: float
    wall: float


def time_run(command: list[str], checkout: Path) -> Took:
    """Seconds of one run of a command with that checkout's soundspot."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # Elsewhere: `python -m` would take the soundspot of the current folder before the checkout's.
    with tempfile.TemporaryDirectory() as elsewhere:
        subprocess.run(command, env=environment, check=True, capture_output=True, cwd=elsewhere)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def measure(before: Path, after: Path) -> dict[str, object]:
    """Seconds of both, and their ratios."""
    photo, bark = (str(weights.media(f"demo-dog-{what}")) for what in ("photo", "bark"))
    best: dict[str, Took] = {}
    load = [round(os.getloadavg()[0], 1)]
    with tempfile.TemporaryDirectory() as folder:
        picture = ["--model", "sspl", "-o", str(Path(folder) / "where.png")]
        localize = [sys.executable, "-m", "soundspot", "localize", photo, "--audio", bark, *picture]
        torch = [sys.executable, "-c", "import torch"]
        for _ in range(ROUNDS):
            for name, command, checkout in (
                ("before", localize, before),
                ("after", localize, after),
                ("import torch", torch, after),
            ):
                took = time_run(command, checkout)
                old = best.get(name, took)
                best[name] = Took(min(took.cpu, old.cpu), min(took.wall, old.wall))
    was, now = best["before"], best["after"]
    return {
        **{f"{name}: CPU s": round(took.cpu, 2) for name, took in best.items()},
        **{f"{name}: wall s": round(took.wall, 2) for name, took in best.items()},
        "after / before, CPU": round(now.cpu / was.cpu, 2),
        "after / before, wall": round(now.wall / was.wall, 2),
        "load of the machine before and after": [*load, round(os.getloadavg()[0], 1)],
    }


def main() -> None:
    """Print the measurement, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True)
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    text = json.dumps(measure(options.before.resolve(), Path(__file__).parents[1]), indent=1) + "\n"
    sys.stdout.write(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
