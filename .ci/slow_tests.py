"""Write tests/slow_tests.txt, what `make test-fast` leaves out, from the times of a whole run.

pytest -n auto --junitxml=times.xml -o junit_family=xunit1 && python .ci/slow_tests.py times.xml

A file whose tests are all slow is listed as a whole: tests that it gets later will be as slow.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

SECONDS = 0.06  # with set-up


def slow_tests(seconds: Mapping[str, float]) -> list[str]:
    """The ids of slow tests, or of files of nothing else, by the time that each test took."""
    slow = {test for test, time in seconds.items() if time > SECONDS}
    files = {test.partition("::")[0] for test in slow}
    files -= {test.partition("::")[0] for test in seconds.keys() - slow}
    return sorted(files | {test for test in slow if test.partition("::")[0] not in files})


if __name__ == "__main__":
    cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    took = {
        f"{case.get('file')}::{case.get('name')}": float(case.get("time", 0))
        for case in cases
        if case.get("file")
    }
    listed = Path(__file__).parents[1] / "tests" / "slow_tests.txt"
    listed.write_text("\n".join(slow_tests(took)) + "\n", encoding="utf-8")
    print(f"{len(took)} tests; listed: {len(slow_tests(took))} files and tests over {SECONDS} s")
