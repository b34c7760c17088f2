"""Timing two contenders against each other: in turns, medians, their ratio; and the machine it was done on."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

Call = Callable[[], object]


def interleaved(calls: Sequence[Call], seconds: float, least: int = 5) -> list[list[float]]:
    """Seconds per call of each contender: one block of each in turn, until ``seconds`` are spent and ``least`` turns done.

    A block repeats a call often enough to last about 2 ms; who begins changes from turn to turn.
    """
    repeats = [_repeats(call) for call in calls]
    samples: list[list[float]] = [[] for _ in calls]
    end, turn = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or turn < least:
        order = range(len(calls)) if turn % 2 == 0 else reversed(range(len(calls)))
        for index in order:
            samples[index].append(block(calls[index], repeats[index]))
        turn += 1
    return samples


def block(call: Call, repeats: int) -> float:
    """Seconds per call over one block."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def alternating(contenders: Sequence[Callable[[], float]], turns: int) -> list[list[float]]:
    """One value of each contender in turn, ``turns`` times; for what needs a process of its own."""
    samples: list[list[float]] = [[] for _ in contenders]
    for turn in range(turns):
        for index in range(len(contenders)) if turn % 2 == 0 else reversed(range(len(contenders))):
            samples[index].append(contenders[index]())
    return samples


def compared(samples: Mapping[str, Sequence[float]]) -> dict[str, float | int]:
    """Medians in milliseconds by contender, the first's divided by the second's, and the number of samples."""
    medians = {name: statistics.median(values) for name, values in samples.items()}
    first, second = medians.values()
    row: dict[str, float | int] = {f"{name}_ms": round(value * 1e3, 5) for name, value in medians.items()}
    return row | {"ratio": round(first / second, 3), "samples": min(map(len, samples.values()))}


def machine() -> dict[str, str | int | float]:
    """What the numbers depend on; ``load`` is that of the minute before, which should be near zero."""
    packages = ("onnxplug", "onnxplug-ep-cpu", "onnxruntime", "numpy", "onnx")
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else -1,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


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
