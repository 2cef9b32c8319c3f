"""A small feature cache, made once with random encoders."""

import pytest

from soundspot.features.encoding import encode
from soundspot.features.spec import FeatureSpec

SPEC = FeatureSpec(pretrained=False, views=2)


@pytest.fixture(scope="session")
def made(tiny_pairs, tmp_path_factory):
    """A complete cache; copy it before breaking it."""
    folder = tmp_path_factory.mktemp("cache") / "features"
    done = []
    cache = encode(tiny_pairs, folder, SPEC, advance=done.append)
    return cache, folder, sum(done)
