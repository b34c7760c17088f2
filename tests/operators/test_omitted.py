"""Results that a node leaves out: what else it gives is the same without them, and what every node gives must have a name."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from onnx import helper, parser

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS, Fail, InvalidGraph
from operators.case import Case
from operators.cells import Cell, schemas
from operators.extent import one_of_each_operator
from operators.model import CPU, by_case, feeds_of, model_of
from operators.test_illegal_nodes import legal_case

SEVERAL = [
    cell
    for cell in one_of_each_operator()
    if schemas()[cell[:3]].max_output > 1 and cell.op_type not in ("Gradient", "If", "Loop", "Scan")
]


def run(case: Case, codegen: str) -> list[np.ndarray]:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.cpu.codegen", codegen)
    session = onnxplug.InferenceSession(model_of(case), options, providers=[CPU])
    (outputs,) = by_case([case], session.run(None, feeds_of(case)))
    return outputs


def whole(cell: Cell) -> Case:
    """A case that gives all that its operator may give, or else what the strategy asks for."""
    case, most = legal_case(cell), schemas()[cell[:3]].max_output
    full = dataclasses.replace(case, outputs=most if most < 100 else case.present)
    try:
        run(full, "0")
    except STATUS_ERRORS:  # not all at once
        return case
    return full


@pytest.mark.parametrize("codegen", ["1", "0"])
@pytest.mark.parametrize("cell", SEVERAL, ids=str)
def test_results_left_out(cell: Cell, codegen: str) -> None:
    case, formals = whole(cell), schemas()[cell[:3]].outputs
    every = run(case, codegen)
    for index in range(len(every)):
        rest = [at for at in range(len(every)) if at != index]
        less = dataclasses.replace(case, outputs=[at != index for at in range(len(every))])
        if formals[min(index, len(formals) - 1)].option.name == "Single":
            with pytest.raises(InvalidGraph, match=f"output {index} is marked single but has an empty string"):
                run(less, codegen)
        elif rest:
            for got, at in zip(run(less, codegen), rest, strict=True):
                np.testing.assert_equal(got, every[at], err_msg=f"output {at} without output {index}")


@pytest.mark.parametrize("opset", [1, 6])
def test_statistics_of_a_batch_that_is_not_looked_at(opset: int) -> None:
    given = "is_test=1, consumed_inputs=[0,0,0,1,1]" if opset == 1 else "is_test=1"
    graph = parser.parse_graph(
        f"g (float[2,3] x, float[3] s) => (float[2,3] y, float[3] m) {{ y, m, v, a, b = BatchNormalization <{given}> (x, s, s, s, s) }}"
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    with pytest.raises(Fail, match=r"BatchNormalization.* gives Y alone where is_test is set"):
        onnxplug.InferenceSession(made.SerializeToString(), providers=[CPU])
