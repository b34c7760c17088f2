"""Endurance: sessions made and deleted, and threads that run, by the thousand; memory must not grow, results must not differ.

``python tests/soak.py`` (``nox -s soak``) is the long form, ``tests/test_soak.py`` the short one.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper, parser

import onnxplug

CPU = "CPUExecutionProvider"
WIDTH = 64
NOISE = 6 << 20
"""Bytes by which a process may grow without anything being kept: allocators' own pages, caches of the interpreter."""

TEXT = f"""
    <ir_version: 9, opset_import: ["": 21]>
    g (float[N, {WIDTH}] x, bool c) => (float[N, {WIDTH}] y, int64[N] best) {{
        h = MatMul(x, w)
        r = Relu(h)
        s = If(c)<then_branch = t () => (float[N, {WIDTH}] p) {{ p = Sub(r, x) }},
                  else_branch = e () => (float[N, {WIDTH}] q) {{ q = Add(r, x) }}>
        n = Constant<value_int = 3>()
        y = Loop(n, c, s)<body = b (int64 i, bool on, float[N, {WIDTH}] v) => (bool go, float[N, {WIDTH}] u) {{
            go = Identity(on) u = Max(v, r) }}>
        best = ArgMax<axis = 1, keepdims = 0>(y)
    }}
"""


def make_model() -> bytes:
    """A model with weights, branches and a loop."""
    proto = parser.parse_model(TEXT)
    weights = np.random.default_rng(0).integers(-2, 3, (WIDTH, WIDTH)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    proto.graph.initializer.append(helper.make_tensor("unused", 1, [1], [0.0]))
    return bytes(proto.SerializeToString())


def feed(rows: int) -> dict[str, np.ndarray]:
    """Whole numbers, so that sums are exact in any order."""
    x = np.random.default_rng(rows).integers(-3, 4, (rows, WIDTH)).astype(np.float32)
    return {"x": x, "c": np.array(rows % 2 == 0)}


def equal(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(r, w) for r, w in zip(results, wanted, strict=True))


def resident() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def grown(work: Callable[[int], None], warm: int, count: int) -> int:
    """Bytes by which the process grew over ``work(warm)`` .. ``work(count - 1)``, after the calls before: that of the third that grew
    least, in each third. What is kept by every call grows in all of them, what is made once in the first."""
    parts = min(3, count - warm)
    starts = [0, *(warm + (count - warm) * part // parts for part in range(parts + 1))]
    sizes = []
    for first, last in itertools.pairwise(starts):
        for number in range(first, last):
            work(number)
        gc.collect()
        sizes.append(resident())
    return parts * min(after - before for before, after in itertools.pairwise(sizes))


def sessions(count: int, providers: Sequence[str]) -> int:
    """Make, run and delete sessions; bytes of growth. AssertionError for a wrong result."""
    source, given = make_model(), feed(3)
    wanted = onnxplug.InferenceSession(source, providers=list(providers)).run(None, given)

    def one(number: int) -> None:
        session = onnxplug.InferenceSession(source, providers=list(providers))
        assert equal(session.run(None, given), wanted)
        if number % 2:
            binding = session.io_binding()
            for name, array in given.items():
                binding.bind_cpu_input(name, array)
            for name in ("y", "best"):
                binding.bind_output(name)
            session.run_with_iobinding(binding)
            assert equal(binding.copy_outputs_to_cpu(), wanted)
        if number % 10 == 0:
            session.close()

    return grown(one, max(1, count // 5), count)


def runs(threads: int, count: int, providers: Sequence[str]) -> int:
    """Run one session from several threads, each with one of its own as well, over more shapes than plans are kept for;
    bytes of growth. AssertionError for a wrong result."""
    source = make_model()
    shared = onnxplug.InferenceSession(source, providers=list(providers))
    feeds = [feed(rows) for rows in range(1, 25)]
    wanted = [shared.run(None, given) for given in feeds]
    mine = [onnxplug.InferenceSession(source, providers=list(providers)) for _ in range(threads)]
    for session, given in itertools.product(mine, feeds):  # each keeps a plan for what it has seen
        session.run(None, given)
    wrong: list[str] = []

    def run(number: int, first: int, last: int) -> None:
        draw = random.Random(f"{number} {first}")
        try:
            for at in range(first, last):
                which = draw.randrange(len(feeds))
                session = mine[number] if at % 4 == 0 else shared
                if not equal(session.run(None, feeds[which]), wanted[which]):
                    wrong.append(f"thread {number}, run {at}")
        except Exception as error:
            wrong.append(f"thread {number}: {error!r}")

    def together(stage: int) -> None:
        first, last = stage * count // 10, (stage + 1) * count // 10
        workers = [threading.Thread(target=run, args=(number, first, last)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    growth = grown(together, 4, 10)
    assert not wrong, wrong[:5]
    return growth


def main(arguments: Sequence[str] | None = None) -> int:
    """The long form; exit code 1 when memory grew."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    options.add_argument("--sessions", type=int, default=1000)
    options.add_argument("--threads", type=int, default=8)
    options.add_argument("--runs", type=int, default=10_000, help="of each thread")
    options.add_argument("--provider", action="append", help=f"may be repeated; default: {CPU}")
    given = options.parse_args(arguments)
    providers = given.provider or [CPU]
    onnxplug.set_default_logger_severity(3)  # every session warns of the initializer that nobody reads
    failed = False
    for name, work in (
        (f"{given.sessions} sessions", lambda: sessions(given.sessions, providers)),
        (f"{given.threads} threads x {given.runs} runs", lambda: runs(given.threads, given.runs, providers)),
    ):
        start = time.perf_counter()
        growth = work()
        failed |= growth > NOISE
        verdict = "ok" if growth <= NOISE else f"MORE than {NOISE / 2**20:.0f} MiB"
        print(
            f"{name}: {time.perf_counter() - start:.1f} s, results equal, memory {growth / 2**20:+.2f} MiB: {verdict}"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
