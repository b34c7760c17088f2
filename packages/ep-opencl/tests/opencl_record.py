"""Jobs that tests run on a device, kept so that a simulator runs them again (``opencl_replay``): for each form of a kernel the smallest.

Every kernel comes from a function of onnxplug-kernel-text, its *generator*. Its *form* is its text without what only sizes decide. The
provider's tests keep a record in the file that ``ONNXPLUG_RECORD`` names; with ``ONNXPLUG_RECORD_AS=gpu`` they take the device for one that
is no processor, so that the other form of each kernel is recorded, too (``nox -s oclgrind``)."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import pickle
import pkgutil
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

import onnxplug_ep_opencl.provider  # and all that it imports, where names of generators are replaced
import onnxplug_kernel_text
from onnxplug_ep_opencl.faults import Faults
from onnxplug_ep_opencl.fuse.region import DeviceRegion
from onnxplug_ep_opencl.kernels.call import DeviceKernel
from onnxplug_ep_opencl.launch import BoundJob, Launch
from onnxplug_ep_opencl.machine import Machine
from onnxplug_kernel_text.types import OF_ELEMENT

LARGEST = 1 << 21
"""What a job may cost to be kept (see ``_cost``): a simulator takes seconds for more."""
_BETTER = 0.7
"""Another job of the same form is kept in place of the last one if it costs less than this part of it: reading operands takes time."""
_OF_CUDA = {"attention.joined", "indexing.bounds", "pool.pooling"}
"""Generators that only the provider for CUDA uses; ``test_cuda_races`` has them run."""
_LOOPS = 8
"""Lines before a line among which an equal one counts as the same, unrolled."""
_TYPES = frozenset(OF_ELEMENT.values())
_CLASSES = {"f16": "half", "bf16": "half", "f32": "real", "f64": "real", "b8": "truth"}
"""Types whose kernels have the same text but for the type; all others are signed or unsigned integers."""


def generators() -> list[str]:
    """``MODULE.FUNCTION`` of all that writes the head of a kernel, or calls what does so, but of what only CUDA's provider has."""
    writers, uses = set(), {}
    for module in pkgutil.iter_modules(onnxplug_kernel_text.__path__, f"{onnxplug_kernel_text.__name__}."):
        if module.ispkg:
            continue
        made = importlib.import_module(module.name)
        assert made.__file__ is not None
        for function in ast.parse(Path(made.__file__).read_text()).body:
            if isinstance(function, ast.FunctionDef):
                nodes, name = list(ast.walk(function)), _qualified(vars(made)[function.name])
                writers |= {name} if any(_heads(node) for node in nodes) else set()
                uses[name] = {_qualified(vars(made).get(n.id)) for n in nodes if isinstance(n, ast.Name)}
    while more := {name for name, used in uses.items() if used & writers} - writers:
        writers |= more
    return sorted(writers - _OF_CUDA)


def form(text: str, name: str) -> str:
    """A kernel's text without its name, numbers and the widths of types. Of lines that then repeat, as those of loops that were unrolled,
    one is left."""

    def token(found: re.Match[str]) -> str:
        if found[0][0].isdigit():
            return "N"
        parts = found[0].removeprefix(name).split("_")
        return re.sub(r"\d+", "", "_".join(_CLASSES.get(p, p[0] if p in _TYPES else p) for p in parts))

    kept: list[str] = []
    for line in re.split(r"(?<=[;{}])\s*|\n\s*", re.sub(r"\w[\w.]*", token, text)):
        if line and line not in kept[-_LOOPS:]:
            kept.append(line)
    return "\n".join(kept)


@dataclass(frozen=True)
class Case:
    """A job. ``memories``: the bytes of its buffers before it runs, how many where none has been written. ``tensors`` of each launch are
    pairs (number of a memory, elements from its start). ``places``: (number of a memory, bytes from its start) of each operand.
    ``results``: what outputs are behind the job, by operand, where they are not what was there before it."""

    launches: Sequence[Launch]
    tensors: Sequence[Sequence[tuple[int, int]]]
    memories: Sequence[np.ndarray | int]
    places: Mapping[int, tuple[int, int]]
    results: dict[int, np.ma.MaskedArray[Any, Any]] = field(default_factory=dict)


@dataclass
class Record:
    """``cases``: the smallest job of each form, with its cost and the test that ran it; without it where it costs too much. ``writers``:
    the generators of each form."""

    cases: dict[str, tuple[float, str, Case | None]] = field(default_factory=dict)
    writers: dict[str, frozenset[str]] = field(default_factory=dict)

    def merge(self, other: Record) -> None:
        """Have the smaller jobs of both."""
        for made, kept in other.cases.items():
            if made not in self.cases or kept[0] < self.cases[made][0] or self.cases[made][2] is None:
                self.cases[made] = kept
            self.writers[made] = self.writers.get(made, frozenset()) | other.writers[made]

    def lacking(self) -> list[str]:
        """What no job runs: generators, and forms that only jobs have that cost too much."""
        seen = frozenset[str]().union(
            *(self.writers[made] for made, (*_, case) in self.cases.items() if case is not None)
        )
        missing = [f"no test runs a kernel of {name}" for name in generators() if name not in seen]
        for made, (_, test, case) in self.cases.items():
            if case is None:
                names = ", ".join(sorted(self.writers[made]))
                missing.append(f"of {names} this has no small case, only {test}:\n{made}")
        return missing


class Recorder:
    """Records what runs while it is ``installed``."""

    def __init__(self) -> None:
        self.record = Record()
        self._calls = threading.local()
        self._written: dict[str, frozenset[str]] = {}
        self._forms: dict[tuple[str, str], str] = {}
        self._lock = threading.RLock()

    @contextmanager
    def installed(self, as_gpu: bool = False) -> Iterator[Record]:
        """``as_gpu``: devices are taken for such as are no processors and have no vectors."""
        bound, launched, call, made = DeviceKernel._bound, DeviceRegion._launched, BoundJob.__call__, Machine.__init__

        def of_kernel(kernel: DeviceKernel, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            return _with_counts(bound(kernel, inputs, outputs), inputs, outputs)

        def of_region(region: DeviceRegion, *given: Any) -> Any:
            return _with_counts(launched(region, *given), region.inputs, region.outputs)

        def recorded(job: BoundJob, *operands: Any) -> None:
            self._run(job, operands, functools.partial(call, job, *operands))

        def of_gpu(machine: Machine, device: Any) -> None:
            made(machine, device)
            machine.is_processor, machine.vector = False, 4

        with pytest.MonkeyPatch.context() as patch:
            self._watch_generators(patch)
            patch.setattr(DeviceKernel, "_bound", of_kernel)
            patch.setattr(DeviceRegion, "_launched", of_region)
            patch.setattr(BoundJob, "__call__", recorded)
            if as_gpu:
                patch.setattr(Machine, "__init__", of_gpu)
            yield self.record

    def _watch_generators(self, patch: pytest.MonkeyPatch) -> None:
        names = generators()
        packages = (onnxplug_kernel_text.__name__, onnxplug_ep_opencl.__name__)
        modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] in packages]
        for name in names:
            module, function = name.split(".")
            plain = getattr(sys.modules[f"{onnxplug_kernel_text.__name__}.{module}"], function)
            watched = functools.partial(self._generate, name, plain)
            for other in modules:
                for known, value in list(vars(other).items()):
                    if value is plain:
                        patch.setattr(other, known, watched)

    def _generate(self, name: str, plain: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """What a generator gives; whoever calls it writes the same kernel."""
        calls = self._calls.__dict__.setdefault("names", [])
        calls.append({name})
        try:
            text = plain(*given, **named)
        finally:
            names = calls.pop()
        if calls:
            calls[-1] |= names
        else:
            self._written[text] = self._written.get(text, frozenset()) | names
        return text

    def _run(self, job: Any, operands: Sequence[Any], call: Callable[[], None]) -> None:
        launches = job.__dict__.setdefault("recorded", job._waiting)
        tensors = _tensors(job, launches, operands)
        cost = _cost(launches, tensors)
        with self._lock:
            cases = self.record.cases
            forms = [self._form(launch) for launch in launches]
            better = [f for f in forms if f not in cases or cases[f][2] is None or cost < _BETTER * cases[f][0]]
        case, before = None, {}
        if better and cost <= LARGEST and hasattr(job, "counts"):
            case, (inputs, outputs) = _case(job, launches, tensors), job.counts
            before = {n: _read(job, t) for n, t in tensors.items() if inputs <= n < inputs + outputs}
        call()
        if case is not None:
            for n, old in before.items():
                new = _read(job, tensors[n])
                same = np.equal(old.view(np.uint8), new.view(np.uint8)).reshape(new.size, new.itemsize).all(axis=1)
                case.results[n] = np.ma.MaskedArray(new, same)
        kept = cost, os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0], case
        with self._lock:
            for made in better:
                if case is not None or made not in cases:
                    cases[made] = kept

    def _form(self, launch: Launch) -> str:
        key = launch.source, launch.name
        if key not in self._forms:
            made = self._forms[key] = form(*key)
            names = self._written.get(launch.source, frozenset())
            assert names, f"no generator wrote {launch.source}"
            self.record.writers[made] = self.record.writers.get(made, frozenset()) | names
        return self._forms[key]


def save(record: Record, path: Path) -> None:
    """Write a record to a file of its own."""
    path.write_bytes(pickle.dumps(record))


def load(path: Path) -> Record:
    """A record that ``save`` wrote."""
    record: Record = pickle.loads(path.read_bytes())
    return record


def _qualified(function: Any) -> str:
    """``MODULE.FUNCTION``, also of one that is watched; nothing for what is no function."""
    function = function.args[1] if isinstance(function, functools.partial) else function
    return f"{getattr(function, '__module__', '').rpartition('.')[2]}.{getattr(function, '__name__', '')}"


def _heads(node: ast.AST) -> bool:
    """Whether a node is text with the head of a kernel."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and "KERNEL void " in node.value


def _with_counts(made: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
    """A job, and what comes with it, that knows how many of its operands are inputs, and how many of those behind them outputs."""
    made[0].counts = len(inputs), len(outputs)
    return made


def _tensors(job: Any, launches: Sequence[Launch], operands: Sequence[Any]) -> dict[int, Any]:
    """The tensors of all references."""
    numbers = {ref.number for launch in launches for ref in launch.tensors}
    found = {n: operands[n] if n >= 0 else job._owned[-1 - n] for n in numbers}
    return {n: each.here() if isinstance(each, Faults) else each for n, each in found.items()}


def _cost(launches: Sequence[Launch], tensors: Mapping[int, Any]) -> int:
    """Bytes of all operands, and some for each work-item."""
    return sum(t.nbytes for t in tensors.values()) + 8 * sum(int(np.prod(launch.items)) for launch in launches)


def _case(job: Any, launches: Sequence[Launch], tensors: Mapping[int, Any]) -> Case:
    """A job that has not run yet."""
    memories: list[np.ndarray | int] = []
    places = {}
    for group in _overlapping(tensors):
        start = min(tensors[n].offset for n in group)
        length = max(tensors[n].offset + tensors[n].nbytes for n in group) - start
        known = [n for n in group if n < job.counts[0]]
        memory = np.zeros(length, np.uint8)
        for n in known:
            memory[tensors[n].offset - start :][: tensors[n].nbytes] = _read(job, tensors[n]).reshape(-1).view(np.uint8)
        places |= {n: (len(memories), tensors[n].offset - start) for n in group}
        memories.append(memory if known else length)
    refs = [
        [(places[r.number][0], places[r.number][1] // r.size + r.offset) for r in launch.tensors] for launch in launches
    ]
    return Case(launches, refs, memories, places)


def _overlapping(tensors: Mapping[int, Any]) -> list[list[int]]:
    """Numbers of tensors, in groups that share bytes."""
    groups: list[list[int]] = []
    block, end = None, 0
    for n in sorted(tensors, key=lambda n: (id(tensors[n].block), tensors[n].offset)):
        tensor = tensors[n]
        if tensor.block is block and tensor.offset < end:
            groups[-1].append(n)
        else:
            groups.append([n])
            block, end = tensor.block, 0
        end = max(end, tensor.offset + tensor.nbytes)
    return groups


def _read(job: Any, tensor: Any) -> np.ndarray:
    """A tensor's elements, in one dimension."""
    data = np.empty(tensor.size, tensor.dtype)
    if data.size:
        bytes_ = data.view(np.uint8)
        cl.enqueue_copy(job._queue.queue, bytes_, tensor.buffer(), src_offset=tensor.offset, is_blocking=True)
    return data
