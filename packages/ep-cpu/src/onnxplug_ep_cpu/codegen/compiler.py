"""From kernel descriptions to addresses of machine code: in this process, in the disk cache, or compiled now."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from onnxplug.contract.cache import DiskCache
from onnxplug.contract.digest import blake2b
from onnxplug_ep_cpu.codegen.cache import object_cache
from onnxplug_ep_cpu.codegen.emit import Emitter
from onnxplug_ep_cpu.codegen.host import host
from onnxplug_ep_cpu.codegen.kernels.base import Kernel
from onnxplug_ep_cpu.codegen.loader import SUPPORTED, Code, Loaded, Refused
from onnxplug_ep_cpu.codegen.target import Target

log = logging.getLogger("onnxplug.cpu")


class Compiler:
    """The kernels of one target. Machine code is never unloaded: regions of other sessions may run it."""

    def __init__(self, target: Target, cache: DiskCache | None) -> None:
        self.target, self._cache = target, cache
        self._addresses: dict[Kernel, int] = {}
        self._engines: list[Code] = []
        self._lock = threading.Lock()

    def addresses(self, kernels: Iterable[Kernel]) -> dict[Kernel, int]:
        """The address of each kernel."""
        wanted = dict.fromkeys(kernels)
        with self._lock:
            missing = [kernel for kernel in wanted if kernel not in self._addresses]
            if missing:
                self._add(missing)
            return {kernel: self._addresses[kernel] for kernel in wanted}

    def _add(self, kernels: list[Kernel]) -> None:
        names = {kernel: f"k{self.key(repr(kernel))}" for kernel in kernels}
        objects = [self._object(name, functools.partial(self.text, kernel, name)) for kernel, name in names.items()]
        engine = self._linked(objects)
        self._engines.append(engine)
        for kernel, name in names.items():
            self._addresses[kernel] = engine.get_function_address(name)

    def _object(self, name: str, text: Callable[[], str]) -> bytes:
        found = None if self._cache is None else self._cache.get(name)
        if found is None:
            found = self.compile(text())
            if self._cache is not None:
                self._cache.put(name, found)
        return found

    def _linked(self, objects: Sequence[bytes]) -> Code:
        """The code of object files, ready to run."""
        if SUPPORTED:
            try:
                return Loaded(objects)
            except Refused as reason:
                log.debug("compiled code is loaded by LLVM: %s", reason)
        llvm = _llvm()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._machine())
        for blob in objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(blob))
        engine.finalize_object()
        return engine  # type: ignore[no-any-return]

    def text(self, kernel: Kernel, name: str = "kernel") -> str:
        """A kernel's LLVM IR."""
        emitter = Emitter(name, self.target)
        kernel.emit(emitter)
        return emitter.finish()

    def compile(self, text: str) -> bytes:
        """The object file of a module."""
        return self._machine().emit_object(_llvm().parse_assembly(text))  # type: ignore[no-any-return]

    def assembly(self, kernel: Kernel) -> str:
        """A kernel's assembly language, to be read by people."""
        return self._machine().emit_assembly(_llvm().parse_assembly(self.text(kernel)))  # type: ignore[no-any-return]

    def load(self, text: str) -> Code:
        """The code of a module of its own (the driver)."""
        return self._linked([self._object(f"m{self.key(text)}", lambda: text)])

    def _machine(self) -> Any:
        """A fresh target machine: an execution engine keeps the one it is given."""
        target = _llvm().Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.target.cpu, features=self.target.features, opt=3, reloc="pic", codemodel="small"
        )

    def key(self, text: str) -> str:
        """A name under which what belongs to ``text``, this target and this code is kept."""
        parts = (
            text,
            repr(self.target),
            host().versions,
            _source_digest(),
        )
        return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


@functools.cache
def _llvm() -> Any:
    """LLVM, imported when something has to be compiled."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@functools.cache
def _source_digest() -> str:
    """Hash of the code that writes code: another version of it makes other kernels."""
    digest = blake2b(digest_size=16)
    here = Path(__file__).parent
    for path in sorted(
        [here / "emit.py", here / "expr.py", here / "approx.py", here / "angles.py", *(here / "kernels").glob("*.py")]
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def compiler(target: Target) -> Compiler:
    """The process's one compiler for a target."""
    return Compiler(target, object_cache())
