"""The log-mel front end against a naive reference and hand-computed answers."""

import numpy as np
import pytest
import torch

import reference_logmel
from soundspot.common.errors import SoundspotError
from soundspot.encoders.logmel import (
    VGGISH_OFFSET,
    YAMNET_OFFSET,
    log_mel_patches,
    mel_matrix,
    stretch_waveform,
)


def noise(batch: int, samples: int) -> torch.Tensor:
    return 0.3 * torch.randn(batch, samples, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("spec", [VGGISH_OFFSET, YAMNET_OFFSET])
@pytest.mark.parametrize(("batch", "samples"), [(1, 15_601), (2, 31_237)])
def test_equals_the_naive_reference(spec: float, batch: int, samples: int) -> None:
    waveform = noise(batch, samples)
    expected = [reference_logmel.log_mel_patches(row, spec) for row in waveform.double().numpy()]
    actual = log_mel_patches(waveform, spec)
    np.testing.assert_allclose(actual.numpy(), np.stack(expected), rtol=0, atol=1e-5)


def test_the_two_front_ends_differ_in_their_offset_only() -> None:
    silence = torch.zeros(1, 15_600)
    assert log_mel_patches(silence, VGGISH_OFFSET).unique().item() == pytest.approx(np.log(0.01))
    assert log_mel_patches(silence, YAMNET_OFFSET).unique().item() == pytest.approx(np.log(0.001))


@pytest.mark.parametrize(
    ("samples", "patches"), [(15_600, 1), (30_959, 1), (30_960, 2), (46_320, 3), (48_000, 3)]
)
def test_whole_patches_are_kept_and_the_remainder_is_dropped(samples: int, patches: int) -> None:
    waveform = noise(3, samples)
    result = log_mel_patches(waveform, VGGISH_OFFSET)
    assert result.shape == (3, patches, 96, 64)
    first = log_mel_patches(waveform[:, :15_600], VGGISH_OFFSET)
    torch.testing.assert_close(result[:, :1], first)


def test_too_short_a_sound_is_refused_with_the_length_it_needs() -> None:
    with pytest.raises(SoundspotError) as caught:
        log_mel_patches(torch.zeros(1, 15_599), VGGISH_OFFSET)
    assert "15600" in str(caught.value)


def test_autocast_does_not_reach_the_spectrum() -> None:
    waveform = noise(1, 15_600)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = log_mel_patches(waveform, YAMNET_OFFSET)
    torch.testing.assert_close(result, log_mel_patches(waveform, YAMNET_OFFSET))


def test_gradients_work_after_a_first_call_in_inference_mode() -> None:
    mel_matrix.cache_clear()
    waveform = noise(1, 15_600)
    with torch.inference_mode():
        log_mel_patches(waveform, VGGISH_OFFSET)
    waveform.requires_grad_()
    log_mel_patches(waveform, VGGISH_OFFSET).sum().backward()
    assert waveform.grad is not None
    assert waveform.grad.isfinite().all()


def test_stretch_uses_each_rows_own_minimum_and_maximum() -> None:
    waveform = torch.tensor([[0.0, 1.0, 3.0], [-0.5, 0.5, 0.0]])
    expected = torch.tensor(
        [
            [-1.0, 2 * (1 / 3.001 - 0.5), 2 * (3 / 3.001 - 0.5)],
            [-1.0, 2 * (1 / 1.001 - 0.5), 2 * (0.5 / 1.001 - 0.5)],
        ]
    )
    torch.testing.assert_close(stretch_waveform(waveform), expected)


def test_stretch_of_silence_is_finite() -> None:
    torch.testing.assert_close(stretch_waveform(torch.zeros(1, 5)), -torch.ones(1, 5))
