"""What kernels say of operands that do not fit: the words of onnxruntime where it has the operator, never NumPy's of its own arrays."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from onnxplug_kernels.catalogue import entries
from onnxplug_kernels.refusals import Refusal

ONE, ZERO = np.ones((), np.float32), np.zeros((), np.uint8)


def f(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def u(*shape: int) -> np.ndarray:
    return np.ones(shape, np.uint8)


CASES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Col2Im", [f(1, 7, 5), i(5, 5), i(1, 5)], {}, "dim[1] (7) must be a positive multiple of prod(block_shape) (5)"),
    ("Col2Im", [f(1, 5, 4), i(5, 5), i(1, 5)], {}, "dim[2] (4) does not match the number of sliding blocks (5)"),
    ("Col2Im", [f(1, 5, 5), i(5, 5), i(1, 9)], {}, "smaller than the dilated kernel for spatial dimension 1"),
    ("GatherND", [f(2, 2), np.zeros((1, 3), np.int64)], {}, "last dimension of indices must not be larger than rank"),
    ("GatherND", [f(2, 2, 2), np.zeros((3, 1), np.int64)], {"batch_dims": 1}, "{3,1} and data {2,2,2} differ in their first 1"),
    ("QLinearConv", [u(1, 3, 5, 5), ONE, ZERO, u(2, 3, 3, 3), ONE, ZERO, ONE, ZERO, i(1, 2, 3)], {}, "each of 2 channels has shape {3}"),
    ("QLinearConv", [u(1, 3, 5, 5), ONE, ZERO, u(2, 3, 3, 3), f(3), ZERO, ONE, ZERO], {}, "each of 2 channels has shape {3}"),
    ("QLinearConv", [u(1, 3, 5, 5), ONE, ZERO, u(2, 3, 3, 3), ONE, u(3), ONE, ZERO], {}, "{3} are not one for each of 2 channels"),
    ("BatchNormalization", [f(2, 3, 4), f(2), f(3), f(3), f(3)], {}, "Invalid input scale: 0th dimension != 3"),
    ("BatchNormalization", [f(2, 3, 4), f(3), f(3), f(2), f(3)], {"training_mode": 1}, "Invalid input mean: 0th dimension != 3"),
    ("DepthToSpace", [f(1, 5, 2, 2)], {"blocksize": 2}, "requires input depth to be a multiple of"),
    ("SpaceToDepth", [f(1, 5, 3, 2)], {"blocksize": 2}, "requires input height to be a multiple of block_size"),
    ("Adagrad", [ONE, i(0), f(2), f(3), f(2)], {}, "input 3 has shape {3}, its tensor {2}"),
    ("TensorScatter", [f(2, 3, 5, 4), f(2, 3, 2, 4), i(0, 4)], {},
        "write_indices[1] + sequence_length (4 + 2) exceeds max_sequence_length (5)"),
    ("TensorScatter", [f(2, 3, 5, 4), f(2, 3, 2, 4), i(-1, 0)], {}, "write_indices[0] = -1 is negative"),
    ("TensorScatter", [f(2, 3, 5, 4), f(2, 3, 6, 4), i(0, 0)], {}, "update sequence_length (6) exceeds max_sequence_length (5)"),
    ("MatMulNBits", [f(2, 4), u(3, 1, 8), f(3, 1), None, i(0, 0, -1, 0)], {"K": 4, "N": 3, "block_size": 16},
        "group_index value at index 2 is -1, which is out of valid range [0, 1)"),
    ("Resize", [f(1, 1, 4, 4), None, None, i(1, 1, 0, 4)], {}, "Scale value should be greater than 0."),
    ("Resize", [f(1, 1, 0, 4), None, None, i(1, 1, 2, 4)], {"keep_aspect_ratio_policy": "not_larger"}, "Input dim is zero"),
    ("Adam", [ONE, i(0), f(2), f(2), f(2)], {}, "3 tensors after rate and count are not 4 for each"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "said"), CASES)
def test_operands_that_do_not_fit(op_type: str, inputs: list[Any], attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(Refusal, match=re.escape(said)):
        max(entries(op_type), key=lambda e: e.since).function(np, *inputs, **attributes)
