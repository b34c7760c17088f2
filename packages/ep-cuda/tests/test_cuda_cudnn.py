"""cuDNN's plans of convolutions and attention, chosen and built for a GPU that is described: no device is needed, but cuDNN, its frontend
and a libcuda.

``nox -s cuda`` installs the first two; Debian's package libcuda1 has the third (its folder in LD_LIBRARY_PATH is enough).
"""

from __future__ import annotations

import ctypes
import inspect
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from job_models import NARROW, Node
from test_cuda_attention import node

cudnn = pytest.importorskip("cudnn", reason="capability: cuDNN (nvidia-cudnn-frontend is not installed)")
try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    pytest.skip("capability: libcuda.so.1, of a driver or of Debian's package libcuda1", allow_module_level=True)

from onnxplug.contract.cache import DiskCache  # noqa: E402
from onnxplug_ep_cuda.conv.problem import Clip, Convolution  # noqa: E402
from onnxplug_ep_cuda.dnn.attention import Attention  # noqa: E402
from onnxplug_ep_cuda.dnn.convolution import ConvolutionGraph  # noqa: E402
from onnxplug_ep_cuda.dnn.plans import SMALL_WORKSPACE, TIMED, NoPlan, Planner  # noqa: E402
from onnxplug_kernel_text.nodes.attention import described  # noqa: E402
from onnxplug_kernel_text.nodes.attention_contrib import described as described_contrib  # noqa: E402

H200 = {
    "version": 1, "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "isTccDriver": 0, "maxCtasPerSM": 32,
    "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "oversizedSharedMemoryPerBlock": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "memClockRateKHz": 3201000,
    "memoryBusWidth": 6144, "multiProcessorCount": 132, "smCountOrigin": 0, "pciDeviceId": 0x2335, "regsPerBlock": 65536,
    "reservedSharedMemoryPerBlock": 1024, "smClockRateKHz": 1980000, "supportCoopLaunch": 1, "totalGlobalMem": 150754820096,
    "warpSize": 32, "l2CacheSize": 62914560, "deviceName": "NVIDIA H200", "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
}  # fmt: skip
"""A device as cuDNN describes one."""


@pytest.fixture(scope="module")
def place() -> dict[str, Any]:
    return {"device_property": cudnn.create_device_properties(json.dumps(H200)), "sm_version": 90, "sm_count": 132}


@pytest.fixture
def planner(place: dict[str, Any]) -> Callable[..., Planner]:
    def make(search: Any = "HEURISTIC", *, tf32: bool = True, max_workspace: bool = True, **given: Any) -> Planner:
        return Planner(search, tf32, max_workspace, place, "H200 sm_90", **given)

    return make


def conv(dtype: str = "float16", **given: Any) -> ConvolutionGraph:
    """A 3 x 3 convolution of 64 channels."""
    plain: dict[str, Any] = {
        "x": (1, 64, 28, 28), "w": (64, 64, 3, 3), "y": (1, 64, 28, 28), "begins": (1, 1), "ends": (1, 1), "strides": (1, 1),
        "dilations": (1, 1),
    }  # fmt: skip
    return ConvolutionGraph(Convolution(dtype, **(plain | given)))


VOLUME: dict[str, Any] = {"x": (1, 64, 8, 14, 14), "dilations": (1, 1, 1)}
TRANSPOSED: dict[str, Any] = {"w": (64, 32, 4, 4), "y": (1, 32, 56, 56), "strides": (2, 2), "transposed": True}
FUSED: dict[str, Any] = {"bias": True, "residual": True, "clip": Clip(0.0, 6.0)}
CASES = {
    "plain": conv(),
    "bias, residual, activation": conv(**FUSED),
    "float32": conv("float32", **FUSED),
    "bfloat16": conv("bfloat16", **FUSED),
    "image": conv(
        x=(1, 3, 64, 64), w=(64, 3, 7, 7), y=(1, 64, 32, 32), begins=(3, 3), ends=(3, 3), strides=(2, 2), bias=True
    ),
    "depthwise": conv(w=(64, 1, 3, 3), bias=True, clip=Clip(0.0, None)),
    "grouped": conv(w=(64, 16, 3, 3), bias=True),
    "padded at one side": conv(ends=(2, 3), y=(1, 64, 29, 30)),
    "dilated": conv(dilations=(2, 2), begins=(2, 2), ends=(2, 2)),
    "line": conv(
        x=(1, 64, 100), w=(64, 64, 3), y=(1, 64, 100), begins=(1,), ends=(1,), strides=(1,), dilations=(1,), **FUSED
    ),
    "volume": conv(
        **VOLUME, w=(64, 64, 3, 3, 3), y=(1, 64, 8, 14, 14), begins=(1,) * 3, ends=(1,) * 3, strides=(1,) * 3, **FUSED
    ),
    "float32 volume": conv(
        "float32", **VOLUME, w=(64, 64, 3, 3, 3), y=(1, 64, 8, 14, 14), begins=(1,) * 3, ends=(1,) * 3, strides=(1,) * 3
    ),
    "transposed": conv(**TRANSPOSED, bias=True, clip=Clip(0.0, 6.0)),
    "transposed, float32": conv("float32", **TRANSPOSED, bias=True),
    "transposed in groups": conv(**(TRANSPOSED | {"w": (64, 16, 4, 4)})),
    "transposed line": conv(
        x=(1, 64, 50),
        w=(64, 32, 4),
        y=(1, 32, 100),
        begins=(1,),
        ends=(1,),
        strides=(2,),
        dilations=(1,),
        transposed=True,
    ),
    "transposed volume": conv(
        x=(1, 64, 7, 7, 7),
        w=(64, 32, 2, 2, 2),
        y=(1, 32, 14, 14, 14),
        begins=(0,) * 3,
        ends=(0,) * 3,
        strides=(2,) * 3,
        dilations=(1,) * 3,
        transposed=True,
        bias=True,
    ),
    "transposed, one row more": conv(**(TRANSPOSED | {"y": (1, 32, 57, 56)})),
    "pointwise": conv(w=(256, 64, 1, 1), y=(1, 256, 28, 28), begins=(0, 0), ends=(0, 0), **FUSED),
}


@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_convolution_has_a_plan(name: str, planner: Callable[..., Planner]) -> None:
    found = planner().plan(CASES[name])
    assert found.get_workspace_size() >= 0 and found.get_execution_plan_count() > 0


def test_without_tf32_plans_on_tensor_cores_are_left_out(planner: Callable[..., Planner]) -> None:
    exact, fast = (planner(tf32=tf32).plan(conv("float32", bias=True)) for tf32 in (False, True))
    fast.build_plan_at_index(0)
    with pytest.raises(cudnn.cudnnGraphNotSupportedError, match="Deselecting"):
        exact.build_plan_at_index(0)


def test_the_fallback_is_another_plan(planner: Callable[..., Planner]) -> None:
    first, fallback = (planner(search).plan(conv()) for search in ("HEURISTIC", "DEFAULT"))
    assert first.get_plan_name_at_index(0) != fallback.get_plan_name_at_index(0)


def test_an_exhaustive_search_takes_what_is_fastest(planner: Callable[..., Planner]) -> None:
    timed: list[int] = []

    def time(problem: Any, graph: Any, index: int) -> float:
        assert problem == conv() and graph.get_workspace_size_plan_at_index(index) >= 0
        timed.append(index)
        return abs(len(timed) - 3.0)  # the third that builds

    found = planner("EXHAUSTIVE", time=time).plan(conv())
    assert (
        len(timed) == TIMED and found._plan_index == timed[2]
    )  # which is selected, cuDNN's own interface does not tell


def test_without_memory_to_time_them_the_first_plan_is_taken(
    planner: Callable[..., Planner], caplog: pytest.LogCaptureFixture
) -> None:
    def time(problem: Any, graph: Any, index: int) -> float:
        raise MemoryError("10 bytes wanted")

    with caplog.at_level(logging.WARNING):
        assert planner("EXHAUSTIVE", time=time).plan(conv()).get_workspace_size() >= 0
    assert "10 bytes wanted" in caplog.text


def test_plans_come_back_from_the_disk(
    planner: Callable[..., Planner], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = DiskCache(tmp_path, ".plan", 1 << 20)
    first = planner(store=store)
    made = first.plan(conv())
    (path,) = tmp_path.glob("*.plan")
    blob = path.read_bytes()
    again = planner(store=store).plan(conv())
    assert again.get_workspace_size() == made.get_workspace_size()
    assert path.read_bytes() == blob  # not made again: a plan never has the same bytes twice
    store.put(path.name.partition(".")[0], b"of another world")
    with caplog.at_level(logging.WARNING):
        planner(store=store).plan(conv())
    assert "made again" in caplog.text and store.get(path.name.partition(".")[0]) != b"of another world"


@pytest.mark.parametrize("kept", [False, True])
def test_an_execution_gets_as_far_as_the_library(kept: bool, planner: Callable[..., Planner], tmp_path: Path) -> None:
    """Which asks for a device's handle: addresses are taken as they are given, those of tensors that the plan lacks, too."""
    made = planner(store=DiskCache(tmp_path, ".plan", 1 << 20))
    plan = [made.plan(conv()) for _ in range(2)][kept]
    for execute in (plan.execute, lambda *given, **handle: plan.execute_plan_at_index(*given, 0, **handle)):
        with pytest.raises(RuntimeError, match="handle is NULL"):
            execute({uid: 4096 * uid for uid in conv().sizes()}, 1 << 20, handle=cudnn.Handle(0))


def test_what_decides_a_plan_is_in_its_key(planner: Callable[..., Planner]) -> None:
    one = planner()
    keys = {one.key(c) for c in CASES.values()} | {planner(tf32=False).key(conv()), planner("DEFAULT").key(conv())}
    assert len(keys) == len(CASES) + 2


def test_a_convolution_without_a_plan_says_so(planner: Callable[..., Planner]) -> None:
    with pytest.raises(NoPlan):
        planner().plan(conv(y=(1, 64, 5, 5)))


def test_scratch_memory_can_be_bounded(planner: Callable[..., Planner]) -> None:
    assert planner(max_workspace=False).plan(conv("float32")).get_workspace_size() <= SMALL_WORKSPACE


ATTENTIONS = {
    "plain": node((1, 4, 4, 100, 100, 64, 64), dtype="float16"),
    "packed, grouped, causal": node((2, 8, 2, 64, 64, 128, 128), dtype="bfloat16", packed=True, is_causal=1),
    "causal behind a cache": node((1, 4, 4, 20, 20, 64, 64), dtype="float16", past=44, is_causal=1),
    "one query": node((2, 4, 4, 1, 1, 64, 64), dtype="float16", past=255, is_causal=1),
    "float32": node((1, 4, 2, 100, 100, 64, 64)),
    "float32, causal": node((1, 4, 4, 20, 20, 64, 64), past=44, is_causal=1),
    "sizes that differ": node((1, 2, 2, 30, 50, 80, 64), dtype="float16"),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_has_a_plan(name: str, planner: Callable[..., Planner]) -> None:
    problem = described(ATTENTIONS[name].call())
    assert problem is not None
    asked = Attention.of(problem)
    assert asked is not None and asked.causal == ("causal" in name or "one" in name)
    assert planner().plan(asked).get_workspace_size() >= 0
    assert set(asked.sizes()) == {1, 2, 3, 4} and asked.sizes()[1] == np.prod(asked.q.shape)


def test_attention_in_float32_without_tf32_is_left_to_the_generated_kernel(planner: Callable[..., Planner]) -> None:
    problem = described(ATTENTIONS["float32"].call())
    asked = None if problem is None else Attention.of(problem)
    assert asked is not None and asked.dtype == "float32"
    with pytest.raises(NoPlan):  # every plan that cuDNN has is on tensor cores
        planner(tf32=False).plan(asked)


def padded(dtype: str, **given: Any) -> Node:
    """MultiHeadAttention with padding, of keys that are no multiple of 8."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 128)).astype(NARROW[dtype]) for n in (30, 100, 100))
    mask = (rng.random((2, 100)) > 0.2).astype(np.int32)
    return Node("MultiHeadAttention", 1, [q, k, v, None, mask], {"num_heads": 2, **given}, domain="com.microsoft")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_attention_with_padding_has_a_plan(dtype: str, planner: Callable[..., Planner]) -> None:
    problem = described_contrib(padded(dtype).call())
    assert problem is not None and problem.held >= 2 * 100 * 4
    asked = Attention.of(problem)
    assert asked is not None and asked.bias is not None and asked.bias.shape == (2, 1, 1, 100)
    assert planner().plan(asked).get_workspace_size() >= 0 and set(asked.sizes()) == {1, 2, 3, 4, 5}


def test_padding_that_may_hide_every_key_is_left_to_the_generated_kernel() -> None:
    problem = described_contrib(padded("float16", mask_filter_value=-np.inf).call())
    assert problem is not None and Attention.of(problem) is None
    problem = described_contrib(padded("float16", unidirectional=1).call())  # a row for each query, still finite
    assert problem is not None and (asked := Attention.of(problem)) is not None
    assert asked.bias is not None and asked.bias.shape == (2, 1, 30, 100)


@pytest.mark.parametrize(
    "given",
    [
        {"mask": np.ones((20, 20), np.bool_)}, {"softcap": 2.0}, {"left_window_size": 3},
        {"right_window_size": 2}, {"lengths": np.array([7])},
    ],
    ids=str,
)  # fmt: skip
def test_other_attention_is_left_to_the_generated_kernel(given: dict[str, Any]) -> None:
    problem = described(node((1, 2, 2, 20, 20, 64, 64), **{"dtype": "float16", **given}).call())
    assert problem is not None and Attention.of(problem) is None


def test_heads_of_odd_sizes_too() -> None:
    problem = described(node((1, 2, 2, 20, 20, 20, 20), dtype="float16").call())
    assert problem is not None and Attention.of(problem) is None


def test_calls_that_need_a_device_fit_cudnns_signatures() -> None:
    inspect.signature(cudnn.pygraph.execute).bind(None, {1: 2}, 3, handle=None)
    inspect.signature(cudnn.pygraph.execute_plan_at_index).bind(None, {1: 2}, 3, 0, handle=None)
    inspect.signature(cudnn.set_stream).bind(handle=None, stream=0)
    inspect.signature(cudnn.create_handle).bind()
    inspect.signature(cudnn.destroy_handle).bind(None)
