"""Cast between types that onnx.reference does not convert at once."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from onnxplug_ep_reference.kernels.conversion import cast_to


@pytest.mark.parametrize(
    "code", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2FNUZ, TensorProto.FLOAT4E2M1]
)
def test_texts_of_few_bits(code: int) -> None:
    x = np.array([0.5, -2.0, 4.0]).astype(tensor_dtype_to_np_dtype(code))
    assert cast_to(x, TensorProto.STRING).tolist() == ["0.5", "-2.0", "4.0"]
    assert np.array_equal(cast_to(np.array(["0.5", "-2", "4e0"], object), code), x)


def test_integers_of_few_bits_lose_their_higher_ones() -> None:
    x = np.array([-8, -3, 5, 7]).astype(tensor_dtype_to_np_dtype(TensorProto.INT4))
    assert cast_to(x, TensorProto.INT2).astype(int).tolist() == [0, 1, 1, -1]
    assert cast_to(x, TensorProto.UINT4).astype(int).tolist() == [8, 13, 5, 7]


def test_doubles_are_rounded_once() -> None:
    tie = 1 + 2.0**-8 + 2.0**-40
    assert float(cast_to(np.array([tie]), TensorProto.BFLOAT16)[0]) == 1 + 2.0**-7
    powers = cast_to(np.array([1 + 2.0**-40, np.inf, 3.0]), TensorProto.FLOAT8E8M0, True, "up")
    assert powers.astype(float).tolist() == [2.0, 2.0**127, 4.0]
