"""From kernel descriptions to addresses of machine code: in this process, in the disk cache, or compiled now."""

from __future__ import annotations

import functools
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from onnxplug.contract.cache import DiskCache
from onnxplug.contract.digest import blake2b
from onnxplug.contract.logs import Log
from onnxplug_ep_cpu.codegen.cache import object_cache
from onnxplug_ep_cpu.codegen.crew import Crew, Job
from onnxplug_ep_cpu.codegen.host import host
from onnxplug_ep_cpu.codegen.llvm import Objects, binding
from onnxplug_ep_cpu.codegen.loader import GIVEN_BYTES, SUPPORTED, Code, Loaded, Refused
from onnxplug_ep_cpu.codegen.target import Target

if TYPE_CHECKING:
    from onnxplug_ep_cpu.codegen.kernels.base import Kernel

log = Log("onnxplug.cpu")

_SETTLED = 2_000_000_000
"""Nanoseconds for which files of code must have been left alone to be known by their times, which are coarse somewhere."""

Function = tuple[str, tuple[bytes, ...]]
"""A kernel as it is on disk: the name of its object file, and the constants that the file leaves open."""


class Compiler:
    """The kernels of one target. Machine code is never unloaded: regions of other sessions may run it."""

    def __init__(self, target: Target, cache: DiskCache | None) -> None:
        self.target, self._cache = target, cache
        self._objects = Objects(target.cpu, target.features)
        self._addresses: dict[Kernel, int] = {}
        self._names: dict[Kernel, str] = {}
        self._forms: dict[Kernel, tuple[Kernel, tuple[bytes, ...]]] = {}
        self._own_loader = SUPPORTED
        self._engines: list[Code] = []
        self._modules: dict[str, Code] = {}
        self._reached: dict[Function, int] = {}
        self.forget()

    def forget(self) -> None:
        """Leave what other threads have begun: they are not there, in a process forked from theirs."""
        self._lock, self._crew = threading.Lock(), Crew()
        self._jobs: dict[str, Job[bytes]] = {}
        """Object files that are made, or read and not loaded yet, by name."""

    def begin(self, kernel: Kernel) -> None:
        """Have a kernel's code made by other threads, if it is not at hand: ``addresses`` will ask for it."""
        if kernel not in self._addresses:
            form, _ = self._form(kernel)
            self._begun(self._name(form), functools.partial(self.text, form))

    def begin_module(self, text: str) -> None:
        """``begin`` for what ``load`` will ask for."""
        self._begun(self._module_name(text), lambda name: text)

    def addresses(self, kernels: Iterable[Kernel]) -> dict[Kernel, int]:
        """The address of each kernel."""
        wanted = dict.fromkeys(kernels)
        missing = [kernel for kernel in wanted if kernel not in self._addresses]
        if missing:
            try:
                self._add(missing)
            except Refused as reason:
                log.debug("compiled code is loaded by LLVM: %s", reason)
                self._own_loader = False
                self._forms.clear()
                self._add(missing)
        return {kernel: self._addresses[kernel] for kernel in wanted}

    def _add(self, kernels: Sequence[Kernel]) -> None:
        forms = {kernel: self._form(kernel) for kernel in kernels}
        names = {form: self._name(form) for form, _ in forms.values()}
        blobs = self._finished({name: functools.partial(self.text, form) for form, name in names.items()})
        with self._lock:
            missing = [kernel for kernel in kernels if kernel not in self._addresses]
            if not missing:  # another thread asked for the same
                return
            called = [names[forms[kernel][0]] for kernel in missing]
            engine = self._linked([blobs[name] for name in called], [forms[kernel][1] for kernel in missing])
            self._engines.append(engine)
            for number, (kernel, name) in enumerate(zip(missing, called, strict=True)):
                own = (
                    engine.functions[number][name] if isinstance(engine, Loaded) else engine.get_function_address(name)
                )
                self._addresses[kernel] = own

    def _form(self, kernel: Kernel) -> tuple[Kernel, tuple[bytes, ...]]:
        """The kernel that is compiled for this one and others, and the constants that make it this one."""
        found = self._forms.get(kernel)
        if found is None:
            from onnxplug_ep_cpu.codegen import expr as ex

            expr = getattr(kernel, "expr", None) if self._own_loader else None
            dequantizes = getattr(kernel, "dequantizes", False)
            form, values = (None, ()) if expr is None else ex.shared(expr, dequantizes)
            whole: Any = kernel
            given = tuple(struct.pack("<f" if isinstance(v, float) else "<i", v) * (GIVEN_BYTES // 4) for v in values)
            found = self._forms[kernel] = (replace(whole, expr=form), given) if values else (kernel, ())
        return found

    def function(self, kernel: Kernel) -> Function | None:
        """The kernel as a later process finds it by ``reached``; None where it is not kept in a way that this can load."""
        if self._cache is None or not self._own_loader:
            return None
        form, given = self._form(kernel)
        return self._name(form), given

    def reached(self, functions: Sequence[Function]) -> list[int] | None:
        """The addresses of kernels that are on disk; None where not all are."""
        missing = [each for each in dict.fromkeys(functions) if each not in self._reached]
        if missing:
            files = {name: None if self._cache is None else self._cache.get(name) for name, _ in missing}
            blobs = [blob for name, _ in missing if (blob := files[name]) is not None]
            if not self._own_loader or len(blobs) < len(missing):
                return None
            try:
                code = Loaded(blobs, [given for _, given in missing])
            except Refused as reason:
                log.debug("compiled code is not loaded: %s", reason)
                return None
            self._engines.append(code)
            for number, (name, given) in enumerate(missing):
                self._reached[name, given] = code.functions[number][name]
        return [self._reached[each] for each in functions]

    def load(self, text: str) -> Code:
        """The code of a module of its own (the driver): one for all who ask, since functions are made of it that do not keep it."""
        name = self._module_name(text)
        if name not in self._modules:
            blobs = list(self._finished({name: lambda name: text}).values())
            with self._lock:
                if name not in self._modules:
                    self._modules[name] = self._module(blobs)
        return self._modules[name]

    def _module(self, blobs: Sequence[bytes]) -> Code:
        try:
            return self._linked(blobs)
        except Refused as reason:
            log.debug("compiled code is loaded by LLVM: %s", reason)
            return self._linked_by_llvm(blobs)

    def _finished(self, texts: Mapping[str, Callable[[str], str]]) -> dict[str, bytes]:
        """The object files of these names, from functions that write the text of a name."""
        jobs = {name: self._begun(name, text) for name, text in texts.items()}
        try:
            for job in reversed(jobs.values()):  # from the end that the crew comes to last
                job.run()
            return {name: job.result() for name, job in jobs.items()}
        finally:
            with self._lock:
                for name in jobs:
                    self._jobs.pop(name, None)

    def _begun(self, name: str, text: Callable[[str], str]) -> Job[bytes]:
        """The job that makes an object file: none of work if the file is in the cache."""
        with self._lock:
            job = self._jobs.get(name)
            if job is None:
                found = None if self._cache is None else self._cache.get(name)
                if found is None:
                    job = Job(functools.partial(self._made, name, text(name)))
                    self._crew.add(job)
                else:
                    job = Job(functools.partial(bytes, found))
                self._jobs[name] = job
            return job

    def _made(self, name: str, text: str) -> bytes:
        made = self.compile(text)
        if self._cache is not None:
            self._cache.put(name, made)
        return made

    def _linked(self, objects: Sequence[bytes], given: Sequence[Sequence[bytes]] = ()) -> Code:
        """The code of object files, ready to run. Refused where LLVM has to load it, which cannot put constants in."""
        return Loaded(objects, given) if self._own_loader else self._linked_by_llvm(objects)

    def _linked_by_llvm(self, objects: Sequence[bytes]) -> Code:
        llvm = binding()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self._objects.machine())
        for blob in dict.fromkeys(objects):
            engine.add_object_file(llvm.ObjectFileRef.from_data(blob))
        engine.finalize_object()
        code: Code = engine
        return code

    def text(self, kernel: Kernel, name: str = "kernel") -> str:
        """A kernel's LLVM IR."""
        from onnxplug_ep_cpu.codegen.emit import Emitter

        emitter = Emitter(name, self.target)
        kernel.emit(emitter)
        return emitter.finish()

    def compile(self, text: str) -> bytes:
        """The object file of a module."""
        return self._objects.compile(text)

    def assembly(self, kernel: Kernel) -> str:
        """A kernel's assembly language, to be read by people."""
        listing: str = self._objects.machine().emit_assembly(binding().parse_assembly(self.text(kernel)))
        return listing

    def _name(self, kernel: Kernel) -> str:
        name = self._names.get(kernel)
        if name is None:
            name = self._names[kernel] = f"k{self.key(repr(kernel))}"
        return name

    def _module_name(self, text: str) -> str:
        return f"m{self.key(text)}"

    @functools.cached_property
    def _surroundings(self) -> str:
        return "\n".join((repr(self.target), host().versions, _source_digest()))

    def key(self, text: str) -> str:
        """A name under which what belongs to ``text``, this target and this code is kept."""
        parts = (text, self._surroundings)
        return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


@functools.cache
def _source_digest() -> str:
    """Hash of the code that writes code: another version of it makes other kernels. The answer is kept by the files' sizes and times,
    as to read them all takes a tenth of a small model's session."""
    here = os.path.dirname(__file__)
    kernels = os.path.join(here, "kernels")
    written = [os.path.join(here, name) for name in ("emit.py", "expr.py", "approx.py", "angles.py")]
    written += (os.path.join(kernels, name) for name in os.listdir(kernels) if name.endswith(".py"))
    written.sort()
    states = [(state.st_size, state.st_mtime_ns) for state in map(os.stat, written)]
    times = repr(list(zip(written, states, strict=True))).encode("utf-8", "surrogatepass")
    cache, name = object_cache(), f"s{blake2b(times, digest_size=16).hexdigest()}"
    settled = max(modified for _, modified in states) < time.time_ns() - _SETTLED
    kept = cache.get(name) if cache is not None and settled else None
    if kept is not None:
        return kept.decode()
    digest = blake2b(digest_size=16)
    for path in written:
        with open(path, "rb") as file:
            digest.update(file.read())
    found = digest.hexdigest()
    if cache is not None and settled:
        cache.put(name, found.encode())
    return found


_compilers: dict[Target, Compiler] = {}
_making = threading.Lock()


def compiler(target: Target) -> Compiler:
    """The process's one compiler for a target."""
    with _making:
        found = _compilers.get(target)
        if found is None:
            found = _compilers[target] = Compiler(target, object_cache())
        return found


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    for each in _compilers.values():
        each.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
