from contextlib import nullcontext

import numpy as np
import pytest
import torch

import reference
from soundspot.encoders.winograd import plain_operations
from soundspot.model.pcm import PCM

C_V, C_A, BATCH = 5, 3, 2


def make(cycles=3, variant="released"):
    """A PCM in double precision with no parameter at its initial, too convenient value.

    One channel of every a_l and b_l is negative, so that the ReLU on them matters.
    """
    torch.manual_seed(1)
    module = PCM(C_V, C_A, cycles, variant).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        if variant == "released":
            for scalar in [*module.a, *module.b]:
                scalar[1] = -0.4
    return module


def inputs(height, width, batch=BATCH):
    torch.manual_seed(2)
    return (
        torch.randn(batch, C_V, height, width, dtype=torch.float64),
        torch.randn(batch, C_A, dtype=torch.float64),
    )


def as_arrays(module):
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


@pytest.mark.parametrize("grid", [(14, 14), (7, 7), (7, 11), (8, 13), (16, 9)])
def test_every_step_equals_the_naive_reference(grid):
    check_against_the_reference(make(), *inputs(*grid))


def test_the_papers_variant_equals_the_reference_too(monkeypatch):
    """128 bottom channels (7 here), scalar a_l and b_l, a batch norm in the top feedback."""
    monkeypatch.setattr("soundspot.model.pcm.BOTTOM_CHANNELS", 7)
    module = make(variant="paper")
    assert module.w_21.weight.shape[:2] == (7, C_V)
    assert all(scalar.numel() == 1 for scalar in [*module.a, *module.b])
    check_against_the_reference(module, *inputs(14, 14))


def check_against_the_reference(module, f_v, f_a):
    expected, error = reference.pcm(f_v.numpy(), f_a.numpy(), as_arrays(module), total=3)
    steps = module.trace(f_v, f_a)
    np.testing.assert_allclose(steps[-1].e_0.detach(), error, rtol=1e-5, atol=1e-7)
    for ours, naive in zip(steps, expected, strict=True):
        np.testing.assert_allclose(ours.f_v.detach().numpy(), naive, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(module(f_v, f_a).f_v, steps[-1].f_v)


@pytest.mark.parametrize("grid", [(14, 14), (7, 9)])
@pytest.mark.parametrize("variant", ["released", "paper"])
def test_a_checkpoint_of_the_plain_form_gives_the_same_maps(grid, variant):
    """In single precision and eval mode, as a checkpoint is used."""
    module = make(variant=variant).float().eval()
    f_v, f_a = (tensor.float() for tensor in inputs(*grid))
    with plain_operations():
        plain = module.trace(f_v, f_a)
    for fast, expected in zip(module.trace(f_v, f_a), plain, strict=True):
        for ours, theirs in zip(fast, expected, strict=True):
            assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_gradients_are_those_of_the_plain_form():
    module, (f_v, f_a) = make(), inputs(14, 14)
    gradients = []
    for form in (nullcontext(), plain_operations()):
        module.zero_grad()
        with form:
            module(f_v, f_a).f_v.square().sum().backward()
        gradients.append({name: p.grad for name, p in module.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], msg=name)


def test_fewer_cycles_stop_early_and_more_reuse_the_last_norms():
    module, (f_v, f_a) = make().eval(), inputs(14, 14)
    steps = module.trace(f_v, f_a, cycles=5)
    assert len(steps) == 5
    for t in (1, 2, 3, 5):
        torch.testing.assert_close(module(f_v, f_a, cycles=t).f_v, steps[t - 1].f_v)
    assert not torch.allclose(steps[4].f_v, steps[2].f_v)


def test_the_sound_changes_the_visual_feature():
    module, (f_v, f_a) = make().eval(), inputs(14, 14)
    assert not torch.allclose(module(f_v, f_a).f_v, module(f_v, f_a + 7).f_v)


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("cycles", [1, 2, 3])
def test_gradients_reach_every_trained_parameter(cycles, variant):
    module, (f_v, f_a) = make(cycles, variant), inputs(14, 14)
    module(f_v, f_a).f_v.square().sum().backward()
    silent = [
        name
        for name, p in module.named_parameters()
        if p.grad is None or not p.grad.abs().sum() > 0
    ]
    assert silent == ([] if cycles > 1 else ["b.0", "b.1", "b.2"])
    assert silent == [name for name, p in module.named_parameters() if not p.requires_grad]


def test_a_single_pass_has_the_parameters_of_many():
    one, many = PCM(C_V, C_A, 1), PCM(C_V, C_A, 3)
    rest = {name for name in many.state_dict() if not name.startswith(("norms.1", "norms.2"))}
    assert set(one.state_dict()) == rest


def test_a_batch_of_one_works():
    f_v, f_a = inputs(14, 14, batch=1)
    assert make().eval()(f_v, f_a).f_v.shape == f_v.shape


def test_initial_values_of_the_balance_scalars():
    module = PCM(C_V, C_A, 2)
    assert all((a == 1.0).all() for a in module.a)
    assert all((b == 0.5).all() for b in module.b)


@pytest.mark.parametrize(("grid", "cycles"), [((6, 14), 2), ((14, 14), 0)])
def test_impossible_requests_are_refused(grid, cycles):
    f_v, f_a = inputs(*grid)
    with pytest.raises(ValueError, match="PCM needs"):
        make()(f_v, f_a, cycles)
