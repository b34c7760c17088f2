"""Memory of large results: used again when nobody has it, never while somebody does."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

import onnxplug as ort
from onnxplug.run import lender as module
from onnxplug.run.lender import LARGE, Lender, room
from onnxplug.run.owned import are_alone, own

FLOAT = np.dtype(np.float32)
ROWS = LARGE // 4096


def lending(*sizes: int) -> Lender:
    """A lender to runs that make results of so many bytes."""
    made = Lender()
    made.serves([(number, np.empty, (size,), np.dtype(np.uint8)) for number, size in enumerate(sizes)])
    return made


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def session(arena: bool = True) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = arena
    text = '<ir_version: 9, opset_import: ["": 21]> g (float[N, 1024] x) => (float[N, 1024] y) { y = Neg(x) }'
    return ort.InferenceSession(parser.parse_model(text), options, providers=["CPUExecutionProvider"])


def rows(count: int, value: float = 1.0) -> dict[str, np.ndarray]:
    return {"x": np.full((count, 1024), value, np.float32)}


@given(st.integers(0, 1 << 40))
def test_no_more_than_an_eighth_is_added(nbytes: int) -> None:
    assert nbytes <= room(nbytes) <= max(nbytes + 8, nbytes * 9 // 8)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(64, 3 * LARGE)), max_size=40))
def test_arrays_that_live_share_nothing(steps: list[tuple[int, int]]) -> None:
    lender = lending(3 * LARGE, LARGE)
    alive: dict[int, tuple[np.ndarray, int]] = {}
    for number, (at, size) in enumerate(steps):
        alive.pop(at, None)
        array = lender.empty((size // 4,), FLOAT)
        array[...] = number
        assert array.flags.writeable and array.flags.c_contiguous and address(array) % 64 == 0
        alive[at] = (array[1:] if at % 2 else array, number)  # a view is all that some keep
        for kept, value in alive.values():
            assert (kept == value).all()
    del alive
    gc.collect()
    lender.empty((1,), FLOAT)
    assert sum(block.nbytes for block in lender._free) <= room(3 * LARGE) + room(LARGE)


def test_what_nobody_has_is_used_again() -> None:
    lender = lending(LARGE)
    first = lender.empty((LARGE // 4,), FLOAT)
    view, place = first[5:], address(first)
    del first
    other = lender.empty((LARGE // 4,), FLOAT)
    assert address(other) != place
    del view
    assert address(lender.empty((LARGE // 4,), FLOAT)) == place


def test_what_is_lent_is_the_callers_own_without_a_copy() -> None:
    array = lending(LARGE).empty((LARGE // 4,), FLOAT)
    assert own(array, set(), set()) is array
    for part, taken in ((array[: LARGE // 8], set()), (array[::-1], set()), (array, {id(array.base)})):
        assert not np.shares_memory(own(part, set(), taken), array)


def test_items_that_are_lent_are_a_lists_own() -> None:
    lender = lending(LARGE, LARGE)
    items = [lender.empty((LARGE // 4,), FLOAT), lender.empty((2, LARGE // 8), FLOAT), np.ones(3)]
    assert are_alone(items)
    view = items[0][1:]
    assert not are_alone(items)
    del view
    assert are_alone(items) and not are_alone([*items, items[1][:]])


def test_results_of_a_session() -> None:
    with session() as running:
        (first,) = running.run(None, rows(ROWS))
        place = address(first)
        (second,) = running.run(None, rows(ROWS, 2.0))
        assert (first == -1).all() and (second == -2).all()
        del first
        (third,) = running.run(None, rows(ROWS, 3.0))
        assert address(third) == place
        assert (second == -2).all() and (third == -3).all()
    assert (third == -3).all()  # also when the session is closed


@pytest.mark.parametrize("count", [ROWS, ROWS // 2])
def test_what_is_not_lent(count: int) -> None:
    """Without an arena nothing is, with one small results are not."""
    with session(arena=count < ROWS) as running:
        assert not isinstance(base_of(running.run(None, rows(count))[0]), module._Loan)


def test_results_of_ever_new_shapes() -> None:
    """Which no plan is made for."""
    with session() as running:
        held = []
        for count in range(ROWS, ROWS + 40):
            (made,) = running.run(None, rows(count, float(count)))
            held = [*held[-1:], made]
            assert isinstance(base_of(made), module._Loan)
            assert all((array == -len(array)).all() for array in held)


def base_of(array: np.ndarray) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def test_shrinkage_gives_it_back() -> None:
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    with session() as running:
        lender = running._engine.built.runtime.memories.lender
        running.run(None, rows(ROWS))
        assert lender._free
        kept = running.run(None, rows(ROWS), options)
        assert not lender._free and (kept[0] == -1).all()


def test_threads() -> None:
    with session() as running, ThreadPoolExecutor(4) as pool:

        def work(value: int) -> bool:
            results = [running.run(None, rows(ROWS, value + n))[0] for n in range(3)]
            return all((result == -value - n).all() for n, result in enumerate(results))

        assert all(pool.map(work, range(0, 60, 3)))
