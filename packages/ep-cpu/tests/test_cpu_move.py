"""Operators that place elements elsewhere: the writing form against the returning form."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from cpu_nodes import Case, arrays, shapes
from hypothesis import given
from hypothesis import strategies as st

RANKED = shapes.filter(len)
DTYPES = st.sampled_from(["float32", "int64", "bool", "float16", ml_dtypes.bfloat16])


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


@given(data=st.data(), dtype=DTYPES)
def test_transpose(data: st.DataObject, dtype: str) -> None:
    x = data.draw(arrays(shapes, dtype))
    Case("Transpose", 21, x, perm=data.draw(st.permutations(range(x.ndim)))).check()


@given(data=st.data(), dtype=DTYPES, count=st.integers(1, 3))
def test_concat(data: st.DataObject, dtype: str, count: int) -> None:
    shape = list(data.draw(RANKED))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(count):
        shape[axis] = data.draw(st.integers(1, 4))
        parts.append(data.draw(arrays(shape, dtype)))
    Case("Concat", 13, *parts, axis=axis).check()


@given(data=st.data())
def test_split(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    x = data.draw(arrays((2, sum(lengths), 3)))
    count = len(lengths)
    Case("Split", 18, x, ints(*lengths), outputs=count, axis=1).check()
    Case("Split", 2, x, outputs=count, axis=-2, split=lengths).check()
    if len(set(lengths)) == 1:
        Case("Split", 18, x, outputs=count, axis=1, num_outputs=count).check()


@given(data=st.data(), dtype=DTYPES)
def test_slice(data: st.DataObject, dtype: str) -> None:
    x = data.draw(arrays(RANKED, dtype))
    axes = data.draw(st.lists(st.integers(0, x.ndim - 1), unique=True, min_size=1))
    bound = st.integers(-8, 8) | st.sampled_from([2**62, -(2**62)])
    starts, ends = ([data.draw(bound) for _ in axes] for _ in range(2))
    steps = [data.draw(st.sampled_from([1, 2, -1, -3])) for _ in axes]
    negative = [a - x.ndim if data.draw(st.booleans()) else a for a in axes]
    case = Case("Slice", 13, x, ints(*starts), ints(*ends), ints(*negative), ints(*steps), constant=[1, 2, 3, 4])
    if 0 not in case.returned()[0].shape:
        case.check()


def test_slice_by_attribute() -> None:
    Case("Slice", 1, np.arange(24.0).reshape(4, 6), starts=[1, -4], ends=[3, 99], axes=[0, 1]).check()


def test_slice_with_bounds_of_the_run_returns() -> None:
    case = Case("Slice", 13, np.arange(6.0), ints(1), ints(3))
    assert case.bind(case.returned()) is None


@given(data=st.data())
def test_expand(data: st.DataObject) -> None:
    x = data.draw(arrays(shapes))
    target = tuple(data.draw(st.integers(1, 3)) if n == 1 else n for n in x.shape)
    Case("Expand", 13, x, ints(*data.draw(st.sampled_from([target, (2, *target)]))), constant=[1]).check()


def test_expand_to_a_shape_of_the_run_returns() -> None:
    """Inference gives (3, 4) for any target of two dimensions; only the run can refuse (2, 2)."""
    case = Case("Expand", 13, np.zeros((3, 4)), ints(3, 4))
    assert case.bind(case.returned()) is None


@given(data=st.data())
def test_tile(data: st.DataObject) -> None:
    x = data.draw(arrays(shapes))
    Case("Tile", 13, x, ints(*[data.draw(st.integers(1, 3)) for _ in x.shape])).check()


@pytest.mark.parametrize("mode", ("constant", "edge", "reflect", "wrap"))
@given(data=st.data())
def test_pad(mode: str, data: st.DataObject) -> None:
    x = data.draw(arrays(RANKED))
    pads = [data.draw(st.integers(0, 7)) for _ in range(2 * x.ndim)]
    value = [np.float32(2.5)] if data.draw(st.booleans()) else []
    Case("Pad", 21, x, ints(*pads), *value, constant=[1], mode=mode).check()
    Case("Pad", 21, x, ints(2, 1), None, ints(-1), constant=[1, 3], mode=mode).check()


def test_pad_by_attribute() -> None:
    Case("Pad", 2, np.arange(6.0).reshape(2, 3), pads=[1, 0, 0, 2], value=1.5).check()


def test_pad_that_crops_returns() -> None:
    case = Case("Pad", 21, np.arange(6.0), ints(-1, 2), constant=[1])
    assert case.bind(case.returned()) is None


@pytest.mark.parametrize("mode", ("DCR", "CRD"))
def test_depth_and_space(mode: str) -> None:
    x = np.arange(2 * 8 * 3 * 4, dtype=np.float32).reshape(2, 8, 3, 4)
    Case("DepthToSpace", 13, x, blocksize=2, mode=mode).check()
    Case("SpaceToDepth", 13, x.reshape(2, 8, 4, 3)[..., :2].copy(), blocksize=2).check()


@given(data=st.data(), dtype=DTYPES, constant=st.booleans(), index=st.sampled_from([np.int32, np.int64]))
def test_gather(data: st.DataObject, dtype: str, constant: bool, index: type) -> None:
    x = data.draw(arrays(RANKED, dtype))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    place = st.integers(-x.shape[axis], x.shape[axis] - 1)
    indices = np.array(data.draw(place | st.lists(place, min_size=1) | st.lists(st.tuples(place, place), min_size=1)))
    Case("Gather", 13, x, indices.astype(index), axis=axis, constant=[1] if constant else []).check()


@pytest.mark.parametrize("index", (3, -4))
def test_gather_out_of_range(index: int) -> None:
    x = np.arange(3.0)
    fits = Case("Gather", 13, x, ints(0, 1))
    bound = fits.bind(fits.returned())
    assert bound is not None
    with pytest.raises(IndexError, match="must be within the inclusive range"):
        bound.call(x, ints(0, index), np.empty(2))
    assert Case("Gather", 13, x, ints(0, index), constant=[1]).bind([np.empty(2)]) is None
