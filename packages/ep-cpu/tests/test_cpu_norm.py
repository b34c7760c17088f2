"""Normalisation: the writing form against the returning form."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_nodes import Case, arrays, shapes
from hypothesis import given
from hypothesis import strategies as st

from onnxplug_ep_cpu.kernels import norm

IMAGES = st.lists(st.integers(1, 6), min_size=3, max_size=5).map(tuple)


@pytest.fixture(autouse=True, params=(8, 1 << 16), ids=("small blocks", "whole"))
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norm, "BLOCK", request.param)


@given(data=st.data(), shape=IMAGES, version=st.sampled_from([7, 9, 14, 15]))
def test_batch_normalization(data: st.DataObject, shape: tuple[int, ...], version: int) -> None:
    scale, b, mean, var = (data.draw(arrays((shape[1],))) for _ in range(4))
    x = data.draw(arrays(shape))
    Case("BatchNormalization", version, x, scale, b, mean, np.abs(var), constant=[1, 2, 3, 4]).check(1e-4, 1e-5)


def test_batch_normalization_with_statistics_of_the_run_returns() -> None:
    ones = np.ones(3, np.float32)
    case = Case("BatchNormalization", 15, np.ones((2, 3, 4), np.float32), ones, ones, ones, ones)
    assert case.bind(case.returned()) is None


@given(data=st.data(), shape=IMAGES, biased=st.booleans())
def test_layer_normalization(data: st.DataObject, shape: tuple[int, ...], biased: bool) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    scale, bias = (data.draw(arrays(shape[axis:])) for _ in range(2))
    inputs = [data.draw(arrays(shape)), scale, *([bias] if biased else [])]
    Case("LayerNormalization", 17, *inputs, axis=axis).check(1e-4, 1e-4)


@pytest.mark.parametrize(("op_type", "version"), (("RMSNormalization", 23), ("SimplifiedLayerNormalization", 1)))
@given(data=st.data(), shape=IMAGES)
def test_rms_normalization(op_type: str, version: int, data: st.DataObject, shape: tuple[int, ...]) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    domain = "com.microsoft" if version == 1 else ""
    x, scale = data.draw(arrays(shape)), data.draw(arrays(shape[axis:]))
    Case(op_type, version, x, scale, axis=axis, domain=domain).check(1e-4, 1e-5)


@given(data=st.data(), shape=IMAGES)
def test_instance_normalization(data: st.DataObject, shape: tuple[int, ...]) -> None:
    x, scale, b = data.draw(arrays(shape)), data.draw(arrays((shape[1],))), data.draw(arrays((shape[1],)))
    Case("InstanceNormalization", 22, x, scale, b).check(1e-4, 1e-4)


@given(data=st.data(), shape=IMAGES, size=st.integers(1, 7), beta=st.sampled_from([0.75, 0.5]))
def test_lrn(data: st.DataObject, shape: tuple[int, ...], size: int, beta: float) -> None:
    Case("LRN", 13, data.draw(arrays(shape)), size=size, alpha=0.3, beta=beta, bias=1.5).check()


@pytest.mark.parametrize("op_type", ("Softmax", "LogSoftmax"))
@pytest.mark.parametrize("version", (1, 11, 13))
@given(data=st.data(), dtype=st.sampled_from(["float32", "float64"]))
def test_softmax(op_type: str, version: int, data: st.DataObject, dtype: str) -> None:
    x = data.draw(arrays(shapes.filter(len), dtype))
    axis = data.draw(st.integers(-x.ndim if version > 1 else 0, x.ndim - 1))
    Case(op_type, version, x, axis=axis).check()


def test_lrn_with_the_default_alpha_in_double() -> None:
    Case("LRN", 13, np.full((1, 4, 3), 50.0), size=3, beta=0.75).check(1e-14, 0)


@pytest.mark.parametrize("length", [1, 2, 4, 6])
def test_instance_normalization_refuses_other_lengths(length: int) -> None:
    x, good, bad = np.ones((2, 3, 4), np.float32), np.ones(3, np.float32), np.ones(length, np.float32)
    for vectors in ((bad, good), (good, bad)):
        case = Case("InstanceNormalization", 22, x, *vectors)
        assert case.bind([x]) is None
        with pytest.raises(ValueError, match="3 channels"):
            case.returned()
