"""The first map of a photograph and a sound from the shell: CPU seconds, before and after.

    python benchmarks/startup.py --before OTHER_CHECKOUT [-o results/startup.json]

Both checkouts run the same command in turns, and each counts by the CPU time of its fastest round.
Beside them: what it takes to import torch alone, which no change of ours can save.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from soundspot.encoders import weights

ROUNDS = 3


def cpu_seconds(command: list[str], checkout: Path) -> float:
    """CPU seconds of one run of a command with that checkout's soundspot."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(before: Path, after: Path) -> dict[str, float]:
    """Seconds of both, and their ratio with and without the import of torch."""
    photo, bark = (str(weights.media(f"demo-dog-{what}")) for what in ("photo", "bark"))
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        picture = ["--model", "soundspot-v1", "-o", str(Path(folder) / "where.png")]
        localize = [sys.executable, "-m", "soundspot", "localize", photo, "--audio", bark, *picture]
        torch = [sys.executable, "-c", "import torch"]
        for _ in range(ROUNDS):
            for name, command, checkout in (
                ("before", localize, before),
                ("after", localize, after),
                ("import torch", torch, after),
            ):
                took = cpu_seconds(command, checkout)
                best[name] = min(took, best.get(name, took))
    own = {name: best[name] - best["import torch"] for name in ("before", "after")}
    return {
        **{f"{name}: s": round(value, 2) for name, value in best.items()},
        "after / before": round(best["after"] / best["before"], 2),
        "after / before, without torch": round(own["after"] / own["before"], 2),
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
