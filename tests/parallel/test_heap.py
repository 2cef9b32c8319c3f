import ctypes
import resource
import sys

import pytest
import torch

from soundspot.parallel.heap import freed_memory_kept

PAGES = 64 * 2**20 // 4096  # of a tensor that is too large for glibc to keep by itself

glibc = pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)


def faults_of_a_large_tensor() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(64 * 2**20 // 4)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@glibc
def test_freed_memory_is_reused_inside_and_returned_afterwards():
    assert faults_of_a_large_tensor() >= PAGES
    with freed_memory_kept():
        faults_of_a_large_tensor()
        assert faults_of_a_large_tensor() < PAGES / 8
    assert faults_of_a_large_tensor() >= PAGES
