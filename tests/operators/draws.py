"""Draws cases of a cell with hypothesis, the same in every run."""

from __future__ import annotations

import functools
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st

from operators.case import Case, Strategy, Unfit, case_of
from operators.cells import Cell
from operators.extent import seed_of

_asked: list[tuple[Cell, Strategy, Callable[[Case], object]]] = []


def draw_cases(
    cell: Cell, strategy: Strategy, take: Callable[[Case], object], examples: int, *, shrink: bool = False
) -> None:
    """Call ``take`` with so many cases; with ``shrink`` what it raises is that of a small one."""
    _asked.append((cell, strategy, take))
    try:
        seed(seed_of(cell))(_drawing(examples, shrink))()
    finally:
        _asked.pop()


@functools.cache
def _drawing(examples: int, shrink: bool) -> Callable[[], None]:
    """One function for all cells: hypothesis reads the source of each it has not met, which takes longer than to draw."""

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.composite(_case)())
    def example(case: Case) -> None:
        _asked[-1][2](case)

    return example


def _case(draw: st.DrawFn) -> Case:
    cell, strategy, _ = _asked[-1]
    try:
        return case_of(draw, cell, strategy)
    except Unfit:
        reject()
