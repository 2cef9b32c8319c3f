"""Checkpoints: safetensors for the weights, JSON beside it for everything else. No pickles.

`NAME.safetensors` holds the trained part of a method, `NAME.json` the card: which method with
which config on which encoders, how it was made and how it scored.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from soundspot.config import build, choose, plain
from soundspot.errors import SoundspotError
from soundspot.features import FeatureSpec
from soundspot.methods import METHODS
from soundspot.methods.method import Method

FORMAT = 1


@dataclass(frozen=True)
class Card:
    """What a checkpoint says of itself.

    Attributes:
        method: A key of METHODS.
        config: The method's config as plain values.
        features: The encoders and views it was trained on.
        trained: False for a network whose heads were never trained.
        epoch: After how many epochs.
        metrics: What was measured on the validation split when it was saved.
        provenance: Command, commit, seed, data fingerprint.
        format: Version of this file's layout.
    """

    method: str
    config: dict[str, Any]
    features: FeatureSpec
    trained: bool = True
    epoch: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT


def build_method(method: str, config: Mapping[str, Any]) -> Method:
    """A method with fresh weights from its name and plain config values."""
    spec = choose("method", method, METHODS)
    return spec.module(build(spec.config, config, "model"))


def save(path: Path, model: nn.Module, card: Card) -> None:
    """Write weights and card; each file is replaced in one step.

    Args:
        path: Of the .safetensors file.
        model: The trained part.
        card: Goes beside it as .json.
    """
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        save_file(state, temporary)
        temporary.replace(path)
        temporary.write_text(json.dumps(plain(card), indent=1) + "\n", encoding="utf-8")
        temporary.replace(path.with_suffix(".json"))
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise SoundspotError(f"cannot write the checkpoint {path}: {error}") from error


def load(path: Path) -> tuple[Method, Card]:
    """Read a checkpoint: a .safetensors file, or a run folder (its best.safetensors).

    Returns:
        The method in eval mode, in float32, and its card.
    """
    if path.is_dir():
        path = path / "best.safetensors"
    if not path.is_file():
        raise SoundspotError(f"no checkpoint at {path}")
    card = read_card(path)
    model = build_method(card.method, card.config)
    try:
        state: dict[str, Tensor] = load_file(path)
        model.load_state_dict({name: _full(tensor) for name, tensor in state.items()})
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise SoundspotError(f"{path} is damaged or does not fit its card: {reason}") from error
    return model.eval(), card


def read_card(path: Path) -> Card:
    """The card beside a .safetensors file."""
    beside = path.with_suffix(".json")
    try:
        values = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SoundspotError(f"{path} has no readable card {beside.name} beside it") from error
    if values.get("format") != FORMAT:
        raise SoundspotError(
            f"{beside} has format {values.get('format')}, this version reads format {FORMAT}"
        )
    return build(Card, values, beside.name)


def _full(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
