"""Several gloo processes train what one process trains."""

import os
import subprocess
import sys
from dataclasses import fields
from operator import itemgetter
from pathlib import Path

import pytest
import torch
import yaml

from soundspot.common.errors import SoundspotError
from soundspot.features.cache import cache_folder
from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec
from soundspot.model.checkpoint import build_method
from soundspot.model.methods import METHODS
from soundspot.model.methods.method import Batch
from soundspot.training.distributed import World, check_share, join_world, mean_over_world, wrap
from soundspot.training.loop import train
from soundspot.training.recipe import read_recipe
from soundspot.training.run_folder import read_log

COUNT, STEPS = (int(n) for n in os.environ.get("SOUNDSPOT_TEST_WORLD", "2x6").split("x"))
PROCESSES = "from test_distributed import *; train_every_method(sys.argv[1])"
FIVE = {"c_v": 5, "c_a": 3}
HEADS = {**FIVE, "projection": 7, "hidden": 13}
SIZES = {"width": 8, "dim": 8, "hidden": 13, "projection": 7}
VARIANTS = {
    "sspl with a PCM": ("sspl", {**HEADS, "pcm": True, "cycles": 2}),
    "sspl by clusters": ("sspl", {**HEADS, "objective": "none", "alignment": 1.0, "clusters": 4,
                                  "alignment_objective": "clusters", "map_centering": 0.5,
                                  "visual_conv": True}),
    "sspl with byol": ("sspl", {**HEADS, "objective": "byol", "alignment": 1.0}),
    "sspl with barlow": ("sspl", {**HEADS, "objective": "barlow"}),
    "sspl with wmse": ("sspl", {**HEADS, "objective": "wmse"}),
}  # fmt: skip


def every_method():
    """All lines of the table and some variants, through the stages of those that have some."""
    for name, (config, module) in METHODS.items():
        keys = {field.name for field in fields(config)}
        stages = keys & {"stage_one", "grow_every", "warmup"}
        sizes = {key: value for key, value in SIZES.items() if key in keys}
        if module.trainable:
            yield name, name, {**FIVE, **sizes, **dict.fromkeys(stages, 2)}
    for name, (method, settings) in VARIANTS.items():
        yield name, method, settings


def trained(world, name, settings):
    """Some steps: their losses, the first gradients, the last weights and buffers."""
    torch.manual_seed(4)
    method = build_method(name, settings).train()
    called, optimizer = wrap(method, world), torch.optim.SGD(method.parameters(), lr=5e-4)
    losses, first = [], {}
    for step in range(STEPS):
        torch.manual_seed(30 + step)
        views = torch.randn(8, 5, 7, 7), torch.randn(8, 5, 7, 7)
        taught = torch.rand(8, 2, 7, 7) if name == "student" else None
        whole = Batch(*views, torch.rand(8, 2, 3), torch.arange(8), taught)
        optimizer.zero_grad()
        output = called(whole.each(itemgetter(slice(world.rank, None, world.size))))
        output.loss.backward()
        first = first or {
            n: p.grad.clone() for n, p in method.named_parameters() if p.grad is not None
        }
        optimizer.step()
        losses.append(mean_over_world({"loss": output.loss.item()}, world)["loss"])
    state = {key: value for key, value in method.state_dict().items() if value.is_floating_point()}
    return {
        "losses": torch.tensor(losses),
        **first,
        **{f"{key} at the end": state[key] for key in state},
    }


def train_every_method(path):
    with join_world() as world:
        found = {
            name: trained(world, method, settings) for name, method, settings in every_method()
        }
        torch.save(found, f"{path}.{world.rank}")


def torchrun(tmp_path, count, *arguments):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
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
def test_several_processes_train_every_method_as_one_does(tmp_path):
    script = tmp_path / "share.py"
    script.write_text("import sys\n" + PROCESSES)
    done = torchrun(tmp_path, COUNT, str(script), str(tmp_path / "found"))
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(f"{tmp_path}/found.{rank}", weights_only=True) for rank in range(COUNT)]
    alone = World(0, 1, torch.device("cpu"))
    for name, method, settings in every_method():
        for key, expected in trained(alone, method, settings).items():
            for found in ranks:
                what, within = f"{name}: {key}", 1e-4 if key.endswith("at the end") else 1e-5
                off = (found[name][key] - expected).abs().max() / (1 + expected.abs().max())
                assert off <= within, f"{what}: {off}"
                assert torch.equal(found[name][key], ranks[0][name][key]), what


def test_an_uneven_share_is_refused():
    with pytest.raises(SoundspotError):
        check_share(7, World(0, 2, torch.device("cpu")))


def test_a_world_of_one_wraps_nothing():
    method = build_method("ezvsl", FIVE)
    assert wrap(method, World(0, 1, torch.device("cpu"))) is method


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
    done = torchrun(tmp_path, 2, "-m", "soundspot", "train", str(recipe), "--out", str(run))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("best step") == 1
    assert len((run / "log.jsonl").read_text().splitlines()) == 2


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from torch.optim.optimizer import register_optimizer_step_pre_hook
from soundspot.training import loop
from soundspot.training.recipe import read_recipe
count, resumed = 0, Path(sys.argv[2], "state.pt").exists()
def counted(*_):
    global count
    count += 1
    if count == 3 and os.environ.get("RANK") == "1" and not resumed:
        os.kill(os.getpid(), signal.SIGTERM)
register_optimizer_step_pre_hook(counted)
try:
    loop.train(read_recipe(Path(sys.argv[1])), Path(sys.argv[2]), lambda *_: {"ciou": 0.5})
except KeyboardInterrupt:
    Path(f"{sys.argv[2]}.stopped.{os.environ['RANK']}").write_text(str(count))
"""


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_resuming_changes_no_number(tiny_pairs, tmp_path):
    spec = FeatureSpec(pretrained=False, views=3)
    encode(tiny_pairs, cache_folder(tiny_pairs, spec), spec)
    recipe, script, run = tmp_path / "tiny.yaml", tmp_path / "script.py", tmp_path / "run"
    values = {
        "pairs": str(tiny_pairs.root),
        "method": "contrastive",
        "features": {"pretrained": False, "views": 3},
        "train": {"epochs": 9, "batch": 4, "patience": 0, "validate_every": 18},
    }
    recipe.write_text(yaml.safe_dump(values))
    script.write_text(INTERRUPTED)
    done = torchrun(tmp_path, 2, str(script), str(recipe), str(run))
    stopped = [Path(f"{run}.stopped.{rank}") for rank in (0, 1)]
    assert [path.exists() for path in stopped] == [True, True], done.stderr
    assert [path.read_text() for path in stopped] == ["3", "3"]
    state = torch.load(run / "state.pt", weights_only=True)
    assert state["progress"]["step"] == 3
    # The resumed run logs what one process logs that was never interrupted.
    done = torchrun(tmp_path, 2, str(script), str(recipe), str(run))
    assert done.returncode == 0, done.stderr
    train(read_recipe(recipe), tmp_path / "alone", lambda *_: {"ciou": 0.5})
    for found, expected in zip(read_log(run), read_log(tmp_path / "alone"), strict=True):
        assert found["train_loss"] == pytest.approx(expected["train_loss"], rel=1e-5)
