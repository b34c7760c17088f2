"""Comparison of one result with what is expected."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from onnxplug_testkit.check import CheckFailed
from onnxplug_testkit.kernels.compare import compare, snapshot, ulps, unchanged
from onnxplug_testkit.kernels.precision import Precision, precision

EXACT, FOUR = Precision("exact"), Precision("elementary", 4)


def failed(got: object, wanted: object, rule: Precision = EXACT) -> str:
    with pytest.raises(CheckFailed) as caught:
        compare(got, wanted, rule)
    return caught.value.check


def test_aspects() -> None:
    one = np.ones(2, np.float32)
    assert failed(one.astype(np.float64), one) == "kernels.dtype"
    assert failed(one.reshape(1, 2), one) == "kernels.shape"
    assert failed(one * 2, one) == "kernels.values"
    assert failed(one * 0, one * -0.0) == "kernels.signed_zero"
    assert failed(one, one * np.float32(np.nan)) == "kernels.special_values"
    assert failed(one * np.float32(np.inf), one) == "kernels.special_values"
    assert failed(np.array([1, 2]), np.array([1, 3])) == "kernels.values"
    assert failed([one], [one, one]) == "kernels.values"
    assert failed(np.array(["a"], object), np.array(["b"], object)) == "kernels.values"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_ulp(dtype: type) -> None:
    wanted = np.array([1.0, 3.0, -1000.0, 1e-3], dtype)
    units = ulps(wanted.astype(np.float64), wanted.dtype)
    near = (wanted.astype(np.float64) + 3 * units).astype(dtype)
    assert compare(near, wanted, FOUR) == pytest.approx(3)
    assert failed((wanted.astype(np.float64) + 6 * units).astype(dtype), wanted, FOUR) == "kernels.values"


def test_nan_and_infinity_agree() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    assert compare(odd.copy(), odd, EXACT) == 0


def test_a_sum_is_measured_by_its_terms() -> None:
    rule, wanted, got = Precision("sum", 4), np.zeros(1, np.float32), np.full(1, 1e-7, np.float32)
    assert failed(got, wanted, rule) == "kernels.values"
    assert compare(got, wanted, rule, magnitude=np.ones(1)) < 1


def test_quantization_may_be_one_step_off() -> None:
    rule = Precision("scale", step=1)
    assert compare(np.array([4, 5], np.int8), np.array([4, 4], np.int8), rule) == 1
    assert failed(np.array([4, 6], np.int8), np.array([4, 4], np.int8), rule) == "kernels.values"


def test_truth_is_zero_or_one_unless_bits_are_kept() -> None:
    truth, bits = np.array([True, False]), np.array([2, 0], np.uint8).view(np.bool_)
    assert failed(bits, truth) == "kernels.values"
    rule = precision("", "BitCast", 26)
    assert compare(bits, truth, rule) == compare(truth, bits, rule) == 0
    assert failed(~truth, bits, rule) == "kernels.values"


def test_snapshots() -> None:
    values = [np.zeros(3), [np.ones(2)], np.array(["a"], object)]
    before = snapshot(values)
    assert unchanged(before, values)
    values[1][0][0] = 5
    assert not unchanged(before, values)


def test_halves_differ_from_floats() -> None:
    x = np.linspace(0.1, 1, 50, dtype=np.float32)
    assert (
        failed(np.exp(x).astype(np.float16).astype(np.float32), np.exp(x), precision("", "Exp", 13)) == "kernels.values"
    )
