"""mobile_sam.py: its parts by hand, its conversion, and the published network's answers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from encoder_inputs import noise
from soundspot.encoders.mobile_sam import (
    DIM,
    WEIGHTS,
    Masks,
    MobileSAM,
    PromptEncoder,
    convert,
    prepare,
)
from soundspot.encoders.tiny_vit import WindowBlock
from soundspot.encoders.weights import load_tensors


@pytest.fixture(scope="module")
def net() -> MobileSAM:
    torch.manual_seed(0)
    return MobileSAM().requires_grad_(False).eval()


class WindowMean(nn.Module):
    """Instead of attention: every token becomes the mean of its window."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.mean(dim=1, keepdim=True).expand_as(tokens)


def test_windows_are_filled_up_with_zeros() -> None:
    """7 x 11 cells in windows of 5: the last ones hold 2 rows and 1 column of the grid."""
    block = WindowBlock(3, 1, 5)
    block.attn = WindowMean()
    for parameter in block.parameters():
        parameter.data.zero_()
    block.local_conv.weight.data[:, :, 1, 1] = 1  # the cell itself
    x = noise(2, 3, 7, 11)
    expected = x.clone()
    for top in (0, 5):
        for left in (0, 5, 10):
            part = x[:, :, top : top + 5, left : left + 5]
            mean = part.sum(dim=(2, 3), keepdim=True) / 25
            expected[:, :, top : top + 5, left : left + 5] += mean
    torch.testing.assert_close(block(x), expected)


def test_cells_are_coded_as_the_points_in_their_middle() -> None:
    encoder = PromptEncoder()
    encoder.frequencies.copy_(noise(2, DIM // 2))
    encoder.point_embeddings[1].weight.data.zero_()
    points = torch.tensor([[[16 * x + 7.5, 16 * y + 7.5] for x, y in ((4, 1), (0, 2))]])
    tokens = encoder.points(points, 80)[0]
    grid = encoder.grid(3, 5)[0]  # the upper part of a square
    torch.testing.assert_close(tokens[0], grid[:, 1, 4])
    torch.testing.assert_close(tokens[1], grid[:, 2, 0])


@pytest.mark.parametrize(("height", "width"), [(64, 64), (48, 128)])
def test_a_batch_is_its_pictures_one_by_one(net: MobileSAM, height: int, width: int) -> None:
    pixels = noise(2, 3, height, width)
    points, boxes = torch.tensor([[[3.0, 5], [7, 11]], [[13, 17], [19, 23]]]), 7 * noise(2, 4)
    embedding = net.embed(pixels)
    assert embedding.shape == (2, DIM, height // 16, width // 16)
    both = net.decode(embedding, points), net.decode_box(embedding, boxes)
    assert both[0].logits.shape == (2, 3, height // 4, width // 4)
    for k in (0, 1):
        alone = net.embed(pixels[k : k + 1])
        one = slice(k, k + 1)
        prompted = net.decode(alone, points[one]), net.decode_box(alone, boxes[one])
        for batched, single in zip(both, prompted, strict=True):
            torch.testing.assert_close(batched.logits[one], single.logits, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(batched.quality[one], single.quality, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "inside"), [((3, 5), (38, 64)), ((1, 1), (64, 64)), ((997, 1), (64, 1))]
)
def test_a_picture_fills_all_but_the_last_cells(size, inside):
    rows, columns = inside
    pixels = prepare(torch.full((3, *size), 255.0), 64)
    assert pixels.shape == (1, 3, 16 * -(-rows // 16), 16 * -(-columns // 16))
    white = torch.full(inside, (255 - 103.53) / 57.375)
    torch.testing.assert_close(pixels[0, 2, :rows, :columns], white)
    assert not pixels[0, :, rows:].any()
    assert not pixels[0, :, :, columns:].any()


def test_conversion_folds_batch_norms_and_leaves_out_other_tasks() -> None:
    conv, norm = nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5).eval()
    for tensor in (norm.weight.data, norm.bias.data, norm.running_mean):
        tensor.normal_()
    norm.running_var.uniform_(0.5, 2)
    published = {"image_encoder.patch_embed.seq.0.c.weight": conv.weight.data}
    published |= {f"image_encoder.patch_embed.seq.0.bn.{k}": v for k, v in norm.named_buffers()}
    published |= {
        f"image_encoder.patch_embed.seq.0.bn.{k}": v.data for k, v in norm.named_parameters()
    }
    published |= {
        "image_encoder.head.weight": noise(2),
        "mask_decoder.iou_token.weight": noise(1, 7),
    }
    published["prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"] = noise(2, 3)
    state = convert(published)
    x = noise(1, 3, 7, 11)
    weight, bias = (state.pop(f"image_encoder.patch_embed.0.{k}") for k in ("weight", "bias"))
    torch.testing.assert_close(F.conv2d(x, weight, bias), norm(conv(x)))
    assert set(state) == {"mask_decoder.iou_token.weight", "prompt_encoder.frequencies"}


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.shared_data
def test_the_published_network_answers_the_same(shared_data: Path) -> None:
    folder = shared_data / "mobilesam"
    if not folder.is_dir():
        pytest.skip(f"the published network's answers are not at {folder}")
    reference = np.load(folder / "reference.npz")
    item = json.loads((folder / "images.json").read_text())[1]
    net = MobileSAM().requires_grad_(False).eval()
    net.load_state_dict(load_tensors(WEIGHTS))
    with Image.open(folder / item["file"]) as image:
        picture = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float()
    answers = {name: torch.from_numpy(reference[name]).float() for name in reference.files}
    known = {name[len("1_768_") :]: v for name, v in answers.items() if name.startswith("1_768_")}
    part = prepare(picture, 768)
    pixels = F.pad(part, (0, 768 - part.shape[3], 0, 768 - part.shape[2]))  # as its publishers do
    torch.testing.assert_close(pixels[0, :, ::64, ::64], known["input_pixels"], atol=1e-4, rtol=0)
    embedding = net.embed(pixels)
    torch.testing.assert_close(embedding[0, ::16, ::4, ::4], known["embedding"], atol=1e-4, rtol=0)
    agree(net.decode(embedding, known["input_points"][None]), known, "points")
    agree(net.decode_box(embedding, known["input_box"].reshape(1, 4)), known, "box")


def agree(masks: Masks, known: dict[str, torch.Tensor], prompt: str) -> None:
    logits = known[f"{prompt}_logits"]  # stored in half precision
    off = (masks.logits[0] - logits).abs().max() / (logits.max() - logits.min())
    assert off < 1e-3
    torch.testing.assert_close(masks.quality[0], known[f"{prompt}_iou"], atol=1e-3, rtol=0)
