"""The list of `make mutants` fits the code, and the runner tells what survives."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutating import (
    ROOT,
    ListError,
    Mutant,
    chosen,
    dependents,
    drawn,
    module_name,
    mutated,
    read_list,
)

MUTANTS = read_list()


def test_every_mutation_can_be_made():
    for mutant in MUTANTS:
        assert mutated(mutant, ROOT) != (ROOT / mutant.file).read_text(encoding="utf-8")


def test_the_tests_of_every_mutation_exist():
    for mutant in MUTANTS:
        for test in mutant.tests:
            file, _, name = test.partition("::")
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"def {name.partition('[')[0]}(" in text if name else "def test_" in text, test


def test_the_list_is_long_enough_and_says_nothing_twice():
    assert len(MUTANTS) >= 120
    assert max(Counter((m.file, m.old, m.new) for m in MUTANTS).values()) == 1


@pytest.mark.parametrize("old", ["absent", "MB"])
def test_a_text_that_is_not_there_once_is_one_sentence(tmp_path: Path, old: str):
    (tmp_path / "a.py").write_text("MB = 1\nlimit = 2 * MB\n")
    with pytest.raises(ListError, match=f"{old} -> x: the text occurs [02] times, not once"):
        mutated(Mutant("a.py", old, "x", ()), tmp_path)


def test_parts_of_the_list():
    some = [Mutant(f"{name}.py", "a", "b", ()) for name in ("pcm", "losses", "views")]
    assert list(chosen(some, "2..9")) == [2, 3]
    assert list(chosen(some, "pcm,3")) == [1, 3]
    assert list(chosen(some, "2..,pcm")) == [1, 2, 3]
    assert list(chosen(some, "2..")) == [2, 3]
    assert list(chosen(some, "2")) == [2]
    assert list(chosen(some, None)) == [1, 2, 3]


def test_a_sample_of_the_list():
    some = chosen([Mutant(f"{k}.py", "a", "b", ()) for k in range(30)], "5..")
    draws = [list(drawn(some, 7, seed)) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] == sorted(set(draws[0])) and len(draws[0]) == 7
    assert draws[0] != draws[2] and min(map(min, draws)) >= 5
    assert drawn(some, 99, 0) == some


def test_what_depends_on_a_module_is_imported_again():
    imports = {
        "soundspot": {"soundspot.a"},
        "soundspot.a": set(),
        "soundspot.b": {"soundspot.a"},
        "soundspot.c": {"soundspot.b.x"},
        "soundspot.c.d": set(),
        "soundspot.e": set(),
    }
    assert module_name("soundspot/model/pcm.py") == "soundspot.model.pcm"
    assert module_name("soundspot/model/__init__.py") == "soundspot.model"
    assert dependents("soundspot.a", imports) == {"soundspot.a", "soundspot.b"}
    imports["soundspot.c"].add("soundspot.b")
    assert dependents("soundspot.b", imports) == {"soundspot.b", "soundspot.c", "soundspot.c.d"}


MODULE = "def double(x):\n    return 2 * x\n\n\ndef negate(x):\n    return -x\n"
TEST = "from soundspot.common.a import double\n\n\ndef test_it():\n    assert double(3) == 6\n"
RUN = """
from pathlib import Path
from mutating import Mutant, survivors

change = [("2 * x", "3 * x"), ("-x", "x"), ("    return 2 * x", "    while True: pass")]
some = [Mutant("soundspot/common/a.py", old, new, ("tests/test_a.py",)) for old, new in change]
print([mutant.old for mutant in survivors(dict(enumerate(some, 1)), Path.cwd())])
"""


def test_what_no_test_notices_is_told_and_the_tree_is_whole_again(tmp_path: Path):
    for name, text in {
        "soundspot/__init__.py": "",
        "soundspot/common/__init__.py": "",
        "soundspot/common/a.py": MODULE,
        "tests/test_a.py": TEST,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    limited = RUN.replace("change =", "import mutating; mutating.CPU_SECONDS = 2; change =")
    command = [sys.executable, "-c", limited]
    place = {"PYTHONPATH": str(Path(__file__).parent), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=place, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "['-x']", done.stdout + done.stderr
    assert done.stdout.count("caught") == 2 and "2 SURVIVED" in done.stdout
    assert (tmp_path / "soundspot/common/a.py").read_text() == MODULE
