import numpy as np
import pytest
import torch

import reference
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


@pytest.mark.parametrize(
    ("variant", "grid"),
    [("released", grid) for grid in ((14, 14), (7, 7), (7, 11), (8, 13))] + [("paper", (14, 14))],
)
def test_every_step_equals_the_naive_reference(variant, grid):
    module, (f_v, f_a) = make(variant=variant), inputs(*grid)
    weights = {name: p.detach().numpy() for name, p in module.named_parameters()}
    expected = reference.pcm(f_v.numpy(), f_a.numpy(), weights, total=3)
    steps = module.trace(f_v, f_a)
    for ours, naive in zip(steps, expected, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), naive, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(module(f_v, f_a), steps[-1])


def test_the_papers_variant_has_scalars_and_the_filters_of_the_released_code():
    released, paper = make(), make(variant="paper")
    assert all(scalar.numel() == 1 for scalar in [*paper.a, *paper.b])
    for name in ("w_32", "w_21", "w_10"):
        assert getattr(paper, name).weight.shape == getattr(released, name).weight.shape


def test_fewer_cycles_stop_early_and_more_go_on_with_the_last_norms():
    module, (f_v, f_a) = make(cycles=2).eval(), inputs(14, 14)
    steps = module.trace(f_v, f_a, cycles=4)
    for t in (1, 2, 4):
        torch.testing.assert_close(module(f_v, f_a, cycles=t), steps[t - 1])
    longer = make(cycles=4).eval()
    longer.load_state_dict(module.state_dict(), strict=False)
    for t in (2, 3):
        longer.norms[t].load_state_dict(module.norms[1].state_dict())
    torch.testing.assert_close(longer(f_v, f_a), steps[3])


@pytest.mark.parametrize("variant", ["released", "paper"])
@pytest.mark.parametrize("cycles", [1, 3])
def test_gradients_reach_every_trained_parameter(cycles, variant):
    module, (f_v, f_a) = make(cycles, variant), inputs(14, 14)
    module(f_v, f_a).square().sum().backward()
    named = list(module.named_parameters())
    silent = [name for name, p in named if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == ([] if cycles > 1 else ["b.0", "b.1", "b.2"])
    assert silent == [name for name, p in named if not p.requires_grad]


def test_a_batch_of_one_works_and_the_sound_changes_the_feature():
    module, (f_v, f_a) = make().eval(), inputs(14, 14, batch=1)
    found = module(f_v, f_a)
    assert found.shape == f_v.shape
    assert not torch.allclose(found, module(f_v, f_a + 7))


def test_initial_values_of_the_balance_scalars():
    module = PCM(C_V, C_A, 2)
    assert all((a == 1.0).all() for a in module.a)
    assert all((b == 0.5).all() for b in module.b)


@pytest.mark.parametrize(("grid", "cycles"), [((6, 14), 2), ((14, 14), 0)])
def test_impossible_requests_are_refused(grid, cycles):
    with pytest.raises(ValueError):
        make()(*inputs(*grid), cycles)
