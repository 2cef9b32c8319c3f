"""Fixtures: seeds, the development data where they are present, and a tiny pair set."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from made_files import THIN_VGG16, tiny_pair_set
from soundspot.data.pair_set import PairSet
from soundspot.encoders import vgg16

# On a busy machine two threads that wait for each other are slower than one by far.
torch.set_num_threads(1)

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def thin_vgg16() -> Iterator[None]:
    """A random VGG16 with few channels inside, for tests to which its features mean nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vgg16, "LAYOUT", THIN_VGG16)
        yield


@pytest.fixture
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the development data are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def tiny_pairs(tmp_path_factory):
    """See `tiny_pair_set`. Do not write into it."""
    return tiny_pair_set(tmp_path_factory.mktemp("tiny") / "pairs")


@pytest.fixture
def own_pairs(tiny_pairs, tmp_path) -> PairSet:
    """A copy of the tiny pair set without features, to write into."""
    without = shutil.ignore_patterns("features")
    return PairSet.open(shutil.copytree(tiny_pairs.root, tmp_path / "pairs", ignore=without))
