"""Break the code in small ways, one at a time, and see that the tests of each place notice.

    python tests/mutating.py                  all of mutants.yaml
    python tests/mutating.py --only 1..20,33  some of it, by number
    python tests/mutating.py --only pcm       or by the name of the file
    python tests/mutating.py --sample 60      that many, drawn by --seed (0 by default)

A run that was interrupted goes on with --only 97.. or whichever number comes next.

A copy of the tree is broken, never the tree itself. Every mutation is run in a fork of this
process, which has imported torch and soundspot already and forgets only what depends on the broken
file: importing takes longer than most tests. What no test notices is printed; more than 5 % is a
failure.
"""

import argparse
import ast
import importlib
import multiprocessing
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jaxtyping
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("mutants.yaml")
MOST_SURVIVORS = 0.05
CPU_SECONDS, SECONDS = 120, 1200  # a mutation that never ends is noticed too
LEFT_OUT = {".git", ".venv", "runs", "data", "out", "build", "dist"}  # at the top of the tree
IMPORTED_ONCE = (
    "common", "media", "data", "encoders", "features", "model", "training", "inference",
    "evaluation", "reproduce",
)  # fmt: skip
PASSED, FAILED = 0, 1  # exit codes of pytest; others mean that the tests did not run

Imports = Mapping[str, set[str]]  # module -> the modules of soundspot that it imports


class ListError(Exception):
    """A mutation that cannot be made, or tests that do not pass without it."""


@dataclass(frozen=True)
class Mutant:
    """One line of the list.

    Attributes:
        file: What is broken.
        old: Text that the file has exactly once.
        new: What stands there instead.
        tests: Ids as pytest takes them, of which at least one must fail.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old[:70]} -> {new[:70] or 'nothing'}"


def read_list(path: Path = LIST) -> list[Mutant]:
    """All mutations, in the order of the file."""
    rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [Mutant(r["file"], r["from"], r["to"], tuple(r["tests"].split())) for r in rows]


def mutated(mutant: Mutant, root: Path) -> str:
    """The text of the broken file."""
    text = (root / mutant.file).read_text(encoding="utf-8")
    if (count := text.count(mutant.old)) != 1:
        raise ListError(f"{mutant}: the text occurs {count} times, not once; correct {LIST.name}")
    return text.replace(mutant.old, mutant.new)


def copy_tree(source: Path, target: Path) -> None:
    """What the tests need, with the compiled files, which save time."""

    def leave_out(folder: str, names: list[str]) -> set[str]:
        return LEFT_OUT & set(names) if Path(folder) == source else set()

    shutil.copytree(source, target, ignore=leave_out)


def import_all(root: Path) -> Imports:
    """Import a tree with its types checked, as the tests do; says what imports what."""
    os.chdir(root)
    places = [str(root), str(root / "tests")]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join(places)
    jaxtyping.install_import_hook("soundspot", "beartype.beartype")
    imports = {}
    for path in sorted((root / "soundspot").rglob("*.py")):
        name = module_name(path.relative_to(root).as_posix())
        imports[name] = set(_imported(path))
        if name.startswith(tuple(f"soundspot.{folder}" for folder in IMPORTED_ONCE)):
            importlib.import_module(name)
    return imports


def module_name(file: str) -> str:
    """The module that a file holds."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def dependents(name: str, imports: Imports) -> set[str]:
    """A module, and what must be imported again if it changes; a package goes with its modules."""
    found, new = set[str](), {name}
    while new:
        found |= new
        below = {m for m in imports if any(m.startswith(f"{package}.") for package in new)}
        new = ({m for m, used in imports.items() if used & new} | below) - found - {"soundspot"}
    return found


def _forget(names: set[str]) -> None:
    for name in names & sys.modules.keys():
        del sys.modules[name]
        package, _, leaf = name.rpartition(".")
        vars(sys.modules.get(package, sys)).pop(leaf, None)


def run_tests(root: Path, tests: Sequence[str], changed: set[str]) -> int | None:
    """Run tests in a fork of this process: the exit code of pytest, or None if they never end.

    Only tests of a tree in which something is `changed` may be without an end.
    """
    child = multiprocessing.get_context("fork").Process(target=_child, args=(root, tests, changed))
    child.start()
    child.join(SECONDS if changed else None)
    if child.is_alive():
        child.kill()
        child.join()
    code = child.exitcode
    return None if code is None or code < 0 else code


def _child(root: Path, tests: Sequence[str], changed: set[str]) -> None:
    log = os.open(root / "mutating.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    if changed:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        _forget(changed)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # faster; and types are checked already
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-o", "addopts="]
    os._exit(int(pytest.main([*options, *tests])))


def run_afresh(root: Path, tests: Sequence[str]) -> int | None:
    """The same in a process that has imported nothing yet, which takes a few seconds more."""
    options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
    places = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")])}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=root, env={**os.environ, **places}, capture_output=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def is_noticed(mutant: Mutant, root: Path, imports: Imports, stamp: int) -> bool:
    """Whether the tests fail in a tree that is broken for that long; `stamp` is never used twice.

    Python knows by size and time, in seconds, whether a compiled file is up to date.
    """
    file, whole = root / mutant.file, root / "whole"
    broken = mutated(mutant, root)
    shutil.copy2(file, whole)
    try:
        file.write_text(broken, encoding="utf-8")
        os.utime(file, (stamp, stamp))
        code = run_tests(root, mutant.tests, dependents(module_name(mutant.file), imports))
        if code not in (PASSED, FAILED, None):  # what was imported before does not fit
            code = run_afresh(root, mutant.tests)
    finally:
        shutil.copy2(whole, file)
    if code not in (PASSED, FAILED, None):
        raise ListError(f"{mutant}: its tests cannot be run (pytest says {code})")
    return code != PASSED


def chosen(mutants: Sequence[Mutant], only: str | None) -> dict[int, Mutant]:
    """Number -> mutation, counted from 1."""
    numbered = dict(enumerate(mutants, 1))
    return {n: m for n, m in numbered.items() if only is None or _is_chosen(n, m, only)}


def drawn(some: dict[int, Mutant], count: int, seed: int) -> dict[int, Mutant]:
    """That many of them, or all if there are fewer, in their order."""
    numbers = random.Random(seed).sample(sorted(some), min(count, len(some)))
    return {number: some[number] for number in sorted(numbers)}


def _is_chosen(number: int, mutant: Mutant, only: str) -> bool:
    for part in only.split(","):
        first, _, last = part.partition("..")
        if not first.isdecimal():
            if part in mutant.file:
                return True
        elif int(first) <= number and (number <= int(last or first) or part.endswith("..")):
            return True
    return False


def survivors(some: dict[int, Mutant], root: Path) -> Iterator[Mutant]:
    """Make every mutation in the tree and undo it; yields those that no test notices."""
    tests = list(dict.fromkeys(test for mutant in some.values() for test in mutant.tests))
    for mutant in some.values():
        mutated(mutant, root)  # all of the list is looked at before anything is run
    imports = import_all(root)
    if run_tests(root, tests, set()) != PASSED:
        print((root / "mutating.log").read_text(encoding="utf-8")[-3000:])
        raise ListError("the tests fail without any mutation")
    for number, mutant in some.items():
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        noticed = is_noticed(mutant, root, imports, stamp=number)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        word = "caught  " if noticed else "SURVIVED"
        print(f"{number:4} {word} {seconds:5.1f} s  {mutant}", flush=True)
        if not noticed:
            yield mutant


def main() -> int:
    """Run the list, print what survives, and return 1 if that is too much."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--only", help="such as 1..20,33 or 97.. or a part of the files' names")
    words.add_argument("--sample", type=int, help="how many to draw of these")
    words.add_argument("--seed", type=int, default=0, help="of the draw")
    given = words.parse_args()
    some = chosen(read_list(), given.only)
    if given.sample is not None:
        some = drawn(some, given.sample, given.seed)
    with tempfile.TemporaryDirectory(prefix="soundspot-mutants-") as folder:
        root = Path(folder) / "tree"
        try:
            copy_tree(ROOT, root)
            left = list(survivors(some, root))
        except ListError as error:
            print(error)
            return 1
    for mutant in left:
        print(f"SURVIVED {mutant}")
    share = len(left) / max(len(some), 1)
    print(f"{len(some)} mutations, {len(left)} survived ({100 * share:.1f} %)")
    return int(share > MOST_SURVIVORS)


if __name__ == "__main__":
    sys.exit(main())
