import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from work import Counted, halve, halve_or_die, lost, nothing

from soundspot.common.errors import SoundspotError
from soundspot.parallel import ray_cluster
from soundspot.parallel.engines import SERIAL, Engine, map_items, map_loaded
from soundspot.parallel.processes import AHEAD, process_count, usable_cpus

TWO = Engine("local", 2)


def test_results_keep_the_order_of_the_items() -> None:
    assert list(map_items(halve, range(7), SERIAL, lost)) == [n / 2 for n in range(7)]
    assert list(map_items(halve, range(53), TWO, lost)) == [n / 2 for n in range(53)]
    assert list(map_items(halve, [], TWO, lost)) == []


def test_a_process_that_dies_takes_only_its_own_item() -> None:
    assert list(map_items(halve_or_die, range(41), TWO, lost)) == [
        -5.0 if n == 5 else n / 2 for n in range(41)
    ]


def test_items_are_read_as_results_are_taken() -> None:
    read = []

    def items() -> Iterator[int]:
        for number in range(1000):
            read.append(number)
            yield number

    results = map_items(halve, items(), TWO, lost)
    assert [next(results) for _ in range(3)] == [0.0, 0.5, 1.0]
    assert len(read) <= 3 + 2 * AHEAD
    results.close()  # type: ignore[attr-defined]


def test_an_error_of_the_function_comes_through() -> None:
    with pytest.raises(TypeError):
        list(map_items(halve, ["x"], TWO, lost))  # type: ignore[list-item]


def fail_to_load() -> Counted:
    raise SoundspotError("no such model")


def test_a_process_loads_once() -> None:
    Counted.made = 0
    for engine in (SERIAL, TWO):
        assert list(map_loaded(Counted, range(19), engine, nothing)) == [(n, 1) for n in range(19)]


def test_a_failure_to_load_comes_through() -> None:
    for engine in (SERIAL, TWO):
        with pytest.raises(SoundspotError):
            list(map_loaded(fail_to_load, range(3), engine, nothing))


def test_only_the_cores_that_this_process_may_use_count() -> None:
    assert process_count(None) == len(os.sched_getaffinity(0))
    assert process_count(3) == 3


@pytest.mark.parametrize(("quota", "expected"), [("150000 100000", 2), ("5000 100000", 1)])
def test_a_containers_quota_limits_the_cpus(tmp_path, monkeypatch, quota, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu.max").write_text(quota)
    assert usable_cpus(tmp_path) == expected
    (tmp_path / "cpu.max").write_text("max 100000")
    assert usable_cpus(tmp_path) == 64


@pytest.mark.parametrize(("load", "policy"), [(0.1, "None"), (99.0, "PASSIVE")])
def test_threads_sleep_on_a_busy_machine_unless_told_otherwise(load, policy):
    code = (
        "import os, sys; from soundspot.parallel import processes; "
        f"os.getloadavg = lambda: ({load}, 0, 0); processes.calm_threads(); "
        "print(os.environ['OMP_NUM_THREADS'], os.environ.get('OMP_WAIT_POLICY'), "
        "'torch' in sys.modules)"
    )
    given = {**os.environ, "OMP_NUM_THREADS": "3"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["3", policy, "False"]


def test_importing_the_engines_does_not_import_ray() -> None:
    code = "import sys, soundspot.parallel.engines; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_processes_are_refused() -> None:
    with pytest.raises(SoundspotError):
        Engine("local", 0)


def test_without_ray_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SoundspotError):
        list(map_items(halve, range(3), Engine("ray"), lost))


def test_an_address_at_which_nobody_listens_is_one_sentence(monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed")
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(SoundspotError):
            list(map_items(halve, range(3), Engine("ray"), lost))


class Answer:
    """What Ray promises: a result, or the death of an actor."""

    def __init__(self, result: bytes, dead: bool) -> None:
        self.result, self.dead = result, dead


class DyingActor:
    """The first one dies of its second item."""

    made = 0

    def __init__(self) -> None:
        DyingActor.made += 1
        self.number, self.asked = DyingActor.made, 0
        self.do = SimpleNamespace(remote=self.answer)
        self.runs = SimpleNamespace(remote=lambda: Answer(b"", False))

    def answer(self, item: bytes) -> Answer:
        self.asked += 1
        return Answer(item, self.number == 1 and self.asked == 2)


def test_what_a_dead_ray_actor_did_may_be_told_after_its_death() -> None:
    """In an order that is rare with Ray itself: what was asked last is told first."""

    def get(answer: Answer) -> bytes:
        if answer.dead:
            raise ChildProcessError
        return answer.result

    ray = SimpleNamespace(
        remote=lambda **_: lambda _: SimpleNamespace(remote=lambda load: DyingActor()),
        wait=lambda answers, num_returns: ([answers[-1]], answers[:-1]),
        get=get,
        kill=lambda actor: None,
        exceptions=SimpleNamespace(RayActorError=ChildProcessError, OutOfMemoryError=MemoryError),
    )
    found = list(ray_cluster._stream(ray, lambda: str, range(7), 1))
    assert [item for item, _ in found] == list(range(7))
    assert [item for item, result in found if result is None] == [1]
    assert DyingActor.made == 2
