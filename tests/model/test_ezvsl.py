import math

import pytest
import torch

from soundspot.model.methods.ezvsl import EZVSL, EZVSLConfig
from soundspot.model.methods.marginnce import MarginNCE, MarginNCEConfig
from soundspot.model.methods.method import Batch
from soundspot.model.methods.sslsan import NOISES, SSLSaN, SSLSaNConfig


def two_pairs(model, unseen=None):
    """The loss of two frames, cosines 0.8 with the own sound at one place, 0.6 with the other."""
    model.g = torch.nn.Flatten(1)  # one patch: the sound itself
    if unseen is not None:
        model.unseen = unseen
    sounds = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    place, nothing = torch.tensor([0.8, 0.6]), torch.tensor([-1.0, -1.0])
    first = torch.stack([nothing, place], dim=1).view(1, 2, 1, 2)
    second = torch.stack([place.flip(0), nothing], dim=1).view(1, 2, 1, 2)
    view = torch.cat([first, second])
    return model(Batch(view, view, sounds, torch.tensor([-1, -1]))).loss.item()


def test_the_best_location_counts_at_the_papers_temperature():
    model = EZVSL(EZVSLConfig(c_v=2, c_a=2, visual_conv=False))
    assert two_pairs(model) == pytest.approx(2 * math.log(1 + math.exp(-0.2 / 0.03)), rel=1e-4)


@pytest.mark.parametrize(("margin", "apart"), [(0.0, 0.2), (-0.2, 0.4), (0.1, 0.1)])
def test_a_negative_margin_is_added_to_the_cosine_of_a_pair(margin, apart):
    model = MarginNCE(MarginNCEConfig(c_v=2, c_a=2, visual_conv=False, margin=margin))
    assert two_pairs(model) == pytest.approx(2 * math.log(1 + math.exp(-apart / 0.07)), rel=1e-4)


def test_silence_and_noise_are_negatives_of_frames_alone():
    model = SSLSaN(SSLSaNConfig(c_v=2, c_a=2, visual_conv=False))
    found = two_pairs(model, torch.tensor([[[0.6, 0.8]], [[0.6, -0.8]]]))
    # The cosines of the first frame with the two are 0.96 and -0.16, those of the second 1 and
    # -0.28; elsewhere both frames have 0.2 / sqrt(2) with the noise and less with silence.
    elsewhere = 0.2 / 2**0.5
    frames = sum(
        math.log(1 + sum(math.exp((s - 0.8) / 0.03) for s in others))
        for others in ((0.6, 0.96, elsewhere), (0.6, 1.0, elsewhere))
    )
    sounds = 2 * math.log(1 + math.exp(-0.2 / 0.03))
    assert found == pytest.approx((frames + sounds) / 2, rel=1e-4)


def test_silence_is_heard_once_and_every_noise_is_another():
    model = SSLSaN(SSLSaNConfig(c_v=2, c_a=5))
    model.prepare(lambda waveforms: waveforms[:, :15].view(-1, 3, 5))
    assert not model.unseen[0].any()
    assert len(model.unseen[1:].flatten(1).unique(dim=0)) == NOISES
    assert model.unseen[1:].std().item() == pytest.approx(0.1, rel=0.2)
