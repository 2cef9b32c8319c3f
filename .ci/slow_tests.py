"""Write tests/slow_tests.txt, what `make test-fast` leaves out, from the times of a whole run.

pytest -n auto --junitxml=times.xml -o junit_family=xunit1 && python .ci/slow_tests.py times.xml
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

SECONDS = 0.06  # with set-up

cases = ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
slow = {
    f"{case.get('file')}::{case.get('name')}"
    for case in cases
    if case.get("file") and float(case.get("time", 0)) > SECONDS
}
listed = Path(__file__).parents[1] / "tests" / "slow_tests.txt"
listed.write_text("\n".join(sorted(slow)) + "\n", encoding="utf-8")
print(f"{len(slow)} tests take longer than {SECONDS} s")
