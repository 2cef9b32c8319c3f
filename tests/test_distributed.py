"""DDP on two gloo processes: the wrapper that is made is the one that is called."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from soundspot.errors import SoundspotError
from soundspot.features import Batch
from soundspot.methods.sspl import SSPL, SSPLConfig
from soundspot.training.distributed import World, check_share, join_world, wrap

CONFIG = SSPLConfig(c_v=5, c_a=3, pcm=True, cycles=2, projection=7, hidden=13)
PARTS = "from test_distributed import *; gradients_of_a_share(sys.argv[1])"


def joint_batch():
    torch.manual_seed(3)
    return Batch(
        torch.randn(8, 5, 7, 7), torch.randn(8, 5, 7, 7), torch.rand(8, 2, 3), torch.arange(8)
    )


def model():
    """In eval mode: batch norm per process is the one thing DDP cannot make equal on CPUs."""
    torch.manual_seed(4)
    return SSPL(CONFIG).eval()


def gradients(called, method, batch):
    called(batch).loss.backward()
    return {n: p.grad for n, p in method.named_parameters() if p.grad is not None}


def gradients_of_a_share(path):
    with join_world() as world:
        method = model()
        share = Batch(*(tensor[world.rank :: world.size] for tensor in joint_batch()))
        torch.save(gradients(wrap(method, world), method, share), f"{path}.{world.rank}")


def run_two(tmp_path, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return subprocess.run(
        [*command, *place, "--local-addr", "127.0.0.1", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )


def test_gradients_of_two_processes_equal_those_of_the_joint_batch(tmp_path):
    script = tmp_path / "share.py"
    script.write_text("import sys\n" + PARTS)
    done = run_two(tmp_path, str(script), str(tmp_path / "gradients"))
    assert done.returncode == 0, done.stderr
    alone = model()
    expected = gradients(alone, alone, joint_batch())
    found = [torch.load(f"{tmp_path}/gradients.{rank}", weights_only=True) for rank in (0, 1)]
    for name, gradient in expected.items():
        for rank in (0, 1):
            torch.testing.assert_close(found[rank][name], gradient, rtol=1e-4, atol=1e-6)


def test_an_uneven_share_is_refused():
    with pytest.raises(SoundspotError, match="batch=7 cannot be shared evenly by 2"):
        check_share(7, World(0, 2, torch.device("cpu")))


def test_a_world_of_one_wraps_nothing():
    layer = nn.Linear(1, 1)
    assert wrap(layer, World(0, 1, torch.device("cpu"))) is layer


TRAIN = """
import json, sys
from pathlib import Path
from soundspot.config import build
from soundspot.training.loop import train
from soundspot.training.recipe import Recipe
train(build(Recipe, json.loads(sys.argv[1])), Path(sys.argv[2]), lambda *_: {"ciou": 0.5})
"""


def test_two_processes_train_and_the_first_one_writes(tiny_pairs, tmp_path):
    from soundspot.config import plain
    from soundspot.encoding import encode
    from soundspot.features import FeatureSpec, cache_folder
    from soundspot.training.recipe import Recipe, TrainConfig

    spec = FeatureSpec(pretrained=False, views=3)
    encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    config = TrainConfig(epochs=2, batch=8, patience=0)
    recipe = Recipe(tiny_pairs.root, "sspl", {"projection": 7, "hidden": 13}, spec, config)
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = run_two(tmp_path, str(script), json.dumps(plain(recipe)), str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert "batch norm is per process" in done.stderr
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 2
