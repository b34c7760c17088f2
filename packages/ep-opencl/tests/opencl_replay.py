"""Runs recorded jobs (``opencl_record``) in the simulator Oclgrind, which finds races, accesses out of bounds and uses of uninitialised
values: ``python opencl_replay.py RECORD...``. Fails where a form or a generator of kernels has no job, where a result is not the one
recorded, and where the simulator finds something.

Each operand is a buffer of its own and as long as the operand, so that whatever is read or written beside it is seen; results and scratch
memory are uninitialised. Oclgrind is the only device, set up as ``nox -s oclgrind`` does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from opencl_record import Case, Record, generators, load

from onnxplug_ep_opencl.device import listed
from onnxplug_ep_opencl.programs import joined
from onnxplug_kernel_text.opencl import PRELUDE

_TOGETHER = 24
"""Jobs whose kernels are one program."""
_SLOW = 5
"""Seconds: a job that takes longer is named, so that a test may get a smaller one."""


class Simulator:
    """The device, and what it said."""

    def __init__(self, log: Path) -> None:
        self._context = cl.Context([listed()[0]])
        self._queue = cl.CommandQueue(self._context)
        self._held: list[Any] = []
        self._log, self._read = log, 0

    def kernels(self, cases: Sequence[Case]) -> list[list[Any]]:
        """Kernels of jobs, built as one program."""
        texts = list(dict.fromkeys((launch.source, launch.name) for case in cases for launch in case.launches))
        source, names = joined(texts)
        program = cl.Program(self._context, PRELUDE + source).build(["-w"])
        known = dict(zip(texts, names, strict=True))
        return [[cl.Kernel(program, known[launch.source, launch.name]) for launch in case.launches] for case in cases]

    def run(self, case: Case, kernels: Sequence[Any]) -> dict[int, np.ndarray]:
        """The results of a job, by operand."""
        memories = [self._memory(memory) for memory in case.memories]
        for kernel, launch, tensors in zip(kernels, case.launches, case.tensors, strict=True):
            places = [given for number, at in tensors for given in (memories[number], np.int64(at))]
            kernel.set_args(*places, *launch.scalars)
            cl.enqueue_nd_range_kernel(self._queue, kernel, launch.items, launch.group)
        found = {}
        for operand, wanted in case.results.items():
            number, at = case.places[operand]
            found[operand] = np.empty(wanted.shape, wanted.dtype)
            if wanted.size:
                into = found[operand].view(np.uint8)
                cl.enqueue_copy(self._queue, into, memories[number], src_offset=at, is_blocking=True)
        self._queue.finish()
        return found

    def said(self) -> str:
        """What the simulator has said since this was last asked."""
        text = self._log.read_text()[self._read :] if self._log.exists() else ""
        self._read += len(text)
        return text.strip()

    def _memory(self, memory: np.ndarray | int) -> Any:
        """A buffer that is never given back: what is taken again counts as uninitialised, whatever is copied there."""
        size = memory if isinstance(memory, int) else memory.size
        made = cl.Buffer(self._context, cl.mem_flags.READ_WRITE, max(size, 1))
        self._held.append(made)
        if size and not isinstance(memory, int):
            cl.enqueue_copy(self._queue, made, memory, is_blocking=True)
        return made


def replay(record: Record, simulator: Simulator) -> Iterator[str]:
    """What is wrong with the jobs of a record."""
    cases = list({id(case): case for *_, case in record.cases.values() if case is not None}.values())
    tests = {id(case): test for _, test, case in record.cases.values()}
    start = time.perf_counter()
    for first in range(0, len(cases), _TOGETHER):
        some = cases[first : first + _TOGETHER]
        for case, kernels in zip(some, simulator.kernels(some), strict=True):
            where = f"{', '.join(launch.name for launch in case.launches)} of {tests[id(case)]}"
            began = time.perf_counter()
            found = simulator.run(case, kernels)
            if (taken := time.perf_counter() - began) > _SLOW:
                print(f"{where} took {taken:.0f} s", flush=True)
            if text := simulator.said():
                yield f"{where}: {text}"
            for operand, wanted in case.results.items():
                if not _alike(found[operand][~wanted.mask], wanted.compressed()):
                    yield f"{where}: operand {operand} is\n{found[operand]}, not\n{wanted}"
        print(f"{first + len(some)} of {len(cases)} jobs in {time.perf_counter() - start:.0f} s", flush=True)


def _alike(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether these are the results of one kernel on two devices, which round as they like: each provider's test asks for more."""
    if wanted.dtype.kind in "iub":
        return bool(np.abs(found.astype(float) - wanted.astype(float)).max(initial=0) <= 1)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    scale = np.abs(b[np.isfinite(b)]).max(initial=0)
    return bool(np.allclose(a, b, rtol=1e-2, atol=1e-2 * scale, equal_nan=True))


def main(paths: Sequence[str]) -> str | None:
    """What is wrong, None where all is well."""
    if {device.platform.name for device in listed()} != {"Oclgrind"}:
        return "Oclgrind is to be the only platform"
    record = Record()
    for path in paths:
        record.merge(load(Path(path)))
    wrong = [*record.lacking(), *replay(record, Simulator(Path(os.environ["OCLGRIND_LOG"])))]
    print(f"{len(record.cases)} forms of kernels, {len(generators())} generators")
    return "\n\n".join(wrong) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
