import ctypes
import subprocess
import sys

import pytest

PAGES = 64 * 2**20 // 4096  # of a block that is too large for glibc to keep by itself
# In a process of its own: in an old one there may be free blocks of any size.
FAULTS = f"""
import ctypes, resource
from soundspot.parallel.heap import freed_memory_kept

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = ctypes.c_void_p(libc.malloc(ctypes.c_size_t({PAGES} * 4096)))
    libc.memset(block, 1, ctypes.c_size_t({PAGES} * 4096))
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(), faults())
with freed_memory_kept():
    print(faults(), faults())
print(faults(), faults())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)
def test_freed_memory_is_reused_inside_and_returned_afterwards():
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True
    )
    (_, before), (_, inside), (_, after) = (
        map(int, line.split()) for line in done.stdout.splitlines()
    )
    assert before >= PAGES and after >= PAGES
    assert inside < PAGES / 8
