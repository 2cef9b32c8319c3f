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


def test_thread_counts_of_torch_are_as_before():
    before = torch.get_num_threads()
    with torch_threads(before + 2):
        with torch_threads(before + 1):
            assert torch.get_num_threads() == before + 1
        assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
