"""What `make test-fast` leaves out."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOW = ROOT / "tests" / "slow_tests.txt"


def test_what_is_slow():
    """A file goes as a whole if nothing in it is fast, so that its next test goes with it."""
    spec = importlib.util.spec_from_file_location("slow_tests", ROOT / ".ci" / "slow_tests.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seconds = {"a.py::b": 1.0, "a.py::c[1-2]": 0.5, "d.py::e": 0.01, "d.py::f": 2.0, "g.py::h": 0.0}
    assert module.slow_tests(seconds) == ["a.py", "d.py::f"]


def test_everything_that_is_left_out_exists():
    for listed in SLOW.read_text(encoding="utf-8").splitlines():
        file, _, name = listed.partition("::")
        if name:
            text = (ROOT / file).read_text(encoding="utf-8")
            assert f"def {name.partition('[')[0].rpartition('::')[2]}(" in text, listed
        assert (ROOT / file).is_file(), listed
