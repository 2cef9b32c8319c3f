import platform

import pytest
import torch

from soundspot.encoders import products as module
from soundspot.encoders.products import product, products

PRODUCTS, ROWS, C_IN, C_OUT = 3, 7, 11, 5


def layouts(rows, columns):
    """One matrix in every layout that a product meets: rows, columns, and cut from a larger one."""
    torch.manual_seed(rows * columns)
    matrix = torch.randn(rows, columns)
    wider = torch.zeros(rows, 2 * columns)
    wider[:, :columns] = matrix
    return matrix, matrix.mT.contiguous().mT, wider[:, :columns]


@pytest.mark.usefixtures("either_library")
def test_a_product_in_every_layout():
    expected = layouts(ROWS, C_IN)[0].double() @ layouts(C_IN, C_OUT)[0].double()
    for a in layouts(ROWS, C_IN):
        for b in layouts(C_IN, C_OUT):
            torch.testing.assert_close(product(a, b).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("either_library")
def test_several_products_at_once():
    a, b = torch.randn(PRODUCTS, ROWS, C_IN), torch.randn(PRODUCTS, C_OUT, C_IN).mT
    torch.testing.assert_close(products(a, b), torch.einsum("tni,tio->tno", a, b))


@pytest.mark.usefixtures("either_library")
def test_other_types_stay_with_torch():
    a, b = (
        torch.randn(ROWS, C_IN, dtype=torch.float64),
        torch.randn(C_IN, C_OUT, dtype=torch.float64),
    )
    assert torch.equal(product(a, b), a @ b)
    assert products(a[None].bfloat16(), b[None].bfloat16()).dtype == torch.bfloat16


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="a torch without oneDNN"
)
@pytest.mark.parametrize(
    ("name", "avx512", "expected"),
    [("AMD EPYC", True, True), ("AMD EPYC", False, False), ("Intel(R) Xeon(R)", True, False)],
)
def test_only_amd_processors_with_avx512_need_onednn(name, avx512, expected, monkeypatch):
    known = {"cpu_name": name, "avx512_f": avx512}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert module._onednn_is_faster.__wrapped__() == expected


@pytest.mark.skipif(platform.machine() != "x86_64", reason="asks for features of x86")
def test_torch_tells_what_the_choice_depends_on():
    if hasattr(torch.cpu, "get_capabilities"):
        assert {"cpu_name", "avx512_f"} <= set(torch.cpu.get_capabilities())
