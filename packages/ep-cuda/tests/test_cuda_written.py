"""Operators whose launches are described for any device: what they compute (in their OpenCL dialect, on PoCL), and when they are left to
CuPy."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from job_models import NARROW, Node, close, draw, on_opencl

from onnxplug.contract import TensorSpec
from onnxplug_ep_cuda.codegen.launch import Call, Job
from onnxplug_ep_cuda.codegen.table import ALONE, COUNTED, LOWERINGS
from onnxplug_kernel_text.nodes.suppression import largest

RNG = np.random.default_rng
MS = "com.microsoft"


def scatter(
    join: str, axis: int, shape: tuple[int, ...], places: tuple[int, ...], dtype: Any, *, apart: bool = True
) -> Node:
    """ScatterElements; ``apart``: no two updates meet."""
    rng, extent = RNG(len(shape)), shape[axis]
    indices = (
        np.argsort(rng.random(shape), axis)
        if apart
        else rng.integers(0, extent, shape)
    )  # fmt: skip
    indices = np.ascontiguousarray(indices[tuple(slice(n) for n in places)])
    indices = np.where(indices % 2, indices, indices - extent)  # some counted from the end
    inputs = [draw(rng, shape, dtype), indices, draw(rng, places, dtype)]
    return Node("ScatterElements", 18, inputs, {"axis": axis, "reduction": join})


def scatter_nd(join: str, shape: tuple[int, ...], depth: int, count: int, dtype: Any, *, twice: bool = False) -> Node:
    """ScatterND of distinct tuples, or each of them twice."""
    rng = RNG(depth)
    flat = rng.permutation(int(np.prod(shape[:depth])))[:count]
    places = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1)
    if twice:
        places = np.concatenate([places, places])
    inputs = [draw(rng, shape, dtype), places, draw(rng, (len(places), *shape[depth:]), dtype)]
    return Node("ScatterND", 18, inputs, {"reduction": join})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("join", ["none", "add", "mul", "max", "min"])
def test_updates_are_put_and_joined(join: str, dtype: str) -> None:
    type_, meet = NARROW[dtype], join != "none" and dtype == "float32"  # each sum is rounded to the type
    for axis, shape, places in ((0, (5, 40), (3, 30)), (1, (4, 7, 3), (4, 7, 2)), (0, (600,), (300,))):
        close(scatter(join, axis, shape, places, type_, apart=not meet), 64)
    for shape, depth, count in (((6, 5, 9), 1, 4), ((6, 50), 2, 200), ((300,), 1, 120)):
        close(scatter_nd(join, shape, depth, count, type_, twice=meet), 64)


def test_updates_of_integers_and_none_at_all() -> None:
    close(scatter("none", 1, (3, 50), (3, 20), np.int64))
    close(scatter("add", 0, (50,), (30,), np.uint8, apart=False))
    x, none = draw(RNG(0), (4, 6)), np.zeros((0, 6), np.int64)
    close(Node("ScatterElements", 18, [x, none, none.astype(np.float32)]))
    close(Node("ScatterND", 18, [x, np.zeros((0, 1), np.int64), np.zeros((0, 6), np.float32)]))


def test_an_update_out_of_bounds_is_left_out_and_told_of() -> None:
    inputs = [np.zeros(4, np.float32), np.array([1, 7, -9]), np.ones(3, np.float32)]
    assert left(ALONE["", "ScatterElements"][1], Node("ScatterElements", 18, inputs), [(4,)]) == [0, 1, 0, 0]


def left(lower: Any, node: Node, shapes: list[tuple[int, ...]]) -> list[float]:
    """The first output of a node whose kernels tell of an error, flat."""
    inputs, told = node.inputs, list[int]()
    assert inputs[0] is not None
    outputs = [TensorSpec(inputs[0].dtype, shape) for shape in shapes]
    specs = [None if x is None else TensorSpec(x.dtype, x.shape) for x in inputs]
    job = lower(Call(node.op_type, node.version, node.attributes, specs, outputs))
    got = on_opencl(job, inputs, outputs, told=told)[0]
    assert got is not None and told == [1]
    flat: list[float] = got.reshape(-1).tolist()
    return flat


def gathers(dtype: Any) -> list[Node]:
    """Elements and slices by indices, some counted from the end."""
    rng = RNG(11)
    x = draw(rng, (4, 5, 6), dtype)
    nodes = [Node("Gather", 13, [x, rng.integers(-5, 5, (2, 3)).astype(kind)], {"axis": 1}) for kind in "il"]
    nodes.append(Node("Gather", 13, [x, np.array(-2)], {"axis": -1}))
    nodes += [
        Node("GatherElements", 13, [x, rng.integers(-4, 4, (7, 2, 6))]),
        Node("GatherElements", 13, [x[0, 0], np.array([5, -6])]),
    ]
    tuples = np.stack([rng.integers(-n, n, (4, 3)) for n in (5, 6)], -1)
    nodes += [Node("GatherND", 13, [x, tuples[..., :depth].copy()], {"batch_dims": 1}) for depth in (1, 2)]
    return [*nodes, Node("GatherND", 1, [x, np.array([[3, -1, 0], [-4, 2, 5]])], domain=MS)]


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.complex64])
def test_elements_and_slices_are_gathered(dtype: Any) -> None:
    for node in gathers(np.float32):
        inputs = [np.asarray(node.inputs[0]).astype(dtype), *node.inputs[1:]]
        each = Node(node.op_type, node.version, inputs, node.attributes, domain=node.domain)
        (got,), (right,) = each.results(), each.wanted()
        np.testing.assert_array_equal(got, np.asarray(right).astype(dtype))


def test_an_index_out_of_bounds_gives_zeros_and_is_told_of() -> None:
    x = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    for beyond in (2, -3, 2**62):
        node = Node("Gather", 13, [x, np.array([1, beyond])])
        assert left(LOWERINGS["", "Gather"], node, [(2, 3)]) == [4, 5, 6, 0, 0, 0]
        node = Node("GatherElements", 13, [x, np.array([[1, beyond]])])
        assert left(LOWERINGS["", "GatherElements"], node, [(1, 2)]) == [4, 0]
        node = Node("GatherND", 13, [x, np.array([[1, 2], [beyond, 0]])])
        assert left(LOWERINGS["", "GatherND"], node, [(2,)]) == [6, 0]


def test_gathers_of_wide_elements_and_of_what_does_not_go_together_are_left_to_the_function() -> None:
    x = np.zeros((4, 5), np.complex128)
    assert Node("Gather", 13, [x, np.array([1])]).job() is None
    assert Node("GatherElements", 13, [x, np.array([[1]])]).job() is None
    assert Node("GatherND", 13, [x, np.array([[1]])]).job() is None
    outputs, f32 = [TensorSpec(np.dtype(np.float32), (1, 6))], np.dtype(np.float32)
    for op, given, places in (("Gather", {"axis": 2}, (1,)), ("GatherElements", {}, (1, 6)), ("GatherND", {}, (1, 3))):
        specs = [TensorSpec(f32, (4, 5)), TensorSpec(np.dtype(np.int64), places)]
        assert LOWERINGS["", op](Call(op, 13, given, specs, outputs)) is None


def test_a_length_beyond_the_steps_is_told_of() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    node = Node("ReverseSequence", 28, [x, np.array([4, -1])])
    assert left(LOWERINGS["", "ReverseSequence"], node, [(3, 2)]) == [4, 1, 2, 3, 0, 5]


def boxes(images: int, classes: int, n: int, centred: int) -> list[np.ndarray]:
    """Boxes on a coarse grid, so that many overlap by the same part, some without area; scores among which many are equal."""
    rng = RNG(n)
    sides = rng.integers(0, 6, (images, n, 4)).astype(np.float32) / (1 if centred else 2)
    return [sides, rng.integers(0, 9, (images, classes, n)).astype(np.float32) / 8]


@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1, 6), (2, 3, 700), (1, 2, 0)])
def test_boxes_that_remain(shape: tuple[int, int, int], centred: int) -> None:
    given = boxes(*shape, centred)
    if shape[2] > 6:
        given[1][0, 0, :3] = np.nan
    for most, overlap, least in ((3, 0.5, 0.3), (1000, 0.0, None), (0, 0.5, 0.5), (1000, 1.0, 0.9)):
        found = Suppression.of(given, most, overlap, least, centred)
        (right,) = found.wanted()
        job = found.job()
        if job is not None and not job.launches:
            assert right is not None and len(right) == 0
            continue
        np.testing.assert_array_equal(found.kept(), right)


class Counted(Node):
    """A node whose kernels have room for the longest result, and tell how long it is."""

    def longest(self, specs: list[TensorSpec | None]) -> TensorSpec:
        """The longest result."""
        return COUNTED[self.domain, self.op_type][1](SimpleNamespace(attributes=self.attributes), specs)  # type: ignore[arg-type]

    def call(self) -> Call:
        """See above."""
        specs = [
            None if x is None else TensorSpec(x.dtype, x.shape, x if n in self.hosted else None)
            for n, x in enumerate(self.inputs)
        ]
        outputs = [self.longest(specs), TensorSpec(np.dtype(np.int64), (1,))]
        return Call(self.op_type, self.version, self.attributes, specs, outputs)

    def job(self) -> Job | None:
        """See above."""
        lower = COUNTED[self.domain, self.op_type][0] if (self.domain, self.op_type) in COUNTED else None
        return super().job() if lower is None else lower(self.call())

    def axis(self, rank: int) -> int:
        """The dimension that is counted."""
        return COUNTED[self.domain, self.op_type][2](SimpleNamespace(attributes=self.attributes), rank)  # type: ignore[arg-type]

    def kept(self, results: list[np.ndarray | None] | None = None) -> np.ndarray:
        """The result as it is handed on, by default of OpenCL's."""
        made, total = self.results() if results is None else results
        assert made is not None and total is not None
        axis = self.axis(made.ndim)
        shape = (*made.shape[:axis], int(total[0]), *made.shape[axis + 1 :])
        kept: np.ndarray = made.reshape(-1)[: math.prod(shape)].reshape(shape)
        return kept


class Suppression(Counted):
    """NonMaxSuppression."""

    @classmethod
    def of(cls, given: list[np.ndarray], most: int, overlap: float, least: float | None, centred: int) -> Suppression:
        """A node with these limits."""
        limits = [np.array([most]), np.array([overlap], np.float32)]
        limits += [] if least is None else [np.array([least], np.float32)]
        attributes = {"center_point_box": centred}
        return cls("NonMaxSuppression", 11, [*given, *limits], attributes, hosted=(2, 3, 4))

    def longest(self, specs: list[TensorSpec | None]) -> TensorSpec:
        """See above."""
        return largest(None, specs)  # type: ignore[arg-type]

    def axis(self, rank: int) -> int:
        """See above."""
        return 0


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (9,), (0, 3), (5, 7, 11), (700, 60)])
def test_places_that_are_not_zero(shape: tuple[int, ...], dtype: str) -> None:
    found = places(shape, np.dtype(NARROW.get(dtype, dtype)))
    job = found.job()
    assert job is not None and bool(job.launches) == (0 not in shape)
    if job.launches:
        np.testing.assert_array_equal(found.kept(), found.wanted()[0])


def places(shape: tuple[int, ...], dtype: Any) -> Counted:
    """NonZero."""
    rng = RNG(len(shape))
    return Counted("NonZero", 13, [np.where(rng.random(shape) < 0.3, rng.integers(1, 9, shape), 0).astype(dtype)])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("more", [-2, 0, 3])
def test_slices_under_a_condition(axis: int | None, more: int) -> None:
    found = slices((4, 5, 6), axis, more, np.float32)
    np.testing.assert_array_equal(found.kept(), found.wanted()[0])


def test_slices_of_nothing_and_of_none() -> None:
    found = slices((5, 0), 0, 0, np.int8)
    assert found.kept().shape == np.shape(found.wanted()[0])
    job = slices((0, 5), 0, 0, np.int8).job()
    assert job is not None and not job.launches


def slices(shape: tuple[int, ...], axis: int | None, more: int, dtype: Any) -> Counted:
    """Compress by a condition that is so much longer than the axis."""
    rng, extent = RNG(8), math.prod(shape) if axis is None else shape[axis]
    attributes = {} if axis is None else {"axis": axis}
    return Counted("Compress", 11, [draw(rng, shape, dtype), rng.random(max(extent + more, 0)) < 0.5], attributes)


def test_many_elements_complex_numbers_and_wide_ones_are_left_to_cupy() -> None:
    many = np.broadcast_to(np.float32(0), (1 << 11, 1 << 10))
    assert Counted("NonZero", 13, [many]).job() is None
    assert places((3, 3), np.complex64).job() is None
    assert slices((3, 3), 0, 0, np.complex128).job() is None
    assert slices((3, 3), 0, 0, np.complex64).job() is not None  # moved as bits


REGIONS = np.array([[0, 0, 9, 6], [2.25, 1.5, 3.125, 1.75], [-9, -3, 30, 30], [5, 5, 5, 5], [7, 4, 2, 1]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("version", [10, 16])
def test_regions_are_sampled(version: int, mode: str, dtype: str) -> None:
    for sampling in (0, 3):
        close(regions(version, mode, sampling, NARROW[dtype]), 64)


def regions(version: int, mode: str, sampling: int, dtype: Any) -> Node:
    """RoiAlign."""
    attributes = {
        "mode": mode,
        "output_height": 3,
        "output_width": 4,
        "sampling_ratio": sampling,
        "spatial_scale": 0.75,
    }
    inputs = [draw(RNG(9), (3, 5, 7, 11), dtype), REGIONS.astype(dtype), np.array([0, 2, 1, 1, 0])]
    return Node("RoiAlign", version, inputs, attributes)


def test_bins_of_no_image_and_of_no_region_are_zero_and_told_of() -> None:
    inputs = [np.ones((2, 1, 4, 4), np.float32), np.ones((3, 4), np.float32), np.array([2, -1, 1])]
    inputs[1][2] = np.inf
    assert left(LOWERINGS["", "RoiAlign"], Node("RoiAlign", 16, inputs), [(3, 1, 1, 1)]) == [0, 0, 0]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("mode", "padding"), [("linear", "zeros"), ("nearest", "border"), ("cubic", "reflection")])
def test_images_are_sampled(mode: str, padding: str, dtype: str) -> None:
    close(sampled(mode, padding, dtype), 64)


def sampled(mode: str, padding: str, dtype: str) -> Node:
    """GridSample of places beyond the image, too."""
    rng, type_ = RNG(3), NARROW[dtype]
    grid = (rng.standard_normal((2, 4, 5, 2)) * 0.8).astype(np.float32).astype(type_)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": 0}
    return Node("GridSample", 22, [draw(rng, (2, 3, 6, 7), type_), grid], attributes)


@pytest.mark.parametrize("largest", [0, 1])
def test_the_first_of_many_lines(largest: int) -> None:
    found = firsts(largest, np.float32)
    rng = RNG(1)
    close(found)
    x = draw(rng, (5000, 90), np.int32)
    close(Node("TopK", 24, [x, np.array([4])], {"largest": largest}, (True, True), hosted=(1,)))
    assert Node("TopK", 24, [x, np.array([60])], {}, (True, True), hosted=(1,)).job() is None
    assert Node("TopK", 24, [x[:100], np.array([4])], {}, (True, True), hosted=(1,)).job() is None
    assert Node("TopK", 24, [x, np.array([4])], {}, (True, True)).job() is None  # a number that a run decides


def firsts(largest: int, dtype: Any) -> Node:
    """TopK along the middle of three axes, with equal elements."""
    x = draw(RNG(2), (60, 20, 70), np.int32).astype(dtype)
    return Node("TopK", 24, [x, np.array([3])], {"axis": 1, "largest": largest}, (True, True), hosted=(1,))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_sequences_are_turned_round(dtype: str) -> None:
    type_ = NARROW.get(dtype, np.int64)
    x, lengths = draw(RNG(4), (7, 5, 3), type_), np.array([0, 1, 7, 4, 2])
    close(Node("ReverseSequence", 28, [x, lengths], {"time_axis": 0, "batch_axis": 1}))
    close(Node("ReverseSequence", 28, [x[:, :, 0].T.copy(), lengths], {"time_axis": 1, "batch_axis": 0}))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_value_among_others(axis: int) -> None:
    places = np.array([[0, 4, -1], [9, 2, -9]])
    close(Node("OneHot", 11, [places, np.array([5]), np.array([2, 7], np.float32)], {"axis": axis}, hosted=(1,)))
    complex_ = np.array([2, 7], np.complex128)
    assert Node("OneHot", 11, [places, np.array([5]), complex_], {"axis": axis}, hosted=(1,)).job() is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1, 2])
def test_lines_of_length_one(p: int, dtype: str) -> None:
    x = draw(RNG(5), (4, 50, 3), NARROW[dtype])
    x[1, :, 2] = 0
    close(Node("LpNormalization", 22, [x], {"axis": 1, "p": p}))
    close(Node("LpNormalization", 22, [x[:, :, 0].copy()], {"p": p}))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_whole_images_and_neighbouring_channels(dtype: str) -> None:
    x = draw(RNG(6), (2, 7, 9, 8), NARROW[dtype])
    close(Node("GlobalAveragePool", 22, [x]))
    close(Node("GlobalMaxPool", 22, [x]))
    for p in (1, 2):
        close(Node("GlobalLpPool", 22, [x], {"p": p}), 64)
    assert Node("GlobalLpPool", 22, [x], {"p": 3}).job() is None
    close(Node("LRN", 13, [x], {"size": 3, "alpha": 0.1}), 64)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_columns_in_images(dtype: str) -> None:
    close(columns(NARROW.get(dtype, np.int64)), 64)


def columns(dtype: Any) -> Node:
    """Col2Im of blocks that overlap."""
    given = {"strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}
    x = draw(RNG(10), (2, 12, 18), dtype)
    return Node("Col2Im", 18, [x, np.array([5, 6]), np.array([2, 2])], given, hosted=(1, 2))


def hybrids(dtype: str) -> list[Node]:
    """Operators of hybrid language models."""
    rng, type_ = RNG(8), NARROW[dtype]
    both, heads = (True, True), {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "gated_delta"}
    q, k, v, decay, beta = (draw(rng, (2, 3, n), type_) for n in (24, 12, 20, 12, 2))
    decay = (-np.abs(decay)).astype(type_)
    states = [draw(rng, shape, type_) for shape in ((2, 2, 6, 10), (4, 2, 2, 6, 10))]
    nodes = [
        Node("LinearAttention", 27, [q, k, v, states[0], decay, beta / 8], heads, both),
        Node(
            "LinearAttention", 1, [q, k, v, states[1], decay[..., :2], beta / 8], {**heads, "state_window": 4}, both, MS
        ),
        Node("LinearAttention", 1, [q, k, v], {**heads, "update_rule": "linear"}, both, MS),
        Node("GatedRMSNorm", 1, [q, v[0, 0, :8].copy(), q], {}, (True,), MS),
        Node("LinearAttentionGate", 1, [q, *(draw(rng, (24,)) for _ in range(2)), q], {}, both, MS),
    ]
    angles = [draw(rng, (9, 6), type_) for _ in range(2)]
    for layout in (0, 1):
        places, given = rng.integers(0, 9, (3, 2, 3)), {"mrope_section": [3, 2, 1], "mrope_layout": layout}
        nodes.append(Node("MRotaryEmbedding", 1, [q, places, *angles], given, (True,), MS))
    x, w, bias = (draw(rng, shape, type_) for shape in ((2, 5, 4), (5, 1, 3), (5,)))
    past = draw(rng, (2, 5, 2), type_)
    last: dict[str, Any] = {"channels_last": 1, "activation": "silu"}
    nodes.append(Node("CausalConvWithState", 27, [x, w, bias, past], {}, both))
    turned = [x.transpose(0, 2, 1).copy(), w, bias, past.transpose(0, 2, 1).copy()]
    nodes += [Node("CausalConvWithState", 1, turned[:n], last, both, MS) for n in (2, 4)]
    ids, tables = np.array([[3, 0], [1, 4]], np.int32), [draw(rng, (n, 40), np.uint8) for n in (5, 2, 3)]
    parameters = [*(np.float32([0.1 * n]) for n in range(1, 6)), *(np.uint8([n]) for n in range(5))]
    lines = [draw(rng, (40,), np.uint8) for _ in range(2)]
    nodes.append(Node("QEmbedLayerNormalization", 1, [ids, ids % 3, *tables, *lines, None, *parameters], {}, both, MS))
    return nodes


def mixtures(dtype: str) -> list[Node]:
    """Mixtures of experts."""
    rng, type_ = RNG(9), NARROW[dtype]
    x, scores, first, second = (draw(rng, shape, type_) for shape in ((6, 16), (6, 3), (3, 8, 16), (3, 16, 8)))
    biases = [draw(rng, shape, type_) for shape in ((3, 8), (3, 16))]
    wide = [x, scores, first, biases[0], second, biases[1]]
    nodes = [Node("MoE", 1, [*wide, first], {"k": 2, "activation_type": "silu"}, (True,), MS)]
    nodes.append(Node("MoE", 1, [x, scores, first, None, second], {"k": 2, "use_sparse_mixer": 1}, (True,), MS))
    for bits in (2, 4, 8):
        packed = [draw(rng, (3, n, depth * bits // 8), np.uint8) * 27 for n, depth in ((16, 16), (16, 8))]
        scales = [(draw(rng, (3, n, depth // 8)) / 2**bits).astype(type_) for n, depth in ((16, 16), (16, 8))]
        zeros = [draw(rng, (3, n, -(-depth // 8 * bits // 8)), np.uint8) for n, depth in ((16, 16), (16, 8))]
        given = [x, scores, packed[0], scales[0], None, packed[1], scales[1], *[None] * 4, *zeros]
        attributes = {"k": 1, "expert_weight_bits": bits, "block_size": 8, "activation_type": "swiglu"}
        nodes.append(Node("QMoE", 1, given, attributes, (True,), MS))
    return nodes


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("make", [hybrids, mixtures])
def test_operators_of_hybrid_models(make: Any, dtype: str) -> None:
    for node in make(dtype):
        close(node, 64 if dtype == "float32" else 256)


def every_written() -> list[Node]:
    """A node for each kernel text of these."""
    rng, nodes = RNG(7), [*hybrids("float32"), *mixtures("float16"), *gathers(np.float16)]
    for join in ("none", "add", "mul", "max", "min"):
        nodes += [
            scatter(join, 1, (4, 7, 3), (4, 7, 2), t, apart=apart)
            for t, apart in ((np.float16, True), (np.int32, join == "none"))
        ]
        nodes += [scatter_nd(join, (6, 5, 9), depth, 4, np.float32) for depth in (1, 2)]
    nodes.append(Node("Scatter", 9, scatter("none", 0, (5, 4), (2, 3), np.float32).inputs))
    for centred in (0, 1):
        nodes += [Suppression.of(boxes(1, 2, 9, centred), 3, 0.5, least, centred) for least in (None, 0.2)]
    for mode in ("linear", "nearest", "cubic"):
        nodes += [sampled(mode, padding, "float16") for padding in ("zeros", "border", "reflection")]
    nodes += [regions(16, mode, 0, t) for mode in ("avg", "max") for t in NARROW.values()]
    nodes += [places((4, 5, 6)[:rank], t) for rank in (1, 3) for t in (np.float16, np.uint8)]
    nodes += [slices((4, 5, 6), axis, 0, t) for axis, t in ((None, np.float64), (1, np.int8))]
    nodes += [firsts(n, t) for n in (0, 1) for t in (np.float32, np.int64)]
    x = draw(rng, (4, 5, 30), np.float32)
    nodes += [Node("ReverseSequence", 28, [x, np.array([1, 4, 0, 2, 3])])]
    nodes += [Node("OneHot", 11, [np.arange(4), np.array([5]), x[0, 0, :2].copy()], hosted=(1,))]
    nodes += [Node("LpNormalization", 22, [x], {"axis": axis, "p": p}) for axis in (1, 2) for p in (1, 2)]
    nodes += [Node(op, 22, [x]) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")]
    nodes += [columns(t) for t in (np.float16, np.uint8)]
    return [*nodes, Node("LRN", 13, [x[None]], {"size": 3})]
