"""GroupQueryAttention by generated kernels, in their OpenCL dialect on PoCL, against the portable kernel in float64."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from job_models import NARROW, Node, close, draw, named
from nvrtc_compile import ARCHITECTURES, ptx, spills

import onnxplug
from onnxplug.contract import CONTRACT_VERSION, ExecutionProvider, KernelDef, KernelRegistry, ProviderSpec, TensorSpec
from onnxplug.plugins.registry import unregister_provider
from onnxplug_ep_cuda.registry import ArrayKernel, _with_hosted, registry
from onnxplug_kernel_text.cuda import PRELUDE
from onnxplug_kernel_text.nodes.attention import Problem
from onnxplug_kernel_text.nodes.grouped import LAST, PAST_KEY, PAST_VALUE, TOTAL, described

RNG = np.random.default_rng
MS = "com.microsoft"
SLOW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # kernels are compiled
ALL = (True, True, True)


def node(
    rows: int = 1, past: int = 9, *, batch: int = 2, heads: int = 4, kv_heads: int = 2, size: int = 8, packed: bool = False,
    dtype: Any = np.float32, seed: int = 0, lasts: Any = None, total: int | None = None, rotary: bool = False, half: int = 4,
    places: bool = False, bias: bool = False, outputs: tuple[bool, ...] = ALL, **attributes: Any,
) -> Node:  # fmt: skip
    """A step of a decoder; without a past the first one. ``lasts``: each sequence's length less one."""
    rng, first = RNG(seed), past == 0 or total == rows
    most = rows if first else past + rows
    total = most if total is None else total
    if lasts is None:
        lasts = rng.integers(0 if first else rows - 1, most, batch)
    if packed:
        q, k, v = draw(rng, (batch, rows, (heads + 2 * kv_heads) * size), dtype), None, None
    else:
        q, k, v = (draw(rng, (batch, rows, n * size), dtype) for n in (heads, kv_heads, kv_heads))
    caches = [draw(rng, (batch, kv_heads, past, size), dtype) for _ in range(2)]
    angles = [rng.standard_normal((most + 3, half)).astype(dtype) if rotary else None for _ in range(2)]
    numbers = rng.integers(0, 3, (batch, rows)) if places else None
    added = draw(rng, (1, heads, rows, total), dtype) if bias else None
    inputs = [q, k, v, *caches, np.asarray(lasts, np.int32), np.array([total], np.int32), *angles, numbers, added]
    given = {"num_heads": heads, "kv_num_heads": kv_heads, "do_rotary": int(rotary), **attributes}
    return Node("GroupQueryAttention", 1, inputs, given, outputs, MS, hosted=(TOTAL,))


@SLOW
@given(st.data())
def test_steps(data: st.DataObject) -> None:
    one = data.draw
    kv_heads, first = one(st.integers(1, 3)), one(st.booleans())
    rows = one(st.integers(1, 20 if first else 3))
    attributes: dict[str, Any] = {}
    if one(st.booleans()):
        attributes |= {"local_window_size": one(st.integers(1, 12))}
    if one(st.booleans()):
        attributes |= {"softcap": 3.0, "scale": 0.3}
    if one(st.sampled_from([False, False, True])):
        attributes |= {"causal": 0}
    rotary = one(st.booleans())
    found = node(
        rows, 0 if first else one(st.integers(1, 40)), batch=one(st.integers(1, 3)), kv_heads=kv_heads,
        heads=kv_heads * one(st.integers(1, 3)), packed=one(st.booleans()), seed=one(st.integers(0, 99)), rotary=rotary,
        half=one(st.sampled_from([4, 3])), places=rotary and one(st.booleans()), bias=one(st.booleans()),
        rotary_interleaved=int(rotary and one(st.booleans())), **attributes,
    )  # fmt: skip
    close(found, 64)


def test_a_first_step_begins_sequences_whatever_the_caches_have_room_for() -> None:
    found = node(5, 12, total=5, lasts=[4, 2], rotary=True)
    close(found, 64)
    (_, keys, _) = found.results()
    assert keys is not None and keys.shape == (2, 2, 12, 8) and not keys[:, :, 5:].any()


def test_caches_that_nobody_wants_are_scratch_memory() -> None:
    close(node(2, 30, outputs=(True,)), 64)


def test_a_long_cache_is_divided_among_groups() -> None:
    found = node(1, 700, batch=1, lasts=[650])
    job = found.job()
    assert job is not None and job.launches[-1].name == "joined"
    close(found, 64)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("past", [0, 20])
def test_halves(dtype: str, past: int) -> None:
    """Without a rotation, whose result is rounded to the type, as in the portable kernel, but not in the reference."""
    close(node(3, past, dtype=NARROW[dtype]), 64)


def test_the_first_step_may_be_cudnns_and_the_others_are_the_kernels() -> None:
    first, later = (described(node(8, past, size=64).call()) for past in (0, 24))
    assert first is not None and first.lengths is None and first.right == 0 and first.offset == 0
    assert later is not None and later.lengths is not None


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ((11,), {}), ((12, 13), {}), ((14, 15), {}), ((), {"smooth_softmax": 1}), ((), {"sliding_window_cache": 1}),
        ((), {"do_rotary": 1}), ((), {"kv_num_heads": 3}),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_left_to_the_portable_kernel(inputs: tuple[int, ...], attributes: dict[str, Any]) -> None:
    call = node().call()
    assert described(call) is not None
    given = [*call.inputs, *[None] * (16 - len(call.inputs))]
    for number in inputs:
        given[number] = TensorSpec(np.dtype(np.float32), (4,))
    assert described(replace(call, inputs=given, attributes={**call.attributes, **attributes})) is None


def test_a_total_that_nobody_knows_yet_is_left_to_the_portable_kernel() -> None:
    found = node()
    assert Node(found.op_type, 1, found.inputs, found.attributes, ALL, MS).job() is None


class Inside:
    """A place where everything is at hand."""

    entered = True

    def inside(self) -> Any:
        return contextlib.nullcontext()


class OnDevice:
    """What has to be brought to the host before NumPy reads it."""

    def __init__(self, array: np.ndarray) -> None:
        self.get = lambda: array


def test_lengths_stay_on_the_device_and_come_to_the_host_for_the_portable_kernel() -> None:
    definitions: Any = registry(np, Inside(), tf32=True)
    found = [d for d in definitions if isinstance(d, KernelDef) and d.op_type == "GroupQueryAttention"]
    assert found and all(TOTAL in d.host_inputs and LAST not in d.host_inputs for d in found)
    lasts = np.array([3], np.int32)
    assert _with_hosted({LAST}, lambda *xs: xs, *range(5), OnDevice(lasts)) == (0, 1, 2, 3, 4, lasts)


def test_caches_without_elements_are_no_reason_for_the_portable_kernel() -> None:
    made, bound = node(3, 0).call(), list[Any]()
    for empty, count in (({PAST_KEY, PAST_VALUE}, 1), (set[int](), 1)):
        kernel = ArrayKernel(np, Inside(), print, lambda *given, **_: bound.append(given), {}, empty)
        kernel.bind(made.inputs, made.outputs)
        assert len(bound) == count


def decoder() -> onnx.ModelProto:
    """A layer as tools write it: the lengths are summed from the mask, the total is its shape."""
    made = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g (float[B, S, 32] q, float[B, S, 16] k, float[B, S, 16] v,'
        "float[B, 2, P, 8] pk, float[B, 2, P, 8] pv, int64[B, T] mask) => (float[B, S, 32] y, float[B, 2, R, 8] nk, float[B, 2, R, 8] nv)"
        "<int64[1] along = {1}, int64 one = {1}, int64 place = {1}> { n = ReduceSum <keepdims = 0> (mask, along) m = Sub (n, one)"
        "last = Cast <to = 6> (m) shape = Shape (mask) t = Gather (shape, place) total = Cast <to = 6> (t)"
        "y, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, pk, pv, last, total) }"
    )
    return made


def step(rows: int, past: int) -> dict[str, np.ndarray]:
    """Inputs of the layer, of which the second sequence is three shorter than the first."""
    rng = RNG(0)
    shapes = {"q": (2, rows, 32), "k": (2, rows, 16), "v": (2, rows, 16), "pk": (2, 2, past, 8), "pv": (2, 2, past, 8)}
    mask = np.ones((2, past + rows), np.int64)
    mask[1, -3:] = 0
    return {**{name: draw(rng, shape) for name, shape in shapes.items()}, "mask": mask}


def test_in_a_session_the_plan_knows_the_total_and_the_node_is_an_attention() -> None:
    seen: list[Problem] = []

    def attend(problem: Problem, scratch: int) -> Any:
        seen.append(problem)  # and leaves the node to the portable kernel

    class OnHost(ExecutionProvider):
        def get_kernel_registry(self) -> KernelRegistry:
            definitions: Any = registry(np, Inside(), tf32=True, attend=attend)
            return KernelRegistry(d for d in definitions if d.op_type == "GroupQueryAttention")

    name = "StandInExecutionProvider"
    onnxplug.register_provider(ProviderSpec(name, CONTRACT_VERSION, lambda options, context: OnHost(), "cpu"))
    try:
        data = decoder().SerializeToString()
        made = onnxplug.InferenceSession(data, providers=[name, "CPUExecutionProvider"])
        plain = onnxplug.InferenceSession(data, providers=["CPUExecutionProvider"])
        assert {owner for node, owner in made.placement().items() if "Attention" in node} == {name}
        for rows, past in ((6, 0), (1, 9), (2, 9)):
            for got, wanted in zip(made.run(None, step(rows, past)), plain.run(None, step(rows, past)), strict=True):
                np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    finally:
        unregister_provider(name)
    assert [(p.shape[3], p.shape[4], p.lengths is None) for p in seen] == [(6, 6, True), (1, 10, False), (2, 11, False)]


def every_grouped() -> list[Node]:
    """A node for each text."""
    made = []
    for dtype in ("float32", "float16"):
        for past in (0, 20):
            made.append(node(3, past, dtype=NARROW[dtype], size=64, half=32, rotary=True))
            made.append(node(3, past, dtype=NARROW[dtype], size=64, packed=True, bias=True, causal=0, softcap=2.0))
    return made


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvrtc_compiles_every_kind_without_spills(architecture: str, tmp_path: Path) -> None:
    jobs = [job for job in (found.job() for found in every_grouped()) if job is not None]
    found = spills(ptx(PRELUDE + named(jobs), architecture), architecture, tmp_path)
    assert len(found) >= sum(len(job.launches) for job in jobs) > 20 and set(found) == {0}
