"""The simulated GPU of ``driverless``: what its machine computes of PTX, what it finds wrong with kernels and with the order of work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from driverless import cublas
from driverless.arithmetic import Untranslated
from driverless.machine import Entry, Machine, Table
from driverless.queues import CAPTURED, NOT_READY, Queues
from nvrtc_compile import MISSING, _is_there, ptx

COMPILED = [
    pytest.mark.skipif(not _is_there(), reason=MISSING),
    pytest.mark.skipif(cublas.compiler() is None, reason="capability: a C compiler (cc and nm are not installed)"),
]


class Grid:
    """Kernels of a CUDA text, run over arrays. ``faults``: what they did wrong."""

    def __init__(self, machine: Machine, text: str) -> None:
        self.kernels: dict[str, Entry] = machine.load(ptx(text, "90"))
        self.faults: list[str] = []

    def __call__(self, name: str, grid: int, block: int, *given: Any, dynamic: int = 0, order: int = 0) -> None:
        entry = self.kernels[name]
        arrays = [x for x in given if isinstance(x, np.ndarray)]
        table = Table.of({x.ctypes.data: x.nbytes for x in arrays})
        values = [np.uint64(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in given]
        packed = bytearray(max(at + size for at, size in entry.params))
        for (at, size), value in zip(entry.params, values, strict=True):
            assert value.nbytes == size
            packed[at : at + size] = value.tobytes()
        said = entry.call((grid, 1, 1), (block, 1, 1), dynamic, bytes(packed), table, order)
        if said is not None:
            self.faults.append(said)


@pytest.fixture
def made(tmp_path: Path) -> Callable[[str], Grid]:
    return lambda text: Grid(
        Machine(tmp_path), f'#include <cuda_fp16.h>\n#include <cuda_bf16.h>\nextern "C" {{ {text} }}'
    )


FUNCTIONS = {
    "exp(x)": np.exp, "tanh(x)": np.tanh, "sinf(x)": np.sin, "cosf(x)": np.cos, "logf(fabsf(x))": lambda x: np.log(np.abs(x)),
    "sqrtf(fabsf(x))": lambda x: np.sqrt(np.abs(x)), "1.0f / x": lambda x: 1 / x, "rsqrtf(fabsf(x))": lambda x: 1 / np.sqrt(np.abs(x)),
    "powf(fabsf(x), 1.7f)": lambda x: np.abs(x) ** 1.7, "fmodf(x, 0.7f)": lambda x: np.fmod(x, np.float32(0.7)), "floorf(x)": np.floor,
    "rintf(x)": np.rint, "atanf(x)": np.arctan, "asinhf(x)": np.arcsinh, "expm1f(x)": np.expm1, "cbrtf(x)": np.cbrt,
    "sinf(x * 1e6f)": lambda x: np.sin((x * np.float32(1e6)).astype(np.float64)), "(float)(int)x": np.trunc,
    "(float)exp((double)x)": np.exp, "(float)__half2float(__float2half(x))": lambda x: x.astype(np.float16),
    "(float)(__nv_bfloat16)x": lambda x: x.astype(ml_dtypes.bfloat16), "fmaf(x, x, -x)": lambda x: x.astype(np.float64) ** 2 - x,
    "(float)((long long)(x * 1e9f) / 7)": lambda x: np.trunc(np.trunc((x * np.float32(1e9)).astype(np.float64)) / 7),
    "(float)((unsigned)(int)(x * 999) % 13u)": lambda x: np.trunc(x * np.float32(999)).astype(np.int32).astype(np.uint32) % 13,
    "(float)__popc(__float_as_uint(x))": lambda x: np.bitwise_count(x.view(np.uint32)), "copysignf(2, x)": lambda x: np.copysign(2, x),
    "(float)__half2float(__hmul(__float2half(x), __float2half(x)))": lambda x: x.astype(np.float16) * x.astype(np.float16),
}  # fmt: skip


@pytest.mark.parametrize("architecture", [pytest.param("90", marks=COMPILED)])
def test_functions_are_computed(architecture: str, made: Callable[[str], Grid]) -> None:
    bodies = "".join(
        f"__global__ void f{n}(const float *a, float *y) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; float x = a[i]; "
        f"y[i] = {text}; }}"
        for n, text in enumerate(FUNCTIONS)
    )
    grid, x = made(bodies), (np.random.default_rng(0).standard_normal(256) * 3).astype(np.float32)
    for n, (text, function) in enumerate(FUNCTIONS.items()):
        y = np.zeros_like(x)
        grid(f"f{n}", 2, 128, x, y)
        np.testing.assert_allclose(y, function(x).astype(np.float32), rtol=3e-6, atol=1e-6, err_msg=text)
    assert grid.faults == []


SUM = """
__global__ void total(const float *a, float *y, int n) {
  extern __shared__ float part[];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += a[i];
  part[threadIdx.x] = sum;
  BARRIER
  for (int step = blockDim.x / 2; step >= 32; step /= 2) {
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
    BARRIER
  }
  if (threadIdx.x < 32) {
    sum = part[threadIdx.x];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
    if (!threadIdx.x) *y = sum;
  }
}
__global__ void counted(const int *a, int *y) {
  unsigned odd = __ballot_sync(0xffffffff, a[threadIdx.x] & 1);
  if (!(threadIdx.x & 31)) atomicAdd(y, __popc(odd));
}
"""


@pytest.mark.parametrize("order", [pytest.param(n, marks=COMPILED) for n in (0, 1)])
def test_threads_meet(order: int, made: Callable[[str], Grid]) -> None:
    grid = made(SUM.replace("BARRIER", "__syncthreads();"))
    x, y = np.arange(1000, dtype=np.float32), np.zeros(1, np.float32)
    grid("total", 1, 128, x, y, np.int32(1000), dynamic=512, order=order)
    numbers, count = np.arange(96, dtype=np.int32), np.zeros(1, np.int32)
    grid("counted", 1, 96, numbers, count, order=order)
    assert (y[0], count[0], grid.faults) == (499500, 48, [])


@pytest.mark.parametrize("architecture", [pytest.param("90", marks=COMPILED)])
def test_a_barrier_that_is_missing_shows_in_one_of_two_orders(architecture: str, made: Callable[[str], Grid]) -> None:
    grid, x = made(SUM.replace("BARRIER", "")), np.arange(1000, dtype=np.float32)
    found = []
    for order in (0, 1):
        y = np.zeros(1, np.float32)
        grid("total", 1, 128, x, y, np.int32(1000), dynamic=512, order=order)
        found.append(y[0])
    assert not np.array_equal(found, [499500, 499500])


FAULTS = {
    "y[i + 1] = a[i];": "writes 4 bytes",
    "y[i] = a[i - 1];": "reads 4 bytes",
    "*(float2 *)(y + 1) = make_float2(a[i], 0);": "writes 8 bytes",
    "__shared__ float s[8]; s[i] = i; __syncthreads(); y[i % 8] = s[0];": "writes 4 bytes",
    "y[i] = i < 7 ? __shfl_sync(0xff, a[i], 7, 8) : 0;": "lane",
}


@pytest.mark.parametrize("text", [pytest.param(text, marks=COMPILED) for text in FAULTS])
def test_faults_are_found(text: str, made: Callable[[str], Grid]) -> None:
    grid = made(f"__global__ void k(const float *a, float *y) {{ int i = threadIdx.x; {text} }}")
    grid("k", 1, 16 if "__shared__" in text else 8, np.ones(16, np.float32)[:8].copy(), np.zeros(8, np.float32))
    assert len(grid.faults) == 1 and FAULTS[text] in grid.faults[0]


@pytest.mark.parametrize("architecture", [pytest.param("90", marks=COMPILED)])
def test_what_is_not_known_is_refused(architecture: str, made: Callable[[str], Grid]) -> None:
    with pytest.raises(Untranslated, match="mma"):
        made(
            '__global__ void k(unsigned *a) { asm("mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%0}, {%0}, {%0}, {%0};" : "+r"(*a)); }'
        )


# ---- the order of work


def test_what_nobody_waits_for_is_not_done() -> None:
    queues, done = Queues(), list[str]()
    for stream in (16, 32):
        queues.create(stream, blocking=False)
        queues.put(stream, lambda stream=stream: done.append(f"work of {stream}"))  # type: ignore[misc]
    queues.record(event=1, stream=16)
    assert done == [] and queues.is_past(1) == NOT_READY
    queues.drain(32)
    assert done == ["work of 32"] and queues.is_past(1) == NOT_READY
    queues.wait(32, event=1)
    queues.put(32, lambda: done.append("more"))
    queues.drain(32)
    assert done == ["work of 32", "work of 16", "more"] and queues.is_past(1) == 0


def test_a_stream_may_be_ahead_of_another() -> None:
    queues, done = Queues(uneven=True), list[int]()
    for stream in (16, 32):
        queues.create(stream, blocking=False)
        queues.put(stream, lambda stream=stream: done.append(stream))  # type: ignore[misc]
    assert done == [32]


def test_an_event_is_of_when_it_was_recorded() -> None:
    queues, done = Queues(), list[int]()
    queues.create(16, blocking=False)
    queues.put(16, lambda: done.append(1))
    queues.record(event=1, stream=16)
    queues.put(16, lambda: done.append(2))
    queues.reach(1)
    assert done == [1]


def test_streams_that_block_are_one_with_the_legacy_stream() -> None:
    queues, done = Queues(), list[int]()
    queues.create(16, blocking=True)
    queues.put(16, lambda: done.append(1))
    queues.now(0, lambda: done.append(2))
    assert done == [1, 2]


def test_a_recording_is_done_when_it_is_replayed() -> None:
    queues, done = Queues(), list[str]()
    for stream in (16, 32):
        queues.create(stream, blocking=False)
    queues.begin(16)
    queues.put(16, lambda: done.append("first"))
    queues.record(1, 16)
    queues.wait(32, 1)
    queues.put(32, lambda: done.append("beside"))
    queues.record(2, 32)
    queues.wait(16, 2)
    queues.end(16, handle=99)
    queues.drain_all()
    assert done == [] and queues.broken == [] and not queues.recording
    for _ in range(2):
        queues.replay(99, 16)
    queues.drain(16)
    assert done == ["first", "beside"] * 2


RULES: dict[str, Callable[[Queues], object]] = {
    "waited for while it is recorded": lambda q: q.drain(16),
    "device is waited for": lambda q: q.drain_all(),
    "event from outside": lambda q: (q.record(5, 32), q.wait(16, 5)),
    "inside another": lambda q: q.begin(16),
    "joined it": lambda q: (q.record(5, 16), q.wait(32, 5), q.put(32, lambda: None), q.end(16, 99)),
    "is asked for": lambda q: (q.record(5, 16), q.is_past(5)),
}


@pytest.mark.parametrize("said", RULES)
def test_rules_of_recordings_are_kept(said: str) -> None:
    queues = Queues()
    for stream in (16, 32):
        queues.create(stream, blocking=False)
    queues.begin(16)
    RULES[said](queues)
    assert any(said in broken for broken in queues.broken)
    assert CAPTURED == 907
