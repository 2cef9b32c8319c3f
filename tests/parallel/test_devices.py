import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from soundspot.common.errors import SoundspotError
from soundspot.parallel.devices import choose_device, multiplies_bfloat16, torch_threads


def test_auto_is_a_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device() == torch.device("cuda")
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    assert choose_device("cpu") == torch.device("cpu")


def test_an_absent_device_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SoundspotError):
        choose_device("cuda")
    with pytest.raises(SoundspotError):
        choose_device("cpu:x")


def test_a_cpu_multiplies_bfloat16_if_it_has_the_instructions(monkeypatch):
    cpu = torch.device("cpu")
    for known, able in (({"avx2": True}, False), ({"avx512_bf16": True, "avx2": True}, True)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda known=known: known, raising=False)
        assert multiplies_bfloat16(cpu) == able
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not multiplies_bfloat16(cpu)
    assert multiplies_bfloat16(torch.device("cuda"))


def test_overlapping_thread_counts_leave_the_first_one():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        first, second = torch_threads(3), torch_threads(2)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 2  # the second is not finished
        second.__exit__(None, None, None)
        assert torch.get_num_threads() == 4
        with torch_threads(3), torch_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


def test_thread_counts_of_two_threads_leave_the_first_one():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    inside, leave, seen = threading.Event(), threading.Event(), []

    def other():
        with torch_threads(2):
            inside.set()
            leave.wait()
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    try:
        with torch_threads(3):
            thread.start()
            inside.wait()
        leave.set()
        thread.join()
        assert (torch.get_num_threads(), *seen) == (4, 4)
        with ThreadPoolExecutor(1) as pool:  # a new thread takes the process's count
            assert pool.submit(torch.get_num_threads).result() == 4
    finally:
        torch.set_num_threads(before)
