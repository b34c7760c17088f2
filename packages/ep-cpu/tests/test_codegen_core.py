"""What every generated kernel passes through: choice of nodes, compiler, program, threads, tensors."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from codegen_models import model, row
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract.cache import DiskCache
from onnxplug_ep_cpu.codegen import capability, driver, waits
from onnxplug_ep_cpu.codegen import compiler as compilers
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen import pool as pools
from onnxplug_ep_cpu.codegen import target as targets
from onnxplug_ep_cpu.codegen.cache import LIMIT, SUFFIX
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm
from onnxplug_ep_cpu.codegen.kernels.map import Map
from onnxplug_ep_cpu.codegen.kernels.nbits import NBits
from onnxplug_ep_cpu.codegen.kernels.transpose import Transpose
from onnxplug_ep_cpu.codegen.lower.loops import copy
from onnxplug_ep_cpu.codegen.lower.memory import tensor_of
from onnxplug_ep_cpu.codegen.lower.nbits import tile_rows
from onnxplug_ep_cpu.codegen.lower.tiles import most_rows
from onnxplug_ep_cpu.codegen.pool import Pool, pool
from onnxplug_ep_cpu.codegen.program import Buffer, Program, Ref
from onnxplug_ep_cpu.codegen.target import Target, host_target
from onnxplug_ep_cpu.codegen.tensor import Tensor, dense_strides

HALF: ex.Expr = (("leaf", 0), ("const", 0.5), ("mul", 0, 1))
KERNEL = Map(HALF, (("float32", "v"),), 0)


# ---- which nodes


@pytest.mark.parametrize(
    ("op_type", "shape", "native"),
    [
        ("LayerNormalization", (2, 8), True),  # a dozen steps with NumPy
        ("Relu", (2, 8), False),
        ("Relu", (128, 128), True),
        ("Identity", (8,), True),  # nothing but views: one call copies
    ],
)
def test_a_node_alone_is_generated_where_that_pays(op_type: str, shape: tuple[int, ...], native: bool) -> None:
    assert _alone_is_native(op_type, shape, symbolic=False) is native


def test_what_is_not_known_of_a_shape_is_taken_for_middling() -> None:
    assert not _alone_is_native("Relu", (8,), symbolic=True)
    assert _alone_is_native("Relu", (2, 8), symbolic=True)


def test_light_nodes_that_nothing_connects_are_one_region() -> None:
    functions: dict[str, Any] = {
        "Relu": lambda x: np.maximum(x, 0),
        "Neg": np.negative,
        "Abs": np.abs,
        "Floor": np.floor,
    }
    for several in (dict(list(functions.items())[:3]), functions):
        nodes = [helper.make_node(op, ["x"], [op]) for op in several]
        nodes += [
            helper.make_node("Relu", ["y"], ["r"]),
            helper.make_node("NonZero", ["r"], ["n"]),
        ]  # which a path leaves
        feeds, x, y = {"x": row(4), "y": row(3)}, row(4), row(3)
        proto = model(nodes, feeds, [*several, "n"], types={"n": TensorProto.INT64}).SerializeToString()
        made = onnxplug.InferenceSession(proto, providers=["CPUExecutionProvider"])
        explained = made.explain().nodes
        inside = [node["op_type"] for node in explained if str(node["region"]).startswith("native")]
        assert inside == (list(several) if len(several) == capability.UNCONNECTED else []), explained
        wanted = [*(function(x) for function in several.values()), [np.flatnonzero(y > 0)]]
        for got, due in zip(made.run(None, feeds), wanted, strict=True):
            np.testing.assert_array_equal(got, due)


def _alone_is_native(op_type: str, shape: tuple[int, ...], symbolic: bool) -> bool:
    given = ["x", "scale"] if op_type == "LayerNormalization" else ["x"]
    constants = {"scale": row(shape[-1])} if len(given) > 1 else {}
    node = helper.make_node(op_type, given, ["y"])
    made = model([node], {"x": np.zeros(shape, np.float32)}, ["y"], constants, symbolic=symbolic).SerializeToString()
    return bool(onnxplug.InferenceSession(made, providers=["CPUExecutionProvider"]).explain().regions)


# ---- compiler and targets


def test_a_second_process_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(host_target(), DiskCache(tmp_path, SUFFIX, LIMIT)).addresses([KERNEL])
    monkeypatch.setattr(Compiler, "compile", lambda *_: pytest.fail("compiled again"))
    assert Compiler(host_target(), DiskCache(tmp_path, SUFFIX, LIMIT)).addresses([KERNEL])[KERNEL]


def test_equal_kernels_are_one(tmp_path: Path) -> None:
    made = Compiler(host_target(), DiskCache(tmp_path, SUFFIX, LIMIT))
    again = Map(HALF, (("float32", "v"),), 0)
    assert made.addresses([KERNEL]) == made.addresses([again]) and len(list(tmp_path.glob("*.o"))) == 1


def test_other_sources_make_other_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Compiler(host_target(), DiskCache(tmp_path, SUFFIX, LIMIT)).addresses([KERNEL])
    monkeypatch.setattr(compilers, "_source_digest", lambda: "another version")
    Compiler(host_target(), DiskCache(tmp_path, SUFFIX, LIMIT)).addresses([KERNEL])
    assert len(list(tmp_path.glob("*.o"))) == 2


def test_sources_are_read_by_the_first_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Path(compilers.__file__).parent
    shutil.copytree(code / "kernels", tmp_path / "code" / "kernels")
    for name in ("emit.py", "expr.py", "approx.py", "angles.py"):
        shutil.copy(code / name, tmp_path / "code")
    monkeypatch.setattr(compilers, "__file__", str(tmp_path / "code" / "compiler.py"))
    monkeypatch.setattr(compilers, "object_cache", lambda: DiskCache(tmp_path, SUFFIX, LIMIT))
    monkeypatch.setattr(compilers, "_SETTLED", 0)
    digest = compilers._source_digest.__wrapped__
    first = digest()
    with monkeypatch.context() as reading:
        reading.setattr(compilers, "open", lambda *_: pytest.fail("read again"), raising=False)
        assert digest() == first
    changed = tmp_path / "code" / "emit.py"
    changed.write_text(changed.read_text() + "\n")
    assert digest() != first
    changed.write_text(changed.read_text()[:-1])
    assert digest() == first


AVX512 = Target("avx512", "znver4", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+fma,+f16c", 16, 32, 32 << 10, 512 << 10)
AVX2 = Target("avx2", "haswell", "+avx2,+fma,+f16c", 8, 16, 32 << 10, 512 << 10)
GENERIC = Target("generic", "x86-64", "", 4, 14, 32 << 10, 512 << 10)


@pytest.mark.parametrize(
    ("target", "kernel"),
    [
        *((target, Gemm(most_rows(target, 2), 2, 4, False)) for target in (AVX512, AVX2, GENERIC)),
        *((target, NBits(4, 32, 128, tile_rows(target, 96), 8)) for target in (AVX512, AVX2)),
    ],
    ids=lambda of: of.name if isinstance(of, Target) else type(of).__name__,
)
def test_the_product_kernels_keep_their_sums_in_registers(target: Target, kernel: Any) -> None:
    """On every target: a spilled accumulator halves the speed."""
    if not target.is_x86:
        pytest.skip("capability: an x86 assembler")
    loops = Compiler(target, None).assembly(kernel).split("ret")[0]
    register = {"avx512": "zmm", "avx2": "ymm", "generic": "xmm"}[target.name]
    stored = [line for line in loops.splitlines() if f"%{register}" in line and line.rstrip().endswith("(%rsp)")]
    assert len(stored) <= 2, stored


@pytest.mark.parametrize("fast", [False, True])
def test_divisions_have_no_branch_to_shorter_ones_where_all_are_fast(fast: bool) -> None:
    features = targets._tuned("+avx2,+vpclmulqdq" if fast else "+avx2,-vpclmulqdq")
    target = Target("avx2", "znver3", features, 8, 16, 32 << 10, 512 << 10)
    if not target.is_x86:
        pytest.skip("capability: an x86 assembler")
    text = Compiler(target, None).assembly(Transpose(1, 8))
    assert "\tdivq" in text and ("\tdivl" not in text) == fast


def test_transposes_of_few_dimensions_share_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    program = mock.Mock()
    for shape in ((64, 70), (3, 64, 70), (2, 3, 64, 70)):
        x = tensor_of(np.zeros(shape, np.float32))
        y = tensor_of(np.zeros((*shape[:-2], shape[-1], shape[-2]), np.float32))
        axes = (*range(len(shape) - 2), -1, -2)
        copy(program, host_target(), x.transposed(axes), y)
    assert len({str(call.args[0]) for call in program.call.call_args_list}) == 1


def test_a_wider_target_than_the_machine_is_refused() -> None:
    with pytest.raises(ValueError, match="one of"):
        host_target("vax")
    if host_target().name != "avx512":
        with pytest.raises(ValueError, match="widest target"):
            host_target("avx512")


# ---- programs


@given(st.integers(1, 5000), st.integers(0, 12), st.integers(1, 3), st.booleans())
@examples(max_examples=40, deadline=None)
def test_a_chain_of_calls_over_reused_memory(n: int, depth: int, threads: int, even: bool) -> None:
    """Scratch buffers share memory when their lives do not meet; results do not depend on the number of threads, nor on how
    they share the items."""
    target, program = host_target(), Program()
    source, result = Buffer("input", 4 * n, 0), Buffer("output", 4 * n, 0)
    places = [source, *(Buffer("scratch", 4 * n) for _ in range(depth)), result]
    for at, to in itertools.pairwise(places):
        program.call(KERNEL, [Ref(to), n, 64, -(-n // 64), 1, 1, 1, 0, Ref(at), 0], -(-n // 64), 1e9, even)
    image = program.finish(compilers.compiler(target), 1, 1, threads)
    x, y = row(n), np.empty(n, np.float32)
    workspace = np.empty(image.workspace, np.uint8)
    for _ in range(3):
        y.fill(np.nan)
        for record in image.records:
            pool(threads, True).run(record, image.bases(id(workspace), id(x), id(y)), image.shared)
        np.testing.assert_array_equal(y, x * np.float32(0.5) ** (depth + 1))
    if depth > 3:
        assert image.workspace < 4 * n * 3 + 64 * 8 * (depth + 20) * 4, "two storages in turn, and the head"


@given(
    st.lists(st.tuples(st.sampled_from([100.0, 1e5, 6e7]), st.booleans()), min_size=1, max_size=40), st.integers(2, 3)
)
@examples(max_examples=40, deadline=None)
def test_small_operations_among_large_ones(calls: list[tuple[float, bool]], threads: int) -> None:
    """One thread does those that follow each other, also where a record begins or ends among them."""
    n, program = 640, Program()
    places = [Buffer("input", 4 * n, 0), *(Buffer("scratch", 4 * n) for _ in calls[1:]), Buffer("output", 4 * n, 0)]
    for (work, marked), (at, to) in zip(calls, itertools.pairwise(places), strict=True):
        if marked or not program.marks:
            program.turn_to(())
        program.call(KERNEL, [Ref(to), n, 64, n // 64, 1, 1, 1, 0, Ref(at), 0], n // 64, work)
    image = program.finish(compilers.compiler(host_target()), 1, 1, threads)
    assert image.shared is any(work > 1e3 for work, _ in calls)
    x, workspace = row(n), np.empty(image.workspace, np.uint8)
    parts = [part for _, part in image.parts()]
    for records in (image.records, [part.ctypes.data for part in parts]):
        for _ in range(3):
            y = np.full(n, np.nan, np.float32)
            for record in records:
                pool(threads, True).run(record, image.bases(id(workspace), id(x), id(y)), True)
            np.testing.assert_array_equal(y, x * np.float32(0.5) ** len(calls))


@pytest.mark.parametrize("work", [1e3, 1e9], ids=["brief", "long"])
def test_a_program_as_a_function_refuses_what_it_cannot_read(work: float) -> None:
    """Operands are counted, of NumPy's own class and dense; what was refused has not been run."""
    program = Program()
    there, back = Buffer("input", 4 * 100, 0), Buffer("output", 4 * 100, 0)
    program.call(KERNEL, [Ref(back), 100, 100, 1, 1, 1, 1, 0, Ref(there), 0], 1, work)
    image = program.finish(compilers.compiler(host_target()), 1, 1, 1)
    run, workspace = image.function(pool(1, False).entry), np.empty(image.workspace, np.uint8)
    assert run is not None
    x, y = row(100), np.zeros(100, np.float32)
    for wrong in (row(200)[::2], x.tolist(), x.view(np.matrix), None, x[0]):
        assert run(workspace, wrong, y) is False
    assert run(workspace, x) is False and run() is False
    assert not y.any()
    assert run(workspace, x, y) is True
    np.testing.assert_array_equal(y, x * np.float32(0.5))
    assert program.finish(compilers.compiler(host_target()), 1, 1, 2).shared is (work > 1e6)
    assert (program.finish(compilers.compiler(host_target()), 1, 1, 2).function(pool(2, False).entry) is None) is (
        work > 1e6
    )


# ---- threads

needs_clocks = pytest.mark.skipif(not hasattr(time, "pthread_getcpuclockid"), reason="capability: clocks of threads")


def busy(threads: Pool) -> float:
    """Processor seconds of a pool's helpers: other threads of the process may be compiling."""
    there = [helper.thread for helper in threads._helpers if helper.thread is not None]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) for thread in there)


def one_long_item(threads: Pool, n: int = 4_000_000, depth: int = 40) -> tuple[float, float]:
    """Seconds of a chain of operations of one item each, which a second thread can only wait for, and this thread's processor seconds."""
    program, x, y = Program(), row(n), np.empty(n, np.float32)
    there, back = Buffer("input", 4 * n, 0), Buffer("output", 4 * n, 0)
    for _ in range(depth):
        program.call(KERNEL, [Ref(back), n, n, 1, 1, 1, 1, 0, Ref(there), 0], 1, 1e9)
    image = program.finish(compilers.compiler(host_target()), 1, 1, 2)
    workspace = np.empty(image.workspace, np.uint8)
    wall, own = time.perf_counter(), time.thread_time()
    for record in image.records:
        threads.run(record, image.bases(id(workspace), id(x), id(y)), True)
    wall, own = time.perf_counter() - wall, time.thread_time() - own
    np.testing.assert_array_equal(y, x * np.float32(0.5))
    return wall, own


@pytest.mark.skipif(sys.platform != "linux", reason="threads sleep within a run by Linux's futex")
def test_who_waits_long_within_a_run_sleeps() -> None:
    """Spinning on would take the processor from the very thread that is waited for, where others want it too."""
    shares = []
    for _ in range(3):
        threads = Pool(2, False)
        wall, own = one_long_item(threads)
        shares.append((own + busy(threads)) / wall)
    assert min(shares) < 1.2, shares


def test_threads_wait_without_futex(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "SYSTEM_CALL", {})
    assert "syscall" not in driver.driver_text(host_target())
    one_long_item(Pool(3, True), 1000)


@needs_clocks
def test_threads_without_work_sleep_at_once_or_stay_awake_for_a_while() -> None:
    def awake(spinning: bool) -> float:
        """Seconds that a pool's helper has a processor from its start until it sleeps, at best."""
        took = []
        for _ in range(3):
            made, deadline = Pool(2, spinning), time.perf_counter() + 60
            (helper,) = made._helpers
            assert made._asleep and helper.thread is None, "no thread is started before there is work for it"
            made._summon()
            assert helper.thread is not None and helper.thread.is_alive()
            while not made._asleep:
                assert time.perf_counter() < deadline
                time.sleep(1e-3)
            took.append(busy(made))
        return min(took)

    assert 5 * awake(spinning=False) < awake(spinning=True)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="capability: affinity of threads")
def test_a_helper_that_is_awake_keeps_off_the_processor_its_caller_moved_to(monkeypatch: pytest.MonkeyPatch) -> None:
    here, *others = os.sched_getaffinity(0)
    if not others:
        pytest.skip("capability: two processors")
    threads = Pool(2, True)
    (helper,) = threads._helpers
    for cpu in (here, others[0], here):
        monkeypatch.setattr(pools, "_current_cpu", lambda cpu=cpu: cpu)
        one_long_item(threads, 1000)
        assert os.sched_getaffinity(helper.tid) == {here, *others} - {cpu}


# ---- tensors

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(SHAPES, st.data())
def test_reshaped_views_are_numpys(shape: tuple[int, ...], data: Any) -> None:
    """``Tensor.reshaped`` gives a view exactly where NumPy can, with the same elements."""
    order = data.draw(st.permutations(range(len(shape))))
    array = (
        np.arange(int(np.prod(shape)), dtype=np.float32).reshape([shape[d] for d in order]).transpose(np.argsort(order))
    )
    tensor = Tensor(Buffer("scratch", array.nbytes), array.shape, tuple(s // 4 for s in array.strides))
    parts = data.draw(st.permutations(array.shape))
    view = tensor.reshaped(tuple(parts))
    expected = array.reshape(parts)
    if view is None:
        assert not np.shares_memory(expected, array) or array.size == 1
    else:
        seen = np.lib.stride_tricks.as_strided(array, view.shape, [4 * s for s in view.strides])
        np.testing.assert_array_equal(seen, expected)


def test_dense_strides_of_an_order() -> None:
    assert dense_strides((2, 3, 4)) == (12, 4, 1) and dense_strides((2, 3, 4), (0, 2, 1)) == (12, 1, 3)
