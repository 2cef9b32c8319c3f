import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from soundspot.parallel.devices import torch_threads


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
