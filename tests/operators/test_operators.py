"""Every cell of the operator table: random legal nodes of that operator, version and type against a float64 evaluation."""

from __future__ import annotations

import pytest

from operators.case import Case, Strategy, find_strategy
from operators.cells import Cell
from operators.draws import draw_cases
from operators.extent import DEEP, EXAMPLES, cells
from operators.judge import judge
from operators.record import Record


@pytest.fixture(scope="module")
def record() -> Record:
    """Takes the cells that pass; written at the end where ``ONNXPLUG_OPERATORS_RECORD`` says."""
    found = Record()
    yield found
    found.write()


@pytest.mark.parametrize("cell", cells(), ids=str)
def test_cell(cell: Cell, record: Record) -> None:
    strategy = find_strategy(cell.domain, cell.op_type)
    assert strategy is not None, f"no strategy draws nodes of {cell.op_type}"
    sources = check(cell, strategy, EXAMPLES)
    assert sources, "no example was legal"
    record.add(cell, sources)


def check(cell: Cell, strategy: Strategy, examples: int) -> set[str]:
    """Judge that many cases of a cell; who judged them. Deep checks shrink what fails."""
    sources: set[str] = set()
    if DEEP:
        draw_cases(cell, strategy, lambda case: sources.update(judge(case)), examples, shrink=True)
        return sources
    cases: list[Case] = []
    draw_cases(cell, strategy, cases.append, examples)
    return judge(*cases)
