"""Random encoders, built once."""

import pytest
import torch
from torch import nn

from soundspot.encoders.building import build_encoder
from soundspot.encoders.table import ENCODERS


@pytest.fixture(scope="session")
def encoders() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {name: build_encoder(name, None) for name in ENCODERS}
