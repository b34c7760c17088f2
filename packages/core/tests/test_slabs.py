"""Memory between steps: plans of several shapes lie in one slab, in which one run at a time is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import parser

import onnxplug as ort
from onnxplug.contract.arena import Arena
from onnxplug.run.planned import SMALL

ROWS = SMALL // 4096


def session() -> ort.InferenceSession:
    """Two values between steps, of which each step makes an array of its own."""
    options = ort.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", "0")
    text = (
        '<ir_version: 9, opset_import: ["": 21]> g (float[N, 1024] x) => (float[N, 1024] y) '
        "{ p = Neg(x) q = Exp(p) r = Add(p, q) y = Sub(r, p) }"
    )
    return ort.InferenceSession(parser.parse_model(text), options, providers=["CPUExecutionProvider"])


def is_right(running: ort.InferenceSession, rows: int, value: float) -> bool:
    x = np.full((rows, 1024), value, np.float32)
    return bool(np.allclose(running.run(None, {"x": x})[0], np.exp(-x)))


def slabs(running: Any) -> set[int]:
    """Ids of the slabs of idle frames."""
    return {id(f.slab) for planned in running._engine.built.runner.plans.kept.values() for f in planned.pool}


def test_smaller_shapes_lie_where_a_larger_one_did() -> None:
    with session() as running:
        for rows in (4 * ROWS, 2 * ROWS, 3 * ROWS, 2 * ROWS, 4 * ROWS):
            assert is_right(running, rows, rows / ROWS)
            assert len(slabs(running)) == 1
        assert is_right(running, 5 * ROWS, 1.0)
        assert len(slabs(running)) == 2
        assert is_right(running, 1, 1.0)  # a small one has its own
        assert len(slabs(running)) == 3


def test_where_shapes_grow_a_slab_has_room_for_the_next() -> None:
    with session() as running:
        for rows, count in ((2, 1), (3, 2), (4, 2), (6, 2), (5, 2), (7, 3), (12, 3)):
            assert is_right(running, rows * ROWS, rows / 8)
            assert len(slabs(running)) == count


def test_a_plan_gets_the_bytes_it_needs_where_there_are_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    with session() as running:
        assert is_right(running, 2 * ROWS, 1.0)
        allocate, asked = Arena.allocate, list[int]()

        def limited(self: Arena, nbytes: int) -> Any:
            asked.append(nbytes)
            if len(asked) == 1:
                raise MemoryError
            return allocate(self, nbytes)

        monkeypatch.setattr(Arena, "allocate", limited)
        assert is_right(running, 5 * ROWS, 1.0)
        assert asked[0] == 2 * asked[1]


def test_a_run_that_fails_leaves_its_slab() -> None:
    with session() as running:
        assert is_right(running, 2 * ROWS, 1.0)
        options = ort.RunOptions()
        options.terminate = True
        for rows in (2 * ROWS, ROWS + 1):
            with pytest.raises(Exception, match="terminate"):
                running.run(None, {"x": np.ones((rows, 1024), np.float32)}, options)
        assert is_right(running, ROWS + 2, 1.0)
        assert is_right(running, 2 * ROWS, 1.0)
        for planned in running._engine.built.runner.plans.kept.values():
            assert all(frame.enter() for frame in list(planned.pool)[:1])
            for frame in planned.pool:
                frame.leave()


def test_runs_of_several_shapes_at_once() -> None:
    with session() as running, ThreadPoolExecutor(4) as pool:

        def work(number: int) -> bool:
            return all(is_right(running, ROWS + 1 + (number + turn) % 3, number / 8) for turn in range(4))

        assert all(pool.map(work, range(16)))
