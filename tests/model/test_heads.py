import torch
from torch import nn

from soundspot.model.heads import AudioTransform, Predictor, Projector


def test_audio_transform_acts_on_every_patch_before_the_mean():
    g = AudioTransform(c_a=3, c_v=5)
    f_a = torch.randn(2, 7, 3)
    w0, b0, w1, b1 = g.parameters()
    patches = [torch.relu(f_a[:, i] @ w0.T + b0) @ w1.T + b1 for i in range(7)]
    torch.testing.assert_close(g(f_a), sum(patches) / 7)


def test_the_papers_g_takes_the_mean_first():
    g = AudioTransform(c_a=3, c_v=5, of_mean=True)
    f_a = torch.randn(2, 7, 3)
    torch.testing.assert_close(g(f_a), g.layers(f_a.mean(dim=1)))
    assert not torch.allclose(g(f_a), g.layers(f_a).mean(dim=1))


def test_projector_is_simsiams():
    layers = list(Projector())
    linears = [m for m in layers if isinstance(m, nn.Linear)]
    assert [(m.in_features, m.out_features) for m in linears] == [
        (512, 2048),
        (2048, 2048),
        (2048, 2048),
    ]
    assert all(m.bias is None for m in linears)
    norms = [m for m in layers if isinstance(m, nn.BatchNorm1d)]
    assert [m.affine for m in norms] == [True, True, False]
    assert sum(isinstance(m, nn.ReLU) for m in layers) == 2
    assert isinstance(layers[-1], nn.BatchNorm1d)


def test_predictor_is_simsiams_bottleneck():
    first, norm, relu, last = Predictor()
    assert (first.out_features, first.bias) == (512, None)
    assert isinstance(norm, nn.BatchNorm1d)
    assert isinstance(relu, nn.ReLU)
    assert (last.out_features, last.bias is not None) == (2048, True)
