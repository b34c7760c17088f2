"""Compiling in threads: the same object files whoever makes them, each once, and faults where they are asked for."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
import pytest

from onnxplug.contract.cache import DiskCache
from onnxplug_ep_cpu.codegen import crew, llvm
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.cache import LIMIT, SUFFIX
from onnxplug_ep_cpu.codegen.compiler import Compiler
from onnxplug_ep_cpu.codegen.crew import Crew, Job
from onnxplug_ep_cpu.codegen.driver import driver_text
from onnxplug_ep_cpu.codegen.emit import Emitter
from onnxplug_ep_cpu.codegen.kernels.gemm import Gemm
from onnxplug_ep_cpu.codegen.kernels.map import Map
from onnxplug_ep_cpu.codegen.kernels.qdot import QDot
from onnxplug_ep_cpu.codegen.llvm import Objects
from onnxplug_ep_cpu.codegen.loader import SUPPORTED, Loaded, Refused
from onnxplug_ep_cpu.codegen.target import host_target

TARGET = host_target()


def kernels(count: int) -> list[Map]:
    """Loops that add and multiply by numbers of their own."""
    exprs = [(("leaf", 0), ("const", float(n + 2)), ("mul", 0, 1), ("tanh", 2)) for n in range(count)]
    return [Map(expr, (("float32", "v"),), 0) for expr in exprs]


@pytest.fixture
def objects() -> Objects:
    return Objects(TARGET.cpu, TARGET.features)


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A llvmlite whose library is not known."""
    monkeypatch.setattr(llvm, "library", lambda: None)


def texts() -> list[str]:
    made = Compiler(TARGET, None)
    return [driver_text(TARGET), *(made.text(k) for k in (Gemm(2, 2, 4, False), Gemm(1, 1, 1, True), *kernels(6)))]


def resident(path: str) -> int:
    """Kilobytes of a file's code that are in this process's memory."""
    mapped, found = False, 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        fields = line.split()
        if not fields[0].endswith(":"):
            mapped = fields[-1] == path and fields[1] == "r-xp"
        elif mapped and fields[0] == "Rss:":
            found += int(fields[1])
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked at as Linux shows it")
def test_memory_that_only_starting_llvm_took_is_given_back(objects: Objects) -> None:
    text = texts()[0]
    made, path = objects.compile(text), llvm.path_of_library()
    assert path is not None
    before = resident(os.path.realpath(path))
    assert before > 0
    llvm.let_go(path)
    assert resident(os.path.realpath(path)) < before / 2
    assert objects.compile(text) == made


# ---- LLVM without llvmlite's lock


def test_llvmlites_own_functions_make_the_same_objects(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    assert llvm.library() is not None, "the installed llvmlite's library is not used"
    made = [objects.compile(text) for text in texts()]
    monkeypatch.setattr(llvm, "library", lambda: None)
    assert [objects.compile(text) for text in texts()] == made


def test_threads_make_the_same_objects(objects: Objects) -> None:
    made = [objects.compile(text) for text in texts()]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(4):
            assert list(threads.map(objects.compile, texts())) == made


def test_threads_may_use_llvmlite_at_the_same_time(objects: Objects) -> None:
    """As numba does, in the same process."""
    wanted = [objects.compile(text) for text in texts()]
    module = llvm.binding()

    def theirs(text: str) -> bytes:
        return objects.machine().emit_object(module.parse_assembly(text))  # type: ignore[no-any-return]

    with ThreadPoolExecutor(4) as threads:
        ours, others = threads.map(objects.compile, texts()), threads.map(theirs, texts())
        assert list(ours) == wanted == list(others)


def test_what_is_no_module_is_refused(objects: Objects) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="does not compile"):
            objects.compile("define void @f() { ret i32 nothing }")
    assert objects.compile("define void @f() { ret void }")


def test_a_processor_llvm_does_not_know_is_still_compiled_for() -> None:
    assert Objects("", "").compile("define void @f() { ret void }")


@pytest.mark.parametrize("version", ["0.45.1", "0.51.0", "1.0.0", "0+unknown"])
def test_another_release_compiles_by_its_own_functions(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvmlite, "__version__", version)
    assert llvm._opened.__wrapped__() is None


def test_a_library_without_the_functions_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(llvm._FUNCTIONS, "NoSuchFunction", (None, ()))
    assert llvm._opened.__wrapped__() is None


def test_both_ways_tell_the_same_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    found = llvm.processor()
    monkeypatch.setattr(llvm, "library", lambda: None)
    assert llvm.processor() == found


# ---- kernels of several layers


def quantizing(scale: float, zero: int) -> Map:
    """float32 to uint8, as QuantizeLinear."""
    build = ex.Build()
    value = build("mul", build("leaf", 0), build("const", 1.0 / scale))
    limits = build("const", float(-zero)), build("const", float(255 - zero))
    expr = build.finish(build("quantize", value, *limits, build("int32", zero)))
    return Map(expr, (("float32", "v"),), 0, "uint8")


def quantized(address: int, x: np.ndarray) -> np.ndarray:
    """What such a kernel makes of a row."""
    made = np.zeros(x.size, np.uint8)
    args = np.array([made.ctypes.data, x.size, x.size, 1, 1, 1, 1, 0, x.ctypes.data, 0], np.int64)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)(args.ctypes.data, 0, 1)
    return made


LAYERS = [(0.5, 3), (0.25, 3), (0.5, 128), (0.125, 255), (1.0, 1)]


@pytest.mark.parametrize("refused", [False, True])
def test_layers_that_differ_by_numbers_share_code(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refused:  # as where the system does not let a program make its memory executable

        def refuse(*_: Any) -> None:
            raise Refused("no reason at all")

        monkeypatch.setattr(Loaded, "__init__", refuse)
    elif not SUPPORTED:
        pytest.skip("capability: objects for x86-64 Linux")
    made = Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT))
    x = np.linspace(-80, 80, 321, dtype=np.float32)
    kernels_ = [quantizing(*layer) for layer in LAYERS]
    for kernel in kernels_:
        made.begin(kernel)
    addresses = made.addresses(kernels_)
    for kernel, (scale, zero) in zip(kernels_, LAYERS, strict=True):
        wanted = np.clip(np.rint(x * np.float32(1 / scale)) + zero, 0, 255).astype(np.uint8)
        np.testing.assert_array_equal(quantized(addresses[kernel], x), wanted)
    assert refused or len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1


def test_what_changes_the_code_is_not_shared() -> None:
    with_zero, numbers = ex.shared(quantizing(0.5, 3).expr)
    assert numbers == (2.0, -3.0, 252.0, 3) and ("given_int32", 3) in with_zero
    without, numbers = ex.shared(quantizing(0.5, 0).expr)
    assert ("int32", 0) in without and len(numbers) == 3
    bounded = (("leaf", 0), ("const", 0.0), ("max", 0, 1), ("const", 9.0), ("int32", 4), ("quantize", 2, 1, 3, 4))
    assert ex.shared(bounded)[0][1] == ("const", 0.0), "a bound may not be NaN"
    plain = (("leaf", 0), ("const", 0.5), ("mul", 0, 1))
    assert ex.shared(plain) == (plain, ())


def test_layers_that_dequantize_sums_share_code() -> None:
    """Whose weights are quantized, and whose data a run quantizes: each has a scale of its own."""
    exprs = [(("leaf", 0), ("to_float32", 0), ("const", scale), ("mul", 1, 2)) for scale in (0.25, 0.5)]
    layers = [QDot(5, 4, "uint8", expr, result="float32") for expr in exprs]
    (one, held), (other, also) = (ex.shared(layer.expr, layer.dequantizes) for layer in layers)
    assert one == other and (held, also) == ((0.25,), (0.5,))
    assert not QDot(5, 4, "uint8").dequantizes


# ---- jobs


def test_a_job_is_done_once_and_everybody_gets_the_result() -> None:
    began: list[int] = []
    go = threading.Event()

    def make() -> bytes:
        began.append(1)
        go.wait(10)
        return b"made"

    job = Job(make)
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(job.result) for _ in range(4)]
        go.set()
        assert [each.result() for each in found] == [b"made"] * 4
    assert began == [1]


ENDS = """
import os, sys, threading, time
from onnxplug_ep_cpu.codegen.crew import Crew, Job
given, begun = threading.Event(), threading.Event()
def slow():
    given.wait()
    begun.set()
    while crew._waiting:  # until the process ends
        time.sleep(0.01)
    time.sleep(0.3)
    os.write(1, b"made ")
    return b""
crew = Crew()
crew._size = 1
crew.add(Job(slow))
crew.add(Job(lambda: os.write(1, b"not wanted any more") and b""))
given.set()
begun.wait()
"""


def test_a_process_ends_when_what_its_crew_makes_is_made() -> None:
    """LLVM's library crashes when it is compiling while the process takes it apart."""
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "made ", "")


def test_the_crew_ends_when_there_is_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "MOST", 3)
    made = Crew()
    jobs = [Job(lambda n=n: bytes([n])) for n in range(50)]  # type: ignore[misc]
    for job in jobs:
        made.add(job)
    assert [job.result() for job in jobs] == [bytes([n]) for n in range(50)]
    names = [t for t in threading.enumerate() if t.name == "onnxplug-cpu-compile"]
    for thread in names:
        thread.join(60)
    assert not made._threads


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    job: Job[bytes] = Job(lambda: bytes(1 // 0))
    made = Crew()
    made.add(job)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            job.result()


# ---- the compiler


def test_what_was_begun_is_what_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT))
    compiled: list[str] = []
    compile_ = Compiler.compile
    monkeypatch.setattr(Compiler, "compile", lambda self, text: compiled.append(text) or compile_(self, text))
    wanted = kernels(5)
    for kernel in wanted * 3:
        made.begin(kernel)
    addresses = made.addresses(wanted)
    assert len(set(addresses.values())) == 5 == len(compiled) == len(list(tmp_path.glob(f"*{SUFFIX}")))
    assert not made._jobs, "blobs are kept although their code is loaded"


def test_threads_asking_for_the_same_kernels_get_the_same_code(tmp_path: Path) -> None:
    made = Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT))
    wanted = kernels(8)

    def ask(number: int) -> Any:
        mine = wanted[number % 3 :]
        for kernel in mine:
            made.begin(kernel)
        return made.addresses(mine)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(24)))
    first = found[0]
    assert all(addresses[k] == first[k] for addresses in found for k in addresses)


def test_a_fault_of_a_kernel_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler(TARGET, None)
    (kernel,) = kernels(1)
    with monkeypatch.context() as patch:
        patch.setattr(Compiler, "compile", lambda *_: bytes(1 // 0))
        made.begin(kernel)
        with pytest.raises(ZeroDivisionError):
            made.addresses([kernel])
    assert made.addresses([kernel])[kernel]


def test_what_cannot_be_written_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Compiler(TARGET, None)
    (kernel,) = kernels(1)

    def fail(self: Map, f: Emitter) -> None:
        raise IndexError("a fault")

    monkeypatch.setattr(Map, "emit", fail)
    with pytest.raises(IndexError, match="a fault"):
        made.begin(kernel)


def test_without_the_library_the_compiler_makes_the_same(locked: None, tmp_path: Path) -> None:
    made = Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT))
    assert made.addresses(kernels(3)).keys() == set(kernels(3))


def test_who_waits_for_several_kernels_makes_what_the_crew_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The crew has the first one in hand, which is done when the last one is."""
    made, last = Compiler(TARGET, None), threading.Event()
    monkeypatch.setattr(crew, "MOST", 1)
    made.forget()

    def compiled(text: str) -> bytes:
        if text == "last":
            last.set()
        return bytes(last.wait(120))

    monkeypatch.setattr(made, "compile", compiled)
    order = ("first", "second", "third", "last")
    assert set(made._finished({name: lambda name: name for name in order}).values()) == {bytes(1)}


def test_a_damaged_object_is_made_again(tmp_path: Path) -> None:
    wanted = kernels(3)
    Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT)).addresses(wanted)
    victim, *_ = sorted(tmp_path.glob(f"*{SUFFIX}"))
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-40] + bytes(40))
    Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT)).addresses(wanted)
    assert victim.read_bytes() == whole


@pytest.mark.skipif(not hasattr(os, "fork"), reason="capability: fork")
def test_a_child_forked_while_its_parent_compiles_makes_its_own() -> None:
    made = Compiler(TARGET, None)
    held = threading.Event()
    blocked = Job(lambda: bytes(held.wait(30)))
    made._crew.add(blocked)
    wanted = kernels(2)
    for kernel in wanted:
        made.begin(kernel)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(made, wanted, queue))
    child.start()
    try:
        assert queue.get(timeout=60) == [True, True]
    finally:
        held.set()
        child.join(60)
    assert child.exitcode == 0


def _in_child(made: Compiler, wanted: list[Map], queue: Any) -> None:
    made.forget()  # what ``compilers`` has done for the process's own
    queue.put([address > 0 for address in made.addresses(wanted).values()])


def test_compiled_code_computes(tmp_path: Path) -> None:
    text = "define float @third(float %x) {\n  %y = fdiv float %x, 3.0\n  ret float %y\n}"
    code = Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT)).load(text)
    function = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.get_function_address("third"))
    assert function(6.0) == 2.0


def test_a_module_is_loaded_once_and_stays(tmp_path: Path) -> None:
    """Of two threads that load one at the same time, one would have functions of code that goes with what nobody else has."""
    made, text = Compiler(TARGET, DiskCache(tmp_path, SUFFIX, LIMIT)), "define i64 @one() {\n  ret i64 1\n}"
    barrier = threading.Barrier(4)

    def load(_: int) -> Any:
        barrier.wait()
        return made.load(text)

    with ThreadPoolExecutor(4) as threads:
        first, *others = threads.map(load, range(4))
    assert all(other is first for other in others)
    there = weakref.ref(first)
    del first, others
    gc.collect()
    assert there() is not None


def test_processes_that_share_a_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    children = [context.Process(target=_elsewhere, args=(str(tmp_path), queue)) for _ in range(3)]
    for child in children:
        child.start()
    assert [queue.get(timeout=120) for _ in children] == [6] * 3
    for child in children:
        child.join(60)
    assert not list(tmp_path.glob("*.tmp"))


def _elsewhere(folder: str, queue: Any) -> None:
    made = Compiler(TARGET, DiskCache(Path(folder), SUFFIX, LIMIT))
    for kernel in kernels(6):
        made.begin(kernel)
    queue.put(len(set(made.addresses(kernels(6)).values())))
