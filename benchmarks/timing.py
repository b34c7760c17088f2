"""Timing two contenders against each other: in turns, medians, their ratio; and the machine it was done on."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

Call = Callable[[], object]


def interleaved(
    calls: Sequence[Call], seconds: float, least: int = 5, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """Seconds per call of each contender: one block of each in turn, until ``seconds`` are spent and ``least`` turns done.

    A block repeats a call often enough to last about 2 ms; who begins changes from turn to turn. ``clock``: what blocks are
    timed with; ``time.process_time`` does not count what other processes take.
    """
    repeats = [_repeats(call) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    end, turn = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or turn < least:
        order = range(len(calls)) if turn % 2 == 0 else reversed(range(len(calls)))
        for index in order:
            samples[index].append(block(calls[index], repeats[index], clock))
        turn += 1
    return samples


def block(call: Call, repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds per call over one block."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def alternating(contenders: Sequence[Callable[[], float]], turns: int) -> list[list[float]]:
    """One value of each contender in turn, ``turns`` times; for what needs a process of its own."""
    samples: list[list[float]] = [[] for _ in contenders]
    for turn in range(turns):
        for index in range(len(contenders)) if turn % 2 == 0 else reversed(range(len(contenders))):
            samples[index].append(contenders[index]())
    return samples


def compared(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Medians in milliseconds by contender, the first's divided by each other's, and the number of samples."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    (_, first), *others = medians.items()
    return {
        "ms": {name: round(value * 1e3, 5) for name, value in medians.items()},
        "ratio": {name: round(first / value, 3) for name, value in others},
        "samples": min(map(len, samples.values())),
    }


def peak_memory() -> float:
    """The most memory this process had resident, in megabytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    except (OSError, StopIteration):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def machine() -> dict[str, str | int | float]:
    """What the numbers depend on; ``load`` is that of the minute before, which should be near zero."""
    packages = (
        "onnxplug",
        "onnxplug-ep-cpu",
        "onnxruntime",
        "openvino",
        "iree-base-compiler",
        "numpy",
        "onnx",
        "llvmlite",
    )
    return {
        "cpu": _cpu_model(),
        "cores": cores(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else -1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: found for name in packages if (found := _version(name))},
    }


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _repeats(call: Call) -> int:
    call()
    return max(1, int(2e-3 / max(block(call, 1), 1e-7)))


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
