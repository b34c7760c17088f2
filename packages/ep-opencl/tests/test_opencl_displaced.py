"""Convolutions of displaced samples, columns added up in images, largest elements of regions, caches written at indices: against the CPU
provider in float32, and what fits none of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from opencl_models import PROVIDER, needs_device, one_node, run
from test_opencl_attention import EPS, Operands, compare, model

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument

pytestmark = needs_device
HALF = float(np.finfo(np.float16).eps)
ONNX: dict[str, Any] = {"domain": "", "opset": 24}


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("image", "kernel", "out", "given"),
    [
        ((7, 6), (3, 2), (4, 6), {"pads": [1, 0, 1, 1], "strides": [2, 1], "dilations": [1, 1]}),
        ((5, 5), (2, 2), (3, 3), {"dilations": [2, 2], "group": 2, "offset_group": 4}),
        ((6,), (3,), (4,), {"offset_group": 2}),
    ],
)
def test_displaced_windows(
    image: tuple[int, ...], kernel: tuple[int, ...], out: tuple[int, ...], given: dict[str, Any], dtype: Any, form: str
) -> None:
    groups, parts, rank, elements = (
        given.get("group", 1),
        given.get("offset_group", 1),
        len(image),
        int(np.prod(kernel)),
    )
    x, w = normal(2, 4, *image, dtype=dtype), normal(6, 4 // groups, *kernel, dtype=dtype)
    offsets = 3 * normal(2, parts * elements * rank, *out)
    offsets.flat[:3] = -1, 30, -30
    operands: Operands = [x, w, offsets.astype(dtype)]
    tolerance = 64 * (EPS if dtype == np.float32 else HALF)
    compare("DeformConv", operands, tolerance, form=form, domain="", opset=22, **given)
    operands += [normal(6, dtype=dtype), normal(2, parts * elements, *out, dtype=dtype)]
    compare("DeformConv", operands, tolerance, form=form, domain="", opset=22, **given)


def test_displacements_that_are_no_numbers_see_nothing() -> None:
    offsets = np.zeros((1, 2, 2, 2), np.float32)
    offsets[0, 0] = [[np.nan, np.inf], [-np.inf, 3e38]]
    feeds = {"x": np.ones((1, 1, 2, 2), np.float32), "w": np.ones((1, 1, 1, 1), np.float32), "o": offsets}
    (got,) = run(one_node("DeformConv", feeds, 22), feeds)
    assert not got.any()


@pytest.mark.parametrize("form", ["register", "local"])
@pytest.mark.parametrize("empty", [(0, 2, 3, 3), (1, 0, 3, 3)])
def test_displaced_windows_of_nothing(empty: tuple[int, ...], form: str) -> None:
    offsets = np.zeros((empty[0], 8, 2, 2), np.float32)
    operands: Operands = [np.zeros(empty, np.float32), normal(3, empty[1], 2, 2), offsets, normal(3)]
    compare("DeformConv", operands, 0, form=form, domain="", opset=22)


@pytest.mark.parametrize(
    ("position", "shape"),
    [(2, (1, 8, 2, 3)), (2, (1, 6, 2, 2)), (1, (3, 1, 2, 2)), (3, (2,)), (4, (1, 3, 2, 2)), (4, (1, 4, 2, 1))],
)
def test_displaced_windows_that_do_not_fit(position: int, shape: tuple[int, ...]) -> None:
    right = [(1, 2, 3, 3), (3, 2, 2, 2), (1, 8, 2, 2), (3,), (1, 4, 2, 2)]
    operands: Operands = [np.zeros(shape if n == position else s, np.float32) for n, s in enumerate(right)]
    refused("DeformConv", operands, 22)


def test_displaced_windows_of_an_image_without_rows() -> None:
    """What was multiplied then was scratch memory that nobody had written."""
    refused("DeformConv", [normal(1, 2, 0, 3), normal(3, 2, 1, 1), normal(1, 2, 2, 5)], 22, pads=[1, 1, 1, 1])


def refused(op_type: str, operands: Operands, opset: int, **given: Any) -> None:
    """A model whose shapes are open, with these operands."""
    made = onnx.load_from_string(model(op_type, operands, 1, "", given, opset))
    for value in made.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    with pytest.raises((InvalidArgument, Fail)):
        session = ort.InferenceSession(made.SerializeToString(), providers=[PROVIDER])
        session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint64])
@pytest.mark.parametrize(
    ("image", "block", "given"),
    [
        ((5, 6), (2, 3), {}),
        ((5, 6), (2, 2), {"strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}),
        ((7,), (3,), {"pads": [2, 2]}),
        ((3, 4, 2), (2, 2, 1), {"strides": [1, 2, 1]}),
    ],
)
def test_columns_in_images(image: tuple[int, ...], block: tuple[int, ...], given: dict[str, Any], dtype: Any) -> None:
    rank = len(image)
    one = [1] * rank
    pads = given.get("pads", [0] * 2 * rank)
    sizes = zip(
        image, block, given.get("strides", one), given.get("dilations", one), pads[:rank], pads[rank:], strict=True
    )
    places = np.prod([(n + b + e - (k - 1) * g - 1) // s + 1 for n, k, s, g, b, e in sizes])
    x = (8 * normal(2, 3 * int(np.prod(block)), int(places))).astype(dtype)
    feeds = {"x": x, "image": np.array(image), "block": np.array(block)}
    made = one_node("Col2Im", feeds, 18, **given)
    (got,) = run(made, feeds)
    (want,) = ort.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(
        got, want, rtol=4 * HALF if dtype == np.float16 else 8 * EPS if dtype == np.float32 else 0
    )


@pytest.mark.parametrize("shape", [(1, 4, 5), (1, 3, 4), (1, 4, 0)])
def test_columns_that_make_no_images(shape: tuple[int, ...]) -> None:
    feeds = {"x": np.zeros(shape, np.float32), "image": np.array([3, 3]), "block": np.array([2, 2])}
    made = one_node("Col2Im", {**feeds, "x": np.zeros((1, 4, 4), np.float32)}, 18)
    opened = onnx.load_from_string(made)
    for dim in opened.graph.input[0].type.tensor_type.shape.dim:
        dim.Clear()
    del opened.graph.output[0].type.tensor_type.shape.dim[:]
    opened.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises((InvalidArgument, Fail)):
        ort.InferenceSession(opened.SerializeToString(), providers=[PROVIDER]).run(None, {"x": feeds["x"]})


REGIONS = np.array(
    [
        [0, 0, 0, 5, 4],
        [1, 1.5, 0.5, 3.4, 2.6],
        [0, -9, -9, 40, 40],
        [1, 4, 4, 1, 1],
        [0, 9, 9, 12, 12],
        [1, 1e30, 0, -1e30, 3],
    ]
)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_largest_elements_of_regions(scale: float, dtype: Any) -> None:
    regions = np.clip(REGIONS, -9e3, 9e3).astype(dtype) if dtype == np.float16 else REGIONS.astype(dtype)
    operands: Operands = [normal(2, 3, 6, 5, dtype=dtype), regions]
    compare("MaxRoiPool", operands, 0, domain="", opset=22, pooled_shape=[2, 3], spatial_scale=scale)


@pytest.mark.parametrize("image", [2, -1, np.nan, 1e30])
def test_regions_of_no_image(image: float) -> None:
    feeds = {"x": normal(2, 1, 3, 3), "r": np.array([[image, 0, 0, 1, 1]], np.float32)}
    with pytest.raises(Fail, match="an image that there is not"):
        run(one_node("MaxRoiPool", feeds, 22, pooled_shape=[1, 1]), feeds)


@pytest.mark.parametrize("p", [1, 2])
def test_norms_of_images(p: int) -> None:
    compare("GlobalLpPool", [normal(2, 3, 5, 4)], 64 * EPS, domain="", opset=22, p=p)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.bool_])
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1, 3])
def test_caches_written_at_indices(axis: int, mode: str, dtype: Any) -> None:
    cache, update = [3, 5, 6, 7], [3, 5, 6, 7]
    update[axis] = 2
    operands: Operands = [normal(*shape).astype(dtype) for shape in (cache, update)]
    compare("TensorScatter", operands, 0, axis=axis, mode=mode, **ONNX)
    starts = np.array([0, 3, 1] if mode == "linear" else [-9, 4, 2**62])
    compare("TensorScatter", [*operands, starts], 0, axis=axis, mode=mode, **ONNX)


@pytest.mark.parametrize("start", [-1, 4, 2**62, -(2**63)])
def test_updates_beyond_their_cache(start: int) -> None:
    operands: Operands = [np.zeros((2, 5, 3), np.float32), np.ones((2, 2, 3), np.float32), np.array([0, start])]
    session = ort.InferenceSession(model("TensorScatter", operands, 1, "", {}, 24), providers=[PROVIDER])
    with pytest.raises(InvalidArgument, match="does not fit into the cache"):
        session.run(None, {f"x{n}": a for n, a in enumerate(operands) if a is not None})


@pytest.mark.parametrize(
    "shapes", [((2, 5, 3), (2, 6, 3), (2,)), ((2, 5, 3), (2, 1, 4), (2,)), ((2, 5, 3), (2, 1, 3), (1,))]
)
def test_updates_of_other_shapes(shapes: tuple[tuple[int, ...], ...]) -> None:
    cache, update, starts = shapes
    refused(
        "TensorScatter", [np.zeros(cache, np.float32), np.zeros(update, np.float32), np.zeros(starts, np.int64)], 24
    )


WINDOWS: list[tuple[tuple[int, ...], dict[str, list[int]]]] = [
    ((2, 3, 3, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ((1, 2, 3, 2), {"kernel_shape": [2, 3], "strides": [3, 4], "pads": [0, 1, 1, 1]}),
    ((2, 1, 5), {"kernel_shape": [3]}),
    ((1, 2, 2, 1, 3), {"kernel_shape": [2, 1, 2], "strides": [2, 1, 2]}),
    ((0, 3, 2, 2), {"kernel_shape": [2, 2], "strides": [2, 2]}),
]


def unpooled(shape: tuple[int, ...], given: dict[str, list[int]]) -> tuple[int, ...]:
    """The shape in which indices of elements of ``shape`` count."""
    rank = len(shape) - 2
    pads = np.reshape(given.get("pads", [0] * 2 * rank), (2, rank)).sum(0)
    spatial = (np.array(shape[2:]) - 1) * given.get("strides", [1] * rank) + given["kernel_shape"] - pads
    return (*shape[:2], *map(int, spatial))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("more", [None, 0, 2])
@pytest.mark.parametrize(("shape", "given"), WINDOWS)
def test_elements_put_back(shape: tuple[int, ...], given: dict[str, list[int]], more: int | None, dtype: Any) -> None:
    own, x = unpooled(shape, given), normal(*shape, dtype=dtype)
    places = np.random.default_rng(5).permutation(int(np.prod(own)))[: x.size].reshape(shape)
    operands: Operands = [x, places]
    if more is not None:
        operands.append(np.array([*own[:2], *(n + more for n in own[2:])]))
    compare("MaxUnpool", operands, 0, domain="", opset=22, **given)


@pytest.mark.parametrize("place", [-1, 16, 2**62])
def test_elements_put_beyond_the_image(place: int) -> None:
    feeds = {"x": np.ones((1, 1, 2, 2), np.float32), "i": np.array([[[[0, 5], [10, place]]]])}
    session = ort.InferenceSession(
        model("MaxUnpool", list(feeds.values()), 1, "", {"kernel_shape": [2, 2], "strides": [2, 2]}, 22),
        providers=[PROVIDER],
    )
    assert set(session.placement().values()) == {PROVIDER}
    with pytest.raises(InvalidArgument, match="an index is out of bounds"):
        session.run(None, dict(zip(("x0", "x1"), feeds.values(), strict=True)))


@pytest.mark.parametrize(
    ("shapes", "wanted", "window"),
    [
        (((1, 1, 2, 2), (1, 1, 2, 1)), None, [2, 2]),
        (((1, 1, 2, 2), (1, 1, 2, 2)), None, [2]),
        (((1, 1, 2, 2), (1, 1, 2, 2)), [1, 1, 3, 2], [2, 2]),
        (((1, 1, 2, 2), (1, 1, 2, 2)), [1, 3, 3], [2, 2]),
        (((1, 1, 2, 2), (1, 1, 2, 2)), [1, 1, -1, 3], [2, 2]),
    ],
)
def test_elements_that_cannot_be_put_back(
    shapes: tuple[tuple[int, ...], ...], wanted: list[int] | None, window: list[int]
) -> None:
    operands: Operands = [np.zeros(shapes[0], np.float32), np.zeros(shapes[1], np.int64)]
    refused("MaxUnpool", [*operands, *([] if wanted is None else [np.array(wanted)])], 22, kernel_shape=window)


def test_functions_without_kernels_are_taken_as_their_operators() -> None:
    x = normal(2, 3, 4, 6)
    compare("MeanVarianceNormalization", [x], 64 * EPS, domain="", opset=18, axes=[0, 2, 3])
    for batch, rank, owner in ((2, 2, PROVIDER), (1, 3, PROVIDER), (1, 2, "CPUExecutionProvider")):
        theta, size = normal(batch, rank, rank + 1), np.array([batch, 3, *(4, 6, 5)[:rank]])
        made = one_node("AffineGrid", {"theta": theta, "size": size}, 20)
        session = ort.InferenceSession(made, providers=[PROVIDER, "CPUExecutionProvider"])
        (want,) = ort.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, {"theta": theta})
        np.testing.assert_allclose(session.run(None, {"theta": theta})[0], want, rtol=0, atol=32 * EPS)
        assert set(session.placement().values()) == {owner}
