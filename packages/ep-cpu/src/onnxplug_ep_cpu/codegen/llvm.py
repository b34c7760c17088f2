"""LLVM as llvmlite ships it: from its assembly language to object files, in several threads at once.

LLVM may be used by any number of threads that have a context each (LLVM Programmer's Manual, "Threads and LLVM"). llvmlite's Python
functions hold one lock around every call, and importing them takes as long as to compile three kernels; so the few functions of its
library that a compilation takes are called directly. Their arguments are not a documented interface: they are those of the releases
named here, and with any other llvmlite's own functions compile, one module at a time.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from typing import Any

RELEASES = range(46, 51)
"""Second numbers of llvmlite's versions 0.x whose library has the functions below."""

_OBJECT = 1
_OPTIONS = (3, b"pic", b"small", 0, 0, b"")
"""Level of optimization, relocation and code model, neither machine code printed nor for a JIT linker, the default ABI."""
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "InitializeNativeTarget": (None, ()),
    "InitializeNativeAsmPrinter": (None, ()),
    "GetVersionInfo": (ctypes.c_uint, ()),
    "GetHostCPUName": (None, (POINTER(c_char_p),)),
    "GetHostCPUFeatures": (c_int, (POINTER(c_char_p),)),
    "GetDefaultTargetTriple": (None, (POINTER(c_char_p),)),
    "GetTargetFromTriple": (c_void_p, (c_char_p, POINTER(c_char_p))),
    "CreateTargetMachine": (
        c_void_p, (c_void_p, c_char_p, c_char_p, c_char_p, c_int, c_char_p, c_char_p, c_int, c_int, c_char_p),
    ),
    "ContextCreate": (c_void_p, ()),
    "ContextDispose": (None, (c_void_p,)),
    "ParseAssembly": (c_void_p, (c_void_p, c_char_p, POINTER(c_char_p))),
    "DisposeModule": (None, (c_void_p,)),
    "TargetMachineEmitToMemory": (c_void_p, (c_void_p, c_void_p, c_int, POINTER(c_char_p))),
    "GetBufferStart": (c_void_p, (c_void_p,)),
    "GetBufferSize": (c_size_t, (c_void_p,)),
    "DisposeMemoryBuffer": (None, (c_void_p,)),
    "DisposeString": (None, (c_char_p,)),
}  # fmt: skip


class Objects:
    """Compiles modules for one processor."""

    def __init__(self, cpu: str, features: str) -> None:
        self._cpu, self._features = cpu, features
        self._idle: list[int] = []
        """Target machines that no thread uses at the moment."""

    def compile(self, text: str) -> bytes:
        """The object file of a module. RuntimeError for a text that is none."""
        llvm = library()
        if llvm is None:
            machine = self.machine()
            code: bytes = machine.emit_object(binding().parse_assembly(text))
            return code
        try:
            taken = self._idle.pop()
        except IndexError:
            taken = self._made(llvm)
        said, context, module, buffer = c_char_p(), llvm.ContextCreate(), None, None
        try:
            module = llvm.ParseAssembly(context, text.encode(), byref(said))
            if not said.value:
                buffer = llvm.TargetMachineEmitToMemory(taken, module, _OBJECT, byref(said))
            if not buffer:
                raise RuntimeError(f"LLVM does not compile what was generated: {_text(llvm, said)}")
            return ctypes.string_at(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer))
        finally:
            self._idle.append(taken)
            if buffer:
                llvm.DisposeMemoryBuffer(buffer)
            if module:
                llvm.DisposeModule(module)
            llvm.ContextDispose(context)

    def machine(self) -> Any:
        """One of llvmlite's own target machines for this processor, not used before: an execution engine keeps the one it gets."""
        level, reloc, model, *_ = _OPTIONS
        target = binding().Target.from_default_triple()
        return target.create_target_machine(
            cpu=self._cpu, features=self._features, opt=level, reloc=reloc.decode(), codemodel=model.decode()
        )

    def _made(self, llvm: _Library) -> int:
        triple, said = c_char_p(), c_char_p()
        llvm.GetDefaultTargetTriple(byref(triple))
        name = _text(llvm, triple).encode()
        target = llvm.GetTargetFromTriple(name, byref(said))
        if not target:
            raise RuntimeError(_text(llvm, said))
        made: int | None = llvm.CreateTargetMachine(
            target, name, self._cpu.encode(), self._features.encode(), *_OPTIONS
        )
        if not made:
            raise RuntimeError(f"LLVM has no target machine for {self._cpu}")
        return made


class _Library:
    """The functions above of a file, without their prefix. AttributeError where one is not there."""

    def __init__(self, path: str) -> None:
        handle = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(handle, f"LLVMPY_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


_opening = threading.Lock()


def library() -> _Library | None:
    """llvmlite's library, opened when something has to be compiled; None where its release is not one of those known."""
    with _opening:
        return _opened()


@functools.cache
def _opened() -> _Library | None:
    import llvmlite

    numbers = llvmlite.__version__.split(".")
    path = path_of_library()
    if path is None or numbers[0] != "0" or not numbers[1].isdecimal() or int(numbers[1]) not in RELEASES:
        return None
    try:
        found = _Library(path)
    except AttributeError:
        return None
    found.InitializeNativeTarget()
    found.InitializeNativeAsmPrinter()
    let_go(path)
    return found


_DONTNEED = 4
"""MADV_DONTNEED of Linux: pages that are the file's are mapped again when they are read."""


def let_go(path: str) -> None:
    """Takes pages of a loaded library that nobody wrote to out of this process's memory (Linux only). Loading LLVM runs seven hundred
    constructors all over its text and reads its relocations: 40 megabytes, of which compiling needs half."""
    if sys.platform != "linux":
        return
    with suppress(OSError), open("/proc/self/smaps", encoding="utf-8", errors="surrogateescape") as maps:
        libc = ctypes.CDLL(None)
        for start, end in _clean(maps, os.path.realpath(path)):
            libc.madvise(c_void_p(start), c_size_t(end - start), _DONTNEED)


def _clean(maps: Iterable[str], path: str) -> Iterator[tuple[int, int]]:
    """Where a file lies that is mapped for reading and has no page of this process's own, such as relocated pointers are."""
    found = None
    for line in maps:
        fields = line.split(maxsplit=5)
        if not fields[0].endswith(":"):
            mapped = len(fields) == 6 and fields[5].rstrip("\n") == path and "w" not in fields[1]
            found = tuple(int(end, 16) for end in fields[0].split("-")) if mapped else None
        elif found and fields[:2] == ["Anonymous:", "0"]:
            yield found[0], found[1]


def path_of_library() -> str | None:
    """The library's file; None where it is not beside the package's modules. ImportError where there is no llvmlite."""
    found = importlib.util.find_spec("llvmlite.binding")
    if found is None or found.origin is None:
        raise ImportError("there is no llvmlite.binding")
    folder = os.path.dirname(found.origin)
    return next((os.path.join(folder, name) for name in sorted(os.listdir(folder)) if "llvmlite." in name), None)


def processor() -> tuple[str, str, str]:
    """LLVM's name of this machine's processor, its features ("+avx2,-avx512f,...") and LLVM's version. ImportError or OSError
    where there is no llvmlite, or none that can be loaded."""
    llvm = library()
    if llvm is None:
        llvm = binding()
        version = ".".join(map(str, llvm.llvm_version_info))
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), version
    name, features = c_char_p(), c_char_p()
    llvm.GetHostCPUName(byref(name))
    llvm.GetHostCPUFeatures(byref(features))
    packed = llvm.GetVersionInfo()
    version = f"{packed >> 16 & 255}.{packed >> 8 & 255}.{packed & 255}"
    listed = sorted((text for text in _text(llvm, features).split(",") if text), key=lambda text: text[1:])
    return _text(llvm, name), ",".join(listed), version


def _text(llvm: _Library, given: c_char_p) -> str:
    """What LLVM wrote, which is given back."""
    text = (given.value or b"").decode()
    if given:
        llvm.DisposeString(given)
    return text


@functools.cache
def binding() -> Any:
    """llvmlite's own functions."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm
