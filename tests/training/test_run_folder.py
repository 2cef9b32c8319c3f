"""run_folder.py: a run resumes from what is whole, and says what is not."""

import math
import resource

import pytest
import torch

from made_files import limited
from soundspot.common.errors import SoundspotError
from soundspot.model.methods.method import Batch
from soundspot.model.methods.sspl import SSPL, SSPLConfig
from soundspot.training.optimizer import WeightAverage, make_optimizer
from soundspot.training.recipe import TrainConfig
from soundspot.training.run_folder import (
    LOG,
    TrainState,
    _current,
    load_state,
    read_log,
    save_state,
)

CONFIG = SSPLConfig(c_v=5, c_a=3, projection=7, hidden=13)


def parts():
    method = SSPL(CONFIG)
    return method, WeightAverage(method, 0.5), make_optimizer(method, TrainConfig())


@pytest.fixture
def saved(tmp_path):
    method, average, optimizer = parts()
    batch = Batch(torch.randn(4, 5, 3, 3), torch.randn(4, 5, 3, 3), torch.rand(4, 2, 3), None)
    batch = batch._replace(cls=torch.zeros(4, dtype=torch.long))
    method(batch).loss.backward()
    optimizer.step()
    save_state(tmp_path / "state.pt", TrainState(step=3, validations=1), method, average, optimizer)
    return tmp_path / "state.pt"


def load(path):
    return load_state(path, *parts(), torch.device("cpu"), steps_per_epoch=2)


def test_a_whole_state_is_read(saved):
    assert load(saved) == TrainState(step=3, validations=1, best_score=-math.inf)


def _set(*keys, value):
    def damage(stored):
        node = stored
        for key in keys[:-1]:
            node = node[key]
        if value is None:
            del node[keys[-1]]
        else:
            node[keys[-1]] = value

    return damage


DAMAGES = {
    "no method": _set("method", value=None),
    "no progress": _set("progress", value=None),
    "a tensor more": _set("method", "extra", value=torch.zeros(1)),
    "another shape": lambda s: s["method"].update(
        {k: v[:1] for k, v in s["method"].items() if v.ndim}
    ),
    "another dtype": lambda s: s["method"].update({k: v.double() for k, v in s["method"].items()}),
    "NaN": lambda s: s["method"].update(
        {k: v * math.nan for k, v in s["method"].items() if v.is_floating_point()}
    ),
    "texts": lambda s: s["method"].update(dict.fromkeys(s["method"], "x")),
    "no groups": _set("optimizer", "param_groups", value=[]),
    "other parameters": _set("optimizer", "param_groups", 0, "params", value=[99]),
    "a moment less": lambda s: s["optimizer"]["state"][0].pop("exp_avg"),
    "a moment of another shape": _set("optimizer", "state", 0, "exp_avg", value=torch.zeros(2)),
    "a moment of nobody": _set("optimizer", "state", 9999, value={}),
    "steps below zero": _set("progress", "step", value=-1),
    "totals of text": _set("progress", "totals", value={"loss": "x"}),
    "unknown progress": _set("progress", "spet", value=1),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_state_is_one_sentence(saved, damage):
    stored = torch.load(saved, weights_only=True)
    damage(stored)
    torch.save(stored, saved)
    with pytest.raises(SoundspotError) as e:
        load(saved)
    assert "\n" not in str(e.value)


def test_the_settings_of_the_optimizer_are_the_recipe_s(saved):
    """Whatever a damaged or older file has."""
    stored = torch.load(saved, weights_only=True)
    for group in stored["optimizer"]["param_groups"]:
        group.update(betas="x", base_lr=10**40, amsgrad=True, fused=None)
        del group["eps"]
    torch.save(stored, saved)
    method, average, optimizer = parts()
    load_state(saved, method, average, optimizer, torch.device("cpu"), steps_per_epoch=2)
    settings = [{**group, "params": None} for group in optimizer.param_groups]
    assert settings == [{**group, "params": None} for group in parts()[2].param_groups]
    assert len(optimizer.state) == len(stored["optimizer"]["state"])


def test_an_old_state_in_the_middle_of_an_epoch():
    old = {"epoch": 2, "step": 1, "best_epoch": 1, "best_score": 0.5, "totals": {"loss": 3.0}}
    assert _current(old, 5) == {
        "step": 11, "validations": 2, "best_validation": 1, "best_step": 5, "counted": 1,
        "best_score": 0.5, "totals": {"loss": 3.0},
    }  # fmt: skip


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x80\x02.", b"text", [1, 2]])
def test_a_file_that_is_no_state_is_one_sentence(saved, content):
    if isinstance(content, list):
        torch.save(content, saved)
    else:
        saved.write_bytes(content)
    with pytest.raises(SoundspotError):
        load(saved)


@pytest.mark.parametrize("text", ['{"epoch": 1}\n{', "[]\n", '{"epoch": 1}\n', "\xff"])
def test_a_damaged_log_is_one_sentence(tmp_path, text):
    (tmp_path / LOG).write_bytes(text.encode("latin-1"))
    with pytest.raises(SoundspotError):
        read_log(tmp_path, 2)


def test_only_the_lines_of_saved_validations_count(tmp_path):
    (tmp_path / LOG).write_text('{"epoch": 1}\n{"epo')
    assert read_log(tmp_path, 1) == [{"epoch": 1}]
    assert read_log(tmp_path / "new", 0) == []


def test_a_full_disk_is_one_sentence_and_the_old_state_stays(tmp_path):
    path = tmp_path / "state.pt"
    path.write_bytes(b"old")
    with limited(resource.RLIMIT_FSIZE, 10_000), pytest.raises(SoundspotError) as caught:
        save_state(path, TrainState(), *parts())
    assert caught.value.code == "no-write"
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
