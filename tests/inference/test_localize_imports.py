"""What the localize verb loads."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from soundspot.media import clips as media

# `load` is replaced, so that no weights are needed.
PROGRAM = """
import sys
from brightness import brightness_localizer
from soundspot.cli import main
import soundspot.inference.models as models
models.load = lambda model, device: brightness_localizer()
code = main(["localize", *sys.argv[1:]])
print(code, *sorted(sys.modules))
"""
PREPARATION = ("preparation", "writer", "corpora", "corpus_files", "corpus_item", "shards")


def test_one_file_needs_neither_preparation_nor_a_cluster(tmp_path: Path):
    Image.new("RGB", (31, 37)).save(tmp_path / "p.png")
    media.write_flac(tmp_path / "s.flac", np.sin(np.arange(48_000) / 7).astype(np.float32))
    files = [str(tmp_path / "p.png"), "--audio", str(tmp_path / "s.flac")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *files, "-o", str(tmp_path / "out.png")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    code, *modules = done.stdout.splitlines()[-1].split()
    assert code == "0", done.stderr
    unwanted = {"ray", "soundspot.inference.batch", "soundspot.parallel.ray_cluster"}
    unwanted |= {f"soundspot.data.{name}" for name in PREPARATION}
    assert unwanted.isdisjoint(modules)
    assert (tmp_path / "out.png").exists()
