"""The generator of `make mutants`: what it changes, and that it tells what survives."""

import os
import subprocess
import sys
from pathlib import Path

from mutating import mirrored_tests, mutations

MODULE = '''
def share(a: float = 5, b: "x y" = None) -> float:
    """Says 1 + 1."""
    if a < 3 and not b:
        raise ValueError(f"{a + 1} < 3")
    return a.item() / divide(a, b)
'''


def test_what_is_changed():
    made = list(mutations(MODULE))
    assert [f"{line}: {change}" for line, change, _ in made] == [
        "2: 5  ->  6",
        "2: 5  ->  4",
        "4: a < 3 and (not b)  ->  a < 3 or not b",
        "4: a < 3 and (not b)  ->  a < 3",
        "4: a < 3 and (not b)  ->  not b",
        "4: a < 3  ->  a <= 3",
        "4: 3  ->  4",
        "4: 3  ->  2",
        "4: not b  ->  b",
        "6: a.item() / divide(a, b)  ->  a.item() * divide(a, b)",
        "6: a.item() / divide(a, b)  ->  a.item()",
        "6: a.item()  ->  a",
        "6: divide(a, b)  ->  divide(b, a)",
    ]
    sources = {source for _, _, source in made}
    assert len(sources) == len(made)
    assert all("b: 'x y'=None" in source and "a + 1" in source for source in sources)


def test_the_tests_of_a_file():
    assert mirrored_tests("soundspot/model/pcm.py") == "tests/model/test_pcm.py"
    assert mirrored_tests("soundspot/model/nothing_of_that_name.py") == "tests/model"
    assert mirrored_tests("soundspot/nothing/of_that_name.py") == "tests"


def test_what_survives_is_told(tmp_path: Path):
    """In a tree of one module and one test, in a process of its own."""
    files = {
        "soundspot/__init__.py": "",
        "soundspot/a.py": "def double(x):\n    return 2 * x\n\n\ndef negate(x):\n    return -x\n",
        "tests/test_a.py": "from soundspot.a import double\n\n\n"
        "def test_it():\n    assert double(3) == 6\n",
        "tests/mutating.py": Path(__file__).with_name("mutating.py").read_text(),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "tests/mutating.py", "soundspot/a.py"]
    place = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=place, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "soundspot/a.py: 5 of 5 mutations",
        "  6: -x  ->  x",
        "  1 survived",
    ], done.stdout + done.stderr
    assert {name: (tmp_path / name).read_text() for name in files} == files
