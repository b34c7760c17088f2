"""Generated kernels of single nodes: what they compute (in their OpenCL dialect, on PoCL) against float64, and what is left to CuPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_models import NARROW, Node, close, draw, launches, named, on_opencl
from nvrtc_compile import ARCHITECTURES, assembled, ptx, unfit
from test_cuda_attention import node as attention
from test_cuda_recurrent import every_layer
from test_cuda_written import every_written

from onnxplug_kernel_text.cuda import PRELUDE

RNG = np.random.default_rng
MS = "com.microsoft"
SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled
TYPES = pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])


@TYPES
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(
    ("shape", "axis", "version"),
    [((5, 300), -1, 13), ((4, 7), 1, 13), ((2, 40, 3), 1, 13), ((3, 40, 5), 1, 11), ((130, 64, 64), 1, 13)],
)
def test_softmax(op: str, shape: tuple[int, ...], axis: int, version: int, dtype: str) -> None:
    close(Node(op, version, [draw(RNG(0), shape, NARROW[dtype])], {"axis": axis}))


@SLOW
@given(
    st.sampled_from(
        ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"]
    ),
    st.one_of(st.lists(st.integers(1, 15), min_size=1, max_size=4), st.lists(st.integers(1, 200), min_size=1, max_size=2)),
    st.data(),
)  # fmt: skip
def test_reductions(op: str, shape: list[int], data: st.DataObject) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    keepdims = data.draw(st.integers(0, 1))
    x = draw(RNG(len(shape)), shape, NARROW[data.draw(st.sampled_from(["float32", "float64"]))])
    if data.draw(st.booleans()):
        version = {"ReduceSum": 13, "ReduceMax": 20, "ReduceMin": 20}.get(op, 18)
        node = Node(op, version, [x, np.array(axes, np.int64)], {"keepdims": keepdims}, hosted=(1,))
    else:
        node = Node(op, 1, [x], {"keepdims": keepdims, **({"axes": axes} if axes else {})})
    close(node, 64)  # sums of a few thousand numbers of both signs


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
def test_reductions_of_integers(op: str, dtype: Any) -> None:
    version = {"ReduceSum": 13, "ReduceMax": 20, "ReduceMin": 20, "ReduceProd": 18}[op]
    node = Node(op, version, [draw(RNG(1), (6, 70, 3), dtype), np.array([1])], {}, hosted=(1,))
    if op in ("ReduceSum", "ReduceProd") and dtype in (np.uint8, np.bool_):
        assert node.job() is None  # wrapping in 8 bits is CuPy's
    else:
        close(node)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("shape", [(3, 200), (4, 5, 6), (2, 70, 3)])
def test_places_of_extremes(op: str, last: int, shape: tuple[int, ...]) -> None:
    x = draw(RNG(2), shape, np.int32).astype(np.float32)  # with equals
    close(Node(op, 13, [x], {"axis": 1, "keepdims": 0, "select_last_index": last}))


def test_few_long_lines_and_unknown_axes_are_left_to_cupy() -> None:
    x = np.ones(1 << 17, np.float32)
    assert Node("ReduceSum", 13, [x]).job() is None
    assert Node("ReduceSum", 13, [x.reshape(1024, 128), np.array([1])]).job() is None  # axes that a run decides


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(4, 768), (2, 3, 50), (5, 7)])
def test_layer_normalisation(shape: tuple[int, ...], dtype: str) -> None:
    rng = RNG(3)
    x, scale, bias = (draw(rng, s, NARROW[dtype]) for s in (shape, shape[-1:], shape[-1:]))
    close(Node("LayerNormalization", 17, [x, scale, bias]))
    close(Node("RMSNormalization", 23, [x, scale], {"epsilon": 1e-3}))
    close(Node("SimplifiedLayerNormalization", 1, [x, scale], domain=MS))


def test_statistics_of_layer_normalisation() -> None:
    rng = RNG(4)
    x, scale = draw(rng, (3, 4, 40)), draw(rng, (4, 40))
    close(Node("LayerNormalization", 17, [x, scale], {"axis": 1}, (True, True, True)))
    close(Node("LayerNormalization", 17, [x, scale], {"axis": 1}, (True, False, True)))
    close(Node("SimplifiedLayerNormalization", 1, [x, scale], {"axis": 1}, (True, True)))
    close(Node("LayerNormalization", 17, [x, scale], {"axis": 1}, (True, True)))
    assert Node("LayerNormalization", 17, [x, draw(rng, (40,))], {"axis": 1}).job() is None  # a scale that is broadcast
    double = [x.astype(np.float64), scale.astype(np.float64)]
    assert Node("LayerNormalization", 17, double, {"axis": 1}).job() is None  # statistics are float32


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_channels_and_groups_are_normalised(dtype: str) -> None:
    rng = RNG(5)
    x, four, two = (
        draw(rng, (3, 4, 5, 30), NARROW[dtype]),
        draw(rng, (4,), NARROW[dtype]),
        draw(rng, (2,), NARROW[dtype]),
    )
    close(Node("InstanceNormalization", 22, [x, four, -four]))
    close(Node("GroupNormalization", 21, [x, four, -four], {"num_groups": 2}))
    close(Node("GroupNormalization", 18, [x, two, -two], {"num_groups": 2}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("skip", [(2, 6, 80), (1, 6, 80), (6, 80)])
@pytest.mark.parametrize("outputs", [(True,), (True, False, False, True), (True, True, True, True)])
def test_sums_are_normalised(outputs: tuple[bool, ...], skip: tuple[int, ...], dtype: str) -> None:
    rng = RNG(6)
    x, s = draw(rng, (2, 6, 80), NARROW[dtype]), draw(rng, skip, NARROW[dtype])
    gamma, beta, bias = (draw(rng, (80,), NARROW[dtype]) for _ in range(3))
    close(Node("SkipLayerNormalization", 1, [x, s, gamma, beta, bias], {"epsilon": 1e-5}, outputs, MS))
    close(Node("SkipLayerNormalization", 1, [x, s, gamma], {}, outputs, MS))
    if len(outputs) < 2 or not outputs[1]:
        close(Node("SkipSimplifiedLayerNormalization", 1, [x, s, gamma, bias], {}, outputs, MS))


def rotary(
    dtype: str, shape: tuple[int, ...], places: str, *, partial: bool = False, domain: str = "", **given: int
) -> Node:
    """RotaryEmbedding of (batch, rows, heads * size) or (batch, heads, rows, size)."""
    rng, kind = RNG(8), NARROW[dtype]
    batch, rows = shape[0], shape[1] if len(shape) == 3 else shape[2]
    heads = 2 if len(shape) == 3 else shape[1]
    size = shape[2] // heads if len(shape) == 3 else shape[3]
    half = size // 4 if partial else size // 2
    if partial:
        given["rotary_embedding_dim"] = 2 * half
    where = {
        "none": None, "each": rng.integers(0, 50, (batch, rows)), "first": np.array([7]),
    }[places]  # fmt: skip
    angles = [draw(rng, (50, half) if where is not None else (batch, rows, half), kind) for _ in range(2)]
    x = draw(rng, shape, kind)
    if domain:
        return Node("RotaryEmbedding", 1, [x, where, *angles], {"num_heads": heads, **given}, domain=MS)
    return Node("RotaryEmbedding", 23, [x, *angles, where], {"num_heads": heads, **given})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 9, 48), (2, 3, 9, 16)])
@pytest.mark.parametrize("partial", [False, True])
def test_pairs_are_turned(shape: tuple[int, ...], interleaved: int, partial: bool, dtype: str) -> None:
    for places in ("none", "each"):
        close(rotary(dtype, shape, places, partial=partial, interleaved=interleaved))
    for places in ("first", "each"):
        close(rotary(dtype, shape, places, partial=partial, domain=MS, interleaved=interleaved))


def embed(
    dtype: str, kind: Any, *, segments: bool, mask: bool, places: str, outputs: tuple[bool, ...] = (True,)
) -> Node:
    rng, type_ = RNG(9), NARROW[dtype]
    tables = [draw(rng, (n, 40), type_) for n in (30, 20, 2)]
    ids, kinds = rng.integers(0, 30, (3, 9)).astype(kind), rng.integers(0, 2, (3, 9)).astype(kind)
    where = {
        "none": None,
        "each": rng.integers(0, 20, (3, 9)).astype(kind),
        "row": rng.integers(0, 20, (1, 9)).astype(kind),
    }[places]
    if not segments:
        kinds, tables[2] = None, None
    seen = rng.integers(0, 2, (3, 9)).astype(kind) if mask else None
    inputs = [ids, kinds, *tables, draw(rng, (40,), type_), draw(rng, (40,), type_), seen, where]
    return Node("EmbedLayerNormalization", 1, inputs, {"epsilon": 1e-5}, outputs, MS)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("places", ["none", "each", "row"])
@pytest.mark.parametrize("segments", [True, False])
def test_embeddings_are_normalised(segments: bool, places: str, dtype: str) -> None:
    close(embed(dtype, np.int32, segments=segments, mask=True, places=places, outputs=(True, True, True)))
    close(embed(dtype, np.int64, segments=segments, mask=False, places=places, outputs=(True, True)))


def test_numbers_beyond_a_table_are_taken_modulo() -> None:
    """As CuPy's ``take`` does: no kernel reads outside of a tensor."""
    found = embed("float32", np.int32, segments=True, mask=False, places="none")
    beyond = [found.inputs[0] + 30, found.inputs[1] - 2, *found.inputs[2:]]
    job, call = found.job(), found.call()
    assert job is not None
    (got,), (right,) = on_opencl(job, beyond, call.outputs), found.results()
    np.testing.assert_array_equal(got, right)


def every_kind() -> list[Node]:
    """A node for each kernel text that there is, in the types that change it."""
    rng, nodes = RNG(7), []
    for dtype in NARROW.values():
        x, scale = draw(rng, (4, 3, 200), dtype), draw(rng, (200,), dtype)
        nodes += [Node(op, 13, [x], {"axis": -1}) for op in ("Softmax", "LogSoftmax", "Hardmax")]
        nodes += [Node("Softmax", 13, [x], {"axis": 1})]
        for op in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
            nodes += [Node(f"Reduce{op}", 1, [x], {"axes": axes}) for axes in ([2], [0, 1])]
        nodes += [Node(op, 13, [x], {"axis": axis}) for op in ("ArgMax", "ArgMin") for axis in (0, 2)]
        if np.dtype(dtype) != np.float64:
            nodes += [
                Node("LayerNormalization", 17, [x, scale, scale], {}, (True, True, True)),
                Node("RMSNormalization", 23, [x, scale]),
                Node("SkipLayerNormalization", 1, [x, x, scale, scale, scale], {}, (True,) * 4, MS),
                Node("SkipSimplifiedLayerNormalization", 1, [x, x, scale], {}, (True,), MS),
            ]
    for domain in ("", MS):
        nodes += [
            rotary(dtype, (2, 9, 48), "each", interleaved=n, domain=domain)
            for dtype in ("float32", "float16")
            for n in (0, 1)
        ]
        nodes.append(
            Node("SimplifiedLayerNormalization", 1, [draw(rng, (4, 200)), draw(rng, (200,))], {}, (True,), domain)
        )
    channels = [draw(rng, (2, 6, 9, 9)), draw(rng, (6,)), draw(rng, (6,))]
    nodes += [Node("InstanceNormalization", 22, channels), Node("GroupNormalization", 21, channels, {"num_groups": 3})]
    nodes.append(embed("float16", np.int64, segments=True, mask=True, places="each", outputs=(True,) * 3))
    for dtype in (np.int32, np.int64, np.uint8, np.bool_):
        nodes.append(Node("ReduceMax", 20, [draw(rng, (6, 70, 3), dtype), np.array([1])], {}, hosted=(1,)))
    return nodes


def every_attention() -> list[Node]:
    """A node for each shape of the attention kernel's tiles, and for each of its parts."""
    made = [
        attention((1, 4, 2, 70, 300, size, size), dtype=dtype)
        for size in (32, 64, 128, 256)
        for dtype in ("float32", "float16", "bfloat16")
    ]
    mask = np.ones((70, 300), np.bool_)
    full: dict[str, Any] = {"lengths": np.array([200]), "is_causal": 1, "softcap": 9.0}
    made += [attention((1, 4, 2, 70, 300, size, size), dtype="float16", mask=mask, **full) for size in (64, 128, 256)]
    made += [attention((1, 4, 2, 1, 1, size, size), dtype="float16", past=999, is_causal=1) for size in (64, 128, 256)]
    return made


@pytest.mark.parametrize("make", [every_kind, every_attention, every_written, every_layer])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_kind_without_spills(architecture: str, make: Any, tmp_path: Path) -> None:
    jobs = [job for job in (node.job() for node in make()) if job is not None]
    found = assembled(ptx(PRELUDE + named(jobs), architecture), architecture, tmp_path)
    assert len(found) >= sum(len(job.launches) for job in jobs) > 20 and {spilt for spilt, _ in found.values()} == {0}
    assert unfit({name: launch.block for name, launch in launches(jobs)}, found) == []
