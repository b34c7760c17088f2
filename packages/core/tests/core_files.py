"""A small model, sessions over it, and bounds around what may hang or grow."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto, parser

import onnxplug as ort

SMALL = (
    """<ir_version: 9, opset_import: ["": 21]> g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }"""
)


def small() -> ModelProto:
    return parser.parse_model(SMALL)


def made(source: Any, **keywords: Any) -> ort.InferenceSession:
    return ort.InferenceSession(source, providers=["CPUExecutionProvider"], enable_fallback=0, **keywords)


class TooLong(BaseException):
    """Passes every handler of the code under test."""


@contextmanager
def bounded(seconds: float = 20, memory: int = 3 << 30) -> Iterator[None]:
    """Neither a hang nor a machine brought to its knees by a damaged dimension. ``seconds`` are of the processor's time, which other
    processes do not lengthen; what waits for ever is ended after thirty times as long by the clock."""
    resource = pytest.importorskip("resource")

    def expired(*_: object) -> None:
        raise TooLong

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, seconds * 30))
    before = [signal.signal(number, expired) for _, number, _ in timers]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, limits[1]))
    for timer, _, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, limits)
