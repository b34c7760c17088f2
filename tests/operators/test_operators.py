"""Every cell of the operator table: random legal nodes of that operator, version and type against a float64 evaluation."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st

from operators.case import Case, Strategy, Unfit, case_of, find_strategy
from operators.cells import Cell
from operators.extent import DEEP, EXAMPLES, cells, seed_of
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
    cases: list[Case] = []
    sources: set[str] = set()

    @seed(seed_of(cell))
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if DEEP else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.composite(_case)(cell, strategy))
    def example(case: Case) -> None:
        if DEEP:
            sources.update(judge(case))
        else:
            cases.append(case)

    example()
    return sources if DEEP else judge(*cases)


def _case(draw: st.DrawFn, cell: Cell, strategy: Strategy) -> Case:
    try:
        return case_of(draw, cell, strategy)
    except Unfit:
        reject()
