"""How time and memory grow with the number of pairs, stage by stage.

    python benchmarks/scaling.py [--counts 100,1000,10000,100000] [-o results/scaling.json]

Made pictures and sounds of a few kB go through every stage, each in a process of its own, with the
encoders of docs/plugin, which take no time. The fit between the two largest counts says how a stage
grows: an exponent of 1 is the same time per pair, and bytes per pair are what it keeps in memory.
`--slow N` bounds the pairs of `localize`, which draws every map.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
FEATURES = ["visual=cosines", "audio=bands", "views=2"]
STAGES = ("prepare", "check", "encode", "open", "train start", "evaluate", "localize")
START = """
import sys
from soundspot.cli import main
from soundspot.encoders.table import ENCODERS
ENCODERS.lines |= {"cosines": "boxless.visual:ENCODER", "bands": "boxless.audio:ENCODER"}
"""
OPEN = """
from pathlib import Path
from soundspot.data.pair_set import PairSet
from soundspot.features.cache import open_encoded
from soundspot.training.recipe import read_features
open_encoded(PairSet.open(Path(sys.argv[1])), read_features(None, sys.argv[2:]))
"""
RECIPE = {
    "method": "ezvsl",
    "features": {"visual": "cosines", "audio": "bands", "views": 2},
    "train": {"steps": 1, "batch": 16, "select": "loss"},
}


def make_media(folder: Path, count: int) -> None:
    """A picture and a second of sound for each pair, none like another; and a list of boxes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    boxes = [
        {"file": f"{n:06d}.jpg", "sound": f"{n:06d}.wav", "boxes": [[0, 0, 0.5, 0.5]]}
        for n in range(count)
    ]
    (folder / "boxes.json").write_text(json.dumps(boxes))
    for n in range(count):
        pixels = rng.integers(0, 256, (12, 16, 3), np.uint8)
        Image.fromarray(pixels).resize((64, 48)).save(folder / f"{n:06d}.jpg")
        sound = rng.integers(-9000, 9000, (1, 4000), np.int16)
        with av.open(str(folder / f"{n:06d}.wav"), "w") as file:
            stream = file.add_stream("pcm_s16le", rate=16_000, layout="mono")
            frame = av.AudioFrame.from_ndarray(sound, "s16", "mono")
            frame.sample_rate = 16_000
            for packet in (*stream.encode(frame), *stream.encode()):
                file.mux(packet)


def run(code: str, arguments: list[str]) -> tuple[float, float]:
    """CPU seconds and largest memory in bytes of one process."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "docs/plugin")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-c", START + code, *arguments],
            stdout=said,
            stderr=said,
            env=environment,
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            said.seek(0)
            raise SystemExit(f"{arguments}: {said.read().decode()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0


def measure(count: int, slow: int, folder: Path) -> dict[str, tuple[float, float]]:
    """All stages on so many pairs."""
    media, pairs, boxed, trained = (folder / name for name in ("media", "pairs", "boxed", "run"))
    make_media(media, count)
    verb = "sys.exit(main())"
    recipe = folder / "recipe.yaml"
    recipe.write_text(json.dumps({**RECIPE, "pairs": str(pairs)}))
    found = {
        "prepare": run(verb, ["prepare", "folder", str(media), str(pairs), "--jobs", "1"]),
        "check": run(verb, ["pairs", "check", str(pairs)]),
        "encode": run(verb, ["encode", str(pairs), *FEATURES]),
        "open": run(OPEN, [str(pairs), *FEATURES]),
        "train start": run(verb, ["train", str(recipe), "--out", str(trained)]),
    }
    run(verb, ["prepare", "boxed", str(media), str(boxed)])
    scored = ["--benchmark", "boxed", "--data", str(boxed), "--out", str(folder / "report")]
    found["evaluate"] = run(verb, ["evaluate", str(trained), *scored])
    if count <= slow:
        some = ["--model", str(trained), "-o", str(folder / "found"), "--jobs", "1", "--no-outline"]
        found["localize"] = run(verb, ["localize", str(media), *some])
    shutil.rmtree(folder)
    return found


def fit(found: dict[int, dict[str, tuple[float, float]]], stage: str) -> dict[str, float]:
    """From the two largest counts: time and memory per further pair, and the exponent of time."""
    small, large = sorted(count for count in found if stage in found[count])[-2:]
    (t1, m1), (t2, m2) = found[small][stage], found[large][stage]
    further = large - small
    base = min(row[stage][0] for row in found.values() if stage in row)  # start-up
    grown = max(t2 - base, 1e-3) / max(t1 - base, 1e-3) if t1 > base else math.nan
    return {
        "ms_per_pair": round(1000 * (t2 - t1) / further, 3),
        "bytes_per_pair": round((m2 - m1) / further),
        "exponent": round(math.log(grown) / math.log(large / small), 2) if t1 > base else math.nan,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", default="100,1000,10000,100000")
    parser.add_argument("--slow", type=int, default=10_000)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--folder", type=Path, help="for the made files; default: a temporary one")
    options = parser.parse_args()
    found: dict[int, dict[str, tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        for count in map(int, options.counts.split(",")):
            found[count] = measure(count, options.slow, Path(place) / str(count))
            print(count, {k: f"{t:.1f} s, {m / 1e6:.0f} MB" for k, (t, m) in found[count].items()})
    fits = {stage: fit(found, stage) for stage in STAGES}
    print("| stage | ms per pair | exponent | bytes per pair | 2M pairs, one core | memory |")
    print("|---|---|---|---|---|---|")
    for stage, (ms, kept, exponent) in ((s, fits[s].values()) for s in STAGES):
        smallest = min(found)
        hours, memory = 2e6 * ms / 3.6e6, found[smallest][stage][1] + 2e6 * kept
        print(f"| {stage} | {ms} | {exponent} | {kept} | {hours:.1f} h | {memory / 1e9:.1f} GB |")
    if options.out:
        record = {"counts": found, "fits": fits, "cpus": os.cpu_count()}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
