"""MatMulNBits through sessions against the same product in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opencl_models import PROVIDER, needs_device, run
from test_opencl_attention import MS, model, numbers

import onnxplug as ort

pytestmark = needs_device
COLUMNS, DEPTH, BLOCK = 20, 100, 32
BLOCKS = -(-DEPTH // BLOCK)
EPS = float(np.finfo(np.float32).eps)


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of a few bits from bytes, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[..., None] >> shifts) & (2**bits - 1)).reshape(*packed.shape[:-1], -1)


@pytest.mark.parametrize("rows", [1, 7, 70])
@pytest.mark.parametrize(
    ("bits", "points", "bias", "dtype"),
    [
        (4, "none", False, np.float32),
        (4, "packed", True, np.float32),
        (2, "packed", False, np.float32),
        (8, "floats", True, np.float32),
        (4, "packed", True, np.float16),
    ],
)
def test_products(rows: int, bits: int, points: str, bias: bool, dtype: Any) -> None:
    rng = np.random.default_rng(rows)
    x = numbers(rng, 2, rows, DEPTH, dtype=dtype)
    w = rng.integers(0, 256, (COLUMNS, BLOCKS, BLOCK * bits // 8), np.uint8)
    scales = rng.uniform(0.5, 1, (COLUMNS, BLOCKS)).astype(dtype)
    width = -(-BLOCKS * bits // 8)
    zeros = {
        "none": None,
        "packed": rng.integers(0, 256, (COLUMNS, width), np.uint8),
        "floats": rng.uniform(0, 2**bits, (COLUMNS, BLOCKS)).astype(dtype),
    }[points]
    added = numbers(rng, COLUMNS, dtype=dtype) if bias else None
    operands = [x, w, scales, zeros, None, added]
    if added is None:
        operands = operands[:4] if zeros is not None else operands[:3]
    data = model("MatMulNBits", operands, 1, MS, {"K": DEPTH, "N": COLUMNS, "bits": bits, "block_size": BLOCK}, 21)
    (got,) = run(data, {f"x{n}": a for n, a in enumerate(operands) if a is not None})

    taken = np.full((COLUMNS, BLOCKS), 2.0 ** (bits - 1))
    if points == "packed":
        taken = unpacked(zeros, bits)[:, :BLOCKS].astype(np.float64)
    elif zeros is not None:
        taken = zeros.astype(np.float64)
    weights = (unpacked(w, bits).astype(np.float64) - taken[..., None]) * scales.astype(np.float64)[..., None]
    weights = weights.reshape(COLUMNS, -1)[:, :DEPTH]
    want = x.astype(np.float64) @ weights.T + (0 if added is None else added.astype(np.float64))
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weights).T + 4
    assert (np.abs(got - want) <= (DEPTH + 4) * EPS * magnitude + np.finfo(dtype).eps * np.abs(want)).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("points", [False, True])
def test_rows_of_a_table(bits: int, dtype: Any, points: bool) -> None:
    rng = np.random.default_rng(bits)
    table = rng.integers(0, 256, (COLUMNS, DEPTH * bits // 8), np.uint8)
    scales = rng.uniform(0.5, 1, (COLUMNS, BLOCKS)).astype(dtype)
    zeros = rng.integers(0, 256, (COLUMNS, -(-BLOCKS * bits // 8)), np.uint8)
    operands = [table, np.array([[3, -1, 0], [19, -20, COLUMNS]]), scales, *([zeros] if points else [])]
    data = model("GatherBlockQuantized", operands, 1, MS, {"bits": bits, "block_size": BLOCK}, 21)
    (got,) = run(data, {f"x{n}": a for n, a in enumerate(operands)})
    taken = unpacked(zeros, bits)[:, :BLOCKS] if points else np.full((COLUMNS, BLOCKS), 2 ** (bits - 1))
    exact = unpacked(table, bits) - np.repeat(taken.astype(np.int32), BLOCK, 1)[:, :DEPTH]
    rows = (exact.astype(np.float32) * np.repeat(scales, BLOCK, 1)[:, :DEPTH].astype(np.float32)).astype(dtype)
    assert np.array_equal(got, np.stack([rows[[3, -1, 0]], np.stack([rows[19], rows[0], np.zeros_like(rows[0])])]))


def test_blocks_in_an_order_of_their_own_are_left_to_the_next_provider() -> None:
    x, w, scales = np.ones((1, 32), np.float32), np.zeros((4, 1, 16), np.uint8), np.ones((4, 1), np.float32)
    operands = [x, w, scales, None, np.zeros(32, np.int32)]
    data = model("MatMulNBits", operands, 1, MS, {"K": 32, "N": 4, "bits": 4, "block_size": 32}, 21)
    session = ort.InferenceSession(data, providers=[PROVIDER, "CPUExecutionProvider"])
    assert session.placement() == {"it": "CPUExecutionProvider"}
    assert "operands of type T4 are not taken" in str(session.explain())
