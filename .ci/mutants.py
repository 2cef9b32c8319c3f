"""Break files of the package in small ways, one at a time, and print what no test notices.

    python .ci/mutants.py soundspot/model/pcm.py soundspot/model/heads.py
    python .ci/mutants.py soundspot/data/pair_set.py --most 50    that many, drawn

In a copy of the tree, comparisons, operators and conditions are turned around, numbers changed
by one, terms and calls without arguments dropped, arguments swapped. soundspot/a/b.py is tested by
tests/a/test_b.py, or by all of tests/a. Some survivors change nothing that matters: read them.
"""

import argparse
import ast
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch  # noqa: F401  (imported once: every run is a fork of this process)

ROOT = Path(__file__).resolve().parents[1]
PAIRS = [
    *[(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)],
    *[(ast.In, ast.NotIn), (ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.Div)],
]
AROUND = {old: new for pair in PAIRS for old, new in (pair, pair[::-1])}
# Types and decorators; what is raised is left alone too.
LEFT_ALONE = {"annotation", "returns", "decorator_list", "type_params", "bases"}
NOT_COPIED = {".git", ".venv", "runs", "data", "out", "build", "dist"}  # at the top of the tree

Mutation = tuple[int, str, str]  # the line, the change, the whole file with it


def mutations(source: str) -> Iterator[Mutation]:
    """Every mutation of a file, from top to bottom."""
    tree = ast.parse(source)
    for parent, field, node in _places(tree):
        whole = getattr(parent, field)
        for changed in _changes(node):
            listed = isinstance(whole, list)
            new = [changed if one is node else one for one in whole] if listed else changed
            setattr(parent, field, new)
            change = f"{ast.unparse(node)[:70]}  ->  {ast.unparse(changed)[:70]}"
            yield node.lineno, change, ast.unparse(tree)
            setattr(parent, field, whole)


def _places(parent: ast.AST) -> Iterator[tuple[ast.AST, str, ast.expr]]:
    """Every expression of a tree, with its parent and the field that holds it there."""
    for field, value in ast.iter_fields(parent):
        if field in LEFT_ALONE:
            continue
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.expr):
                yield parent, field, node
            if isinstance(node, ast.AST) and not isinstance(node, ast.Raise):
                yield from _places(node)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in the place of an expression."""
    match node:
        case ast.Compare(left, [op, *ops], comparators) if type(op) in AROUND:
            yield ast.Compare(left, [AROUND[type(op)](), *ops], comparators)
        case ast.BoolOp(op, values):
            yield ast.BoolOp(AROUND[type(op)](), values)
            yield from (values[0], values[-1])
        case ast.BinOp(left, op, right) if type(op) in AROUND:
            yield ast.BinOp(left, AROUND[type(op)](), right)
            yield left
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield from (ast.Constant(value + 1), ast.Constant(value - 1))
        case ast.Call(ast.Attribute(inner), [], []):
            yield inner
        case ast.Call(func, [first, second, *rest], keywords):
            yield ast.Call(func, [second, first, *rest], keywords)


def mirrored_tests(file: str) -> str:
    """soundspot/a/b.py -> tests/a/test_b.py or tests/test_b.py, or the nearest folder there is."""
    folder = Path("tests", *Path(file).parts[1:-1])
    for place in (folder, *folder.parents):
        for path in (place / f"test_{Path(file).name}", place):
            if (ROOT / path).exists():
                return str(path)
    return "tests"


def passes(tests: str, seconds: float | None) -> bool:
    """Whether tests pass in a fork of this process; what never ends does not."""
    child = multiprocessing.get_context("fork").Process(target=_run, args=(tests,))
    child.start()
    child.join(seconds)
    child.kill()
    child.join()
    return child.exitcode == 0


def _run(tests: str) -> None:
    with Path("mutating.log").open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        os._exit(pytest.main(["-x", "-q", "--tb=line", "-p", "no:cacheprovider", tests]))


def survivors(file: str, some: Sequence[Mutation]) -> Iterator[Mutation]:
    """The mutations of a file of this folder that its tests do not notice."""
    tests, path, began = mirrored_tests(file), Path(file), time.monotonic()
    if not passes(tests, None):
        sys.exit(f"{Path('mutating.log').read_text()[-3000:]}\n{tests} fails without a mutation")
    limit = 20 + 5 * (time.monotonic() - began)
    whole = path.read_bytes()
    for number, mutation in enumerate(some):
        path.write_text(mutation[2])
        os.utime(path, (number, number))  # no compiled file may be taken for up to date
        if passes(tests, limit):
            yield mutation
    path.write_bytes(whole)


def main() -> None:
    """Break the named files and print what survives."""
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("files", nargs="+", help="such as soundspot/model/pcm.py")
    words.add_argument("--most", type=int, default=200, help="mutations per file")
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="soundspot-mutants-") as tree:
        leave_out = {str(ROOT): NOT_COPIED}
        shutil.copytree(ROOT, tree, ignore=lambda at, _: leave_out.get(at, ()), dirs_exist_ok=True)
        os.chdir(tree)
        sys.path[:0], os.environ["PYTHONPATH"] = [tree], tree
        for file in given.files:
            made = list(mutations(Path(file).read_text()))
            some = sorted(random.Random(0).sample(made, min(given.most, len(made))))
            print(f"{file}: {len(some)} of {len(made)} mutations", flush=True)
            left = 0
            for left, (line, change, _) in enumerate(survivors(file, some), 1):  # noqa: B007
                print(f"  {line}: {change}", flush=True)
            print(f"  {left} survived")


if __name__ == "__main__":
    main()
