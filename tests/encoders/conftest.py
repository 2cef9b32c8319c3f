"""Random encoders, built once."""

import pytest
import torch
from torch import nn

from soundspot.encoders.table import ENCODERS, build_encoder


@pytest.fixture(scope="session")
def encoders() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {name: build_encoder(name, None) for name in ENCODERS}
