"""DDP on two gloo processes: the wrapper that is made is the one that is called."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

from soundspot.common.errors import SoundspotError
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model.methods import METHODS
from soundspot.model.methods.method import Batch
from soundspot.model.methods.sspl import SSPL, SSPLConfig
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


def five_steps_of_every_method():
    """Across the stages of those that have some; the weights of all processes stay the same."""
    with join_world() as world:
        for name, (config, module) in METHODS.items():
            if not module.trainable:
                continue
            stages = {"stage_one", "grow_every"} & {field.name for field in fields(config)}
            torch.manual_seed(4)
            method = module(config(c_v=5, c_a=3, **dict.fromkeys(stages, 2)))
            called, optimizer = wrap(method, world), torch.optim.AdamW(method.parameters())
            share = Batch(*(tensor[world.rank :: world.size] for tensor in joint_batch()))
            for _ in range(5):
                optimizer.zero_grad()
                called(share).loss.backward()
                optimizer.step()
            for weight in method.parameters():
                first = weight.detach().clone()
                torch.distributed.broadcast(first, 0)
                assert torch.equal(first, weight), name


def run_two(tmp_path, *arguments):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return subprocess.run(
        [*command, *place, "--local-addr", "127.0.0.1", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )


@pytest.mark.slow
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


@pytest.mark.slow
def test_every_method_trains_in_two_processes(tmp_path):
    script = tmp_path / "methods.py"
    script.write_text("from test_distributed import *; five_steps_of_every_method()")
    done = run_two(tmp_path, str(script))
    assert done.returncode == 0, done.stderr


def test_an_uneven_share_is_refused():
    with pytest.raises(SoundspotError):
        check_share(7, World(0, 2, torch.device("cpu")))


def test_a_world_of_one_wraps_nothing():
    layer = nn.Linear(1, 1)
    assert wrap(layer, World(0, 1, torch.device("cpu"))) is layer


@pytest.mark.slow
def test_torchrun_trains_and_the_first_process_writes(tiny_pairs, tmp_path):
    """With a PCM of a single pass: DDP stops at the second step if a parameter is never used."""
    spec = FeatureSpec(pretrained=False, views=3)
    encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    recipe = tmp_path / "tiny.yaml"
    values = {
        "pairs": str(tiny_pairs.root),
        "model": {"projection": 7, "hidden": 13, "pcm": True, "cycles": 1},
        "features": {"pretrained": False, "views": 3},
        "train": {"epochs": 2, "batch": 8, "patience": 0},
    }
    recipe.write_text(yaml.safe_dump(values))
    run = tmp_path / "run"
    done = run_two(tmp_path, "-m", "soundspot", "train", str(recipe), "--out", str(run))
    assert done.returncode == 0, done.stderr
    assert "per process" in done.stderr
    assert done.stderr.count("best step") == 1
    assert len((run / "log.jsonl").read_text().splitlines()) == 2


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_pre_hook
from soundspot.training import loop
from soundspot.training.recipe import read_recipe
count = 0
def counted(*_):
    global count
    count += 1
    if count == 3 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)
register_optimizer_step_pre_hook(counted)
try:
    loop.train(read_recipe(Path(sys.argv[1])), Path(sys.argv[2]), lambda *_: {"ciou": 0.5})
except KeyboardInterrupt:
    Path(f"{sys.argv[2]}.stopped.{os.environ['RANK']}").write_text(str(count))
"""


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_at_the_same_step(tiny_pairs, tmp_path):
    spec = FeatureSpec(pretrained=False, views=3)
    encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    recipe, script, run = tmp_path / "tiny.yaml", tmp_path / "script.py", tmp_path / "run"
    values = {
        "pairs": str(tiny_pairs.root),
        "model": {"projection": 7, "hidden": 13},
        "features": {"pretrained": False, "views": 3},
        "train": {"epochs": 9, "batch": 4, "patience": 0, "validate_every": 18},
    }
    recipe.write_text(yaml.safe_dump(values))
    script.write_text(INTERRUPTED)
    done = run_two(tmp_path, str(script), str(recipe), str(run))
    stopped = [Path(f"{run}.stopped.{rank}") for rank in (0, 1)]
    assert [path.exists() for path in stopped] == [True, True], done.stderr
    assert [path.read_text() for path in stopped] == ["3", "3"]
    state = torch.load(run / "state.pt", weights_only=True)
    assert state["progress"]["step"] == 3
