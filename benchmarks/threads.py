"""What waiting threads cost: one map from the shell, on an idle and on a crowded machine.

    python benchmarks/threads.py [-o results/threads.json]

Each way of setting OpenMP is tried in turns, alone, beside one busy core and beside two busy
processes per core; the median of the rounds counts. Start it on an idle machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from soundspot.encoders import weights
from soundspot.parallel.processes import usable_cpus

ROUNDS = 5
SETTINGS = {
    "torch's own": {"OMP_NUM_THREADS": "", "OMP_WAIT_POLICY": ""},
    "the command's": {},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    "short spins": {"GOMP_SPINCOUNT": "10000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
# Only "the command's" leaves the choice to soundspot; an import of torch comes before it otherwise.
EARLY = "import sys, torch; from soundspot.cli import main; sys.exit(main())"


def seconds(name: str, arguments: list[str]) -> float:
    """One run of the command line."""
    given = {key: value for key, value in SETTINGS[name].items() if value}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    code = "from soundspot.cli import main; import sys; sys.exit(main())"
    command = [sys.executable, "-c", EARLY if name == "torch's own" else code, *arguments]
    start = time.perf_counter()
    subprocess.run(command, env={**kept, **given}, check=True, capture_output=True)
    return time.perf_counter() - start


def measure(busy: int, arguments: list[str]) -> dict[str, float]:
    """The median of each setting, beside some busy processes."""
    found: dict[str, list[float]] = {name: [] for name in SETTINGS}
    with ExitStack() as stack:
        for _ in range(busy):
            worker = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(worker.wait)
            stack.callback(worker.kill)
        for _ in range(ROUNDS):
            for name in SETTINGS:
                found[name].append(seconds(name, arguments))
    return {name: round(statistics.median(times), 2) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    photo, bark = (str(weights.media(f"demo-dog-{what}")) for what in ("photo", "bark"))
    cpus, load = usable_cpus(), round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["localize", photo, "--audio", bark, "-o", f"{folder}/where.png"]
        seconds("one thread", arguments)  # everything is in the page cache now
        table = {str(busy): measure(busy, arguments) for busy in (0, 1, 2 * cpus)}
    print("| seconds | " + " | ".join(f"{busy} busy" for busy in table) + " |")
    print("|---|" + "---|" * len(table))
    for name in SETTINGS:
        print(f"| {name} | " + " | ".join(f"{row[name]:.2f}" for row in table.values()) + " |")
    if options.out:
        record = {"cpus": cpus, "load_before": load, "rounds": ROUNDS, "seconds": table}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
