"""The Ray engine on a cluster of this machine: two workers' CPUs and one to spare."""

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from work import Counted, halve, halve_or_die, lost, nothing

import soundspot
from soundspot.common.config import to_dict
from soundspot.common.errors import SoundspotError
from soundspot.data import preparation
from soundspot.data.corpora import folder
from soundspot.data.options import SplitOptions
from soundspot.data.pair_set import PairSet
from soundspot.features import encoding
from soundspot.features.spec import FeatureSpec
from soundspot.inference import batch
from soundspot.media import clips as media
from soundspot.model import checkpoint
from soundspot.model.checkpoint import Card
from soundspot.model.methods.sspl import SSPLConfig
from soundspot.parallel import ray_cluster
from soundspot.parallel.engines import SERIAL, Engine, map_items, map_loaded

if importlib.util.find_spec("ray") is None:
    pytest.skip("needs Ray: pip install 'soundspot[cluster]'", allow_module_level=True)

TWO = Engine("ray", 2)
REAL_LOAD, REAL_MAKER, REAL_PREPARE = batch._load, encoding._load_maker, preparation._prepare_there


@pytest.fixture(scope="module", autouse=True)
def _one_cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))  # workers import this file
        with ray_cluster._connected(ray_cluster._import_ray(), 2):
            yield


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("media") / "clips"
    root.mkdir()
    for seed in range(5):
        rng = np.random.default_rng(seed)
        frame = rng.integers(0, 256, (46, 62, 3), dtype=np.uint8)
        tone = 0.5 * np.sin(np.arange(48_000) / (7 + seed)).astype(np.float32)
        media.write_video(root / f"clip{seed}.mp4", [frame] * 20, tone, 10.0)
    (root / "torn.mp4").write_bytes((root / "clip0.mp4").read_bytes()[:700])
    return root


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file() and "lock" not in str(path))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def die_once(marks: Path, name: str) -> None:
    """End this worker as kill -9 does, the first time that anyone comes here."""
    try:
        (marks / name).touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def die_once_and_do(function: Callable, marks: Path, when: str, item: object) -> object:
    if when in str(item):
        die_once(marks, when)
    return function(item)


def halve_or_fail(number: int) -> float:
    if number == 5:
        raise SoundspotError("the disk is full")
    return number / 2


@pytest.mark.slow
def test_results_keep_their_order_and_an_actor_loads_once() -> None:
    assert list(map_loaded(Counted, range(53), TWO, nothing)) == [(n, 1) for n in range(53)]


@pytest.mark.slow
def test_items_are_read_as_results_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "AHEAD", 3)
    read = []

    def items() -> Iterator[int]:
        for number in range(29):
            read.append(number)
            yield number

    results = map_items(halve, items(), TWO, lost)
    assert [next(results) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert len(read) <= 3 + 2 * 3
    assert list(results) == [n / 2 for n in range(3, 29)]


@pytest.mark.slow
def test_an_item_that_ends_its_workers_takes_nothing_else_with_it() -> None:
    found = list(map_items(halve_or_die, range(41), TWO, lost))
    assert found == [-5.0 if n == 5 else n / 2 for n in range(41)]


@pytest.mark.slow
def test_an_error_of_the_function_comes_through() -> None:
    with pytest.raises(SoundspotError):
        list(map_items(halve_or_fail, range(7), TWO, lost))


def test_more_workers_than_there_is_room_for_are_refused() -> None:
    with pytest.raises(SoundspotError):
        list(map_items(halve, range(3), Engine("ray", 3), lost))


def test_a_node_with_another_soundspot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("soundspot.__version__", "0.0")
    with pytest.raises(SoundspotError):
        list(map_items(halve, range(3), TWO, lost))


NODES = """
import faulthandler, os, sys, time
import ray
from ray.cluster_utils import Cluster
from soundspot.parallel.engines import Engine, map_items, map_loaded

def where(item):
    time.sleep(0.1)
    return item, ray.get_runtime_context().get_node_id()

def gpu():
    own = ray.get_runtime_context().get_accelerator_ids()["GPU"]
    return lambda item: (time.sleep(0.1), tuple(own))[1]

def lost(item):
    raise AssertionError(item)

if __name__ == "__main__":
    faulthandler.dump_traceback_later(150, exit=True)
    head = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 2})
    others = [head.add_node(num_cpus=1) for _ in range(int(sys.argv[1]))]
    ray.init(address=head.address, log_to_driver=False)
    found = map_items(where, range(300), Engine("ray", 1 + len(others)), lost)
    first, nodes = [], set()
    while len(nodes) < 2:  # until both have started
        first.append(next(found))
        nodes.add(first[-1][1])
    head.remove_node(next(each for each in others if each.node_id in nodes), allow_graceful=False)
    rest = list(found)
    assert [item for item, _ in first + rest] == list(range(300))
    taken = set(map_loaded(gpu, range(12), Engine("ray"), lost, gpus=True))
    assert taken and all(len(own) == 1 for own in taken), taken
    assert set(map_loaded(gpu, range(3), Engine("ray", 1), lost)) == {()}
    print("survived", len(nodes), flush=True)
    ray.shutdown()
    head.shutdown()
"""


@pytest.mark.slow
def test_a_lost_node_costs_no_item_and_gpus_are_taken_where_they_are_wanted(tmp_path):
    """Two nodes of this machine, with GPUs that are only said to be there."""
    script = tmp_path / "nodes.py"
    script.write_text(NODES)
    paths = os.pathsep.join([str(tmp_path), str(Path(soundspot.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, str(script), "1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert "survived 2" in done.stdout, done.stderr


def prepare_or_die(job, source, stored, marks):
    if job[0].id == "clip3":
        die_once(marks, "prepare")
    return REAL_PREPARE(job, source, stored)


@pytest.mark.slow
def test_prepare_gives_the_same_bytes_though_a_worker_is_killed(clips, tmp_path, monkeypatch):
    folder.prepare(clips, tmp_path / "here")
    monkeypatch.setattr(preparation, "_prepare_there", partial(prepare_or_die, marks=tmp_path))
    folder.prepare(clips, tmp_path / "there", options=SplitOptions(engine="ray", jobs=2))
    assert (tmp_path / "prepare").exists()
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    assert "torn.mp4" in (tmp_path / "there/ledger.jsonl").read_text()


def make_or_die(marks: Path, *arguments: object) -> Callable:
    return partial(die_once_and_do, REAL_MAKER(*arguments), marks, "view01")


@pytest.mark.slow
def test_encode_gives_the_same_bytes_though_an_actor_is_killed(clips, tmp_path, monkeypatch):
    pairs = PairSet.open(folder.prepare(clips, tmp_path / "pairs").pairset.root)
    spec = FeatureSpec(pretrained=False, views=2)
    encoding.encode(pairs, tmp_path / "here", spec)
    monkeypatch.setattr(encoding, "_load_maker", partial(make_or_die, tmp_path))
    done: list[int] = []
    encoding.encode(pairs, tmp_path / "there", spec, done.append, TWO)
    assert (tmp_path / "view01").exists()
    assert done == [5, 5, 5]
    assert len(tree(tmp_path / "here")) == 4
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def load_or_die(marks: Path, *arguments: object) -> Callable:
    return partial(die_once_and_do, REAL_LOAD(*arguments), marks, "clip3")


def test_localize_gives_the_same_bytes_though_an_actor_is_killed(clips, tmp_path, monkeypatch):
    config = to_dict(SSPLConfig(c_a=1024, hidden=29, projection=31))
    model = tmp_path / "run"
    card = Card("sspl", config, FeatureSpec(pretrained=False))
    checkpoint.save(model / "best.safetensors", checkpoint.build_method("sspl", config), card)
    job = partial(batch.BatchJob, clips, model=str(model))
    batch.run_batch(job(out=tmp_path / "here", engine=SERIAL), lambda line: None)
    monkeypatch.setattr(batch, "_load", partial(load_or_die, tmp_path))
    batch.run_batch(job(out=tmp_path / "there", engine=TWO), lambda line: None)
    assert (tmp_path / "clip3").exists()
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
