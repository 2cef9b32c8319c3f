"""checkpoint.py: weights and card are one file; what does not fit is refused before it is built."""

import json
import resource
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from made_files import limited
from soundspot.common.errors import SoundspotError
from soundspot.features.spec import FeatureSpec
from soundspot.inference.models import MODELS
from soundspot.model import checkpoint
from soundspot.model.checkpoint import Card
from soundspot.model.methods.sspl import SSPL, SSPLConfig

SIZES = {"c_v": 5, "c_a": 3, "projection": 7, "hidden": 13}
SPEC = FeatureSpec(pretrained=False)


def model():
    return SSPL(SSPLConfig(**SIZES))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoint.save(tmp_path / "m.safetensors", model(), Card("sspl", SIZES, SPEC, epoch=1))
    return tmp_path / "m.safetensors"


@pytest.fixture
def old_pair(path: Path) -> Path:
    """As checkpoints were before they carried their card."""
    save_file(load_file(path), path)
    return path


def test_a_kill_between_weights_and_card_mixes_nothing(path: Path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_text", killed)
    new = model()
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(path, new, Card("sspl", SIZES, SPEC, epoch=2))
    loaded, card = checkpoint.load(path)
    assert card.epoch == 2
    for name, tensor in new.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_a_checkpoint_is_whole_without_the_copy_of_its_card(path: Path):
    path.with_suffix(".json").unlink()
    assert checkpoint.load(path)[1].epoch == 1


def test_old_pairs_of_weights_and_card_are_read(old_pair: Path):
    with safe_open(old_pair, "pt") as file:
        assert not file.metadata()
    assert checkpoint.load(old_pair)[1].epoch == 1
    old_pair.with_suffix(".json").unlink()
    with pytest.raises(SoundspotError):
        checkpoint.load(old_pair)


@pytest.mark.parametrize("shipped", sorted(MODELS.glob("*.safetensors")), ids=lambda p: p.stem)
def test_shipped_models_are_read(shipped: Path):
    loaded, card = checkpoint.load(shipped)
    assert card.trained and card.slim
    assert all(tensor.isfinite().all() for tensor in loaded.state_dict().values())


def _card(**changes):
    def damage(path: Path) -> None:
        beside = path.with_suffix(".json")
        card = json.loads(beside.read_text())
        for key, value in changes.items():
            card[key] = {**card[key], **value} if key in ("config", "features") else value
        beside.write_text(json.dumps(card))

    return damage


def _tensors(change):
    def damage(path: Path) -> None:
        save_file({name: change(tensor) for name, tensor in load_file(path).items()}, path)

    return damage


DAMAGES = {
    "huge c_v": _card(config={"c_v": 10**9}),
    "c_v beyond any memory": _card(config={"c_v": 2**62}),
    "c_v of text": _card(config={"c_v": "5"}),
    "another c_v": _card(config={"c_v": 7}),
    "another method": _card(method="spl"),
    "method of a list": _card(method=["sspl"]),
    "threshold of NaN": _card(calibration={"threshold": float("nan")}),
    "a billion views": _card(features={"views": 10**9}),
    "pretrained of 1": _card(features={"pretrained": 1}),
    "slim, but whole": _card(slim=True),
    "format of a list": _card(format=[1]),
    "NaN weights": _tensors(lambda t: t * float("nan") if t.is_floating_point() else t),
    "infinite weights": _tensors(lambda t: t / 0 if t.is_floating_point() else t),
    "half of each": _tensors(lambda t: t[:1].contiguous() if t.ndim else t),
    "a card of a list": lambda path: path.with_suffix(".json").write_text("[]"),
    "a deep card": lambda path: path.with_suffix(".json").write_text("[" * 9999),
    "noise": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:99]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_checkpoint_is_one_sentence(old_pair: Path, damage, monkeypatch):
    damage(old_pair)
    with pytest.raises(SoundspotError) as caught:
        checkpoint.load(old_pair)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("slim", [False, True])
def test_nothing_is_allocated_for_a_config_that_does_not_fit(old_pair: Path, slim: bool):
    """Gigabytes, which this process may not have."""
    if slim:
        checkpoint.export(old_pair, old_pair.with_name("slim.safetensors"))
        old_pair = old_pair.with_name("slim.safetensors")
        save_file(load_file(old_pair), old_pair)
        assert checkpoint.load(old_pair)[1].slim
    _card(config={"hidden": 32_768, "projection": 32_768})(old_pair)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    with limited(resource.RLIMIT_AS, used + 2**31), pytest.raises(SoundspotError):
        checkpoint.load(old_pair)


def test_absurd_sizes_are_refused_before_training():
    with pytest.raises(SoundspotError):
        checkpoint.build_method("sspl", {**SIZES, "hidden": 10**9})


@pytest.mark.parametrize(("centering", "loads"), [(0.0, True), (0.5, False)])
def test_a_switch_that_is_gone_may_be_stored_with_the_meaning_that_is_left(
    tmp_path: Path, centering: float, loads: bool
):
    method = checkpoint.build_method("contrastive", {"c_v": 5, "c_a": 3})
    stored = {"c_v": 5, "c_a": 3, "map_centring": centering, "alike": 0.0}  # spelled as in 0.2
    checkpoint.save(tmp_path / "old.safetensors", method, Card("contrastive", stored, SPEC))
    if loads:
        assert not hasattr(checkpoint.load(tmp_path / "old.safetensors")[0].config, "alike")
        return
    with pytest.raises(SoundspotError):
        checkpoint.load(tmp_path / "old.safetensors")
