"""If, Loop and Scan with the bodies that the strategies give them: the core runs these whatever the provider."""

from __future__ import annotations

from typing import Any

import numpy as np

from operators.case import Case
from operators.oracle import always, oracle


@oracle(
    "If",
    sentence="then_branch: graph to run if condition is true; else_branch: graph to run if condition is false",
    wrong=always,
)
def if_(case: Case, x: list[Any]) -> Any:
    (_, a), (_, b) = case.captures["a"], case.captures["b"]
    chosen = a if case.inputs[0].item() else b
    return [chosen, chosen] if case.types["V"].startswith("seq(") and not isinstance(chosen, list) else chosen


@oracle(
    "Loop",
    sentence="the loop runs until the trip count is reached or the condition is false; scan outputs are concatenated",
    wrong=always,
)
def loop(case: Case, x: list[Any]) -> Any:
    limit, going, a, b = case.inputs
    early = any(node.op_type == "Less" for node in case.attributes["body"].node)
    on, trip = going is None or bool(going), 0
    while on and trip < int(limit.item()):
        a, b = b, a
        on = trip < 1 if early else True
        trip += 1
    return a, b, np.arange(trip, dtype=np.int64)


@oracle(
    "Scan",
    sentence="iterates over one or more scan_input tensors, constructing zero or more scan_output tensors; the state is carried along",
    wrong=always,
)
def scan(case: Case, x: list[Any]) -> Any:
    attributes = case.attributes
    if case.version == 8:
        return _batched(case)
    state, data = case.inputs
    elements = list(np.moveaxis(data, attributes.get("scan_input_axes", [0])[0], 0))
    if attributes.get("scan_input_directions") == [1]:
        elements.reverse()
    stacked = [state, *elements[:-1]]
    if attributes.get("scan_output_directions") == [1]:
        stacked.reverse()
    return elements[-1], np.stack(stacked, attributes.get("scan_output_axes", [0])[0])


def _batched(case: Case) -> Any:
    lengths, states, data = case.inputs
    finals, stacks = [], []
    for n, (state, rows) in enumerate(zip(states, data, strict=True)):
        count = len(rows) if lengths is None else int(lengths[n])
        elements = list(rows[:count])
        if case.attributes.get("directions") == [1]:
            elements.reverse()
        finals.append(elements[-1])
        blank = np.full(np.shape(state), "", object) if data.dtype == object else np.zeros(np.shape(state), data.dtype)
        stacks.append(np.stack([state, *elements[:-1], *[blank] * (len(rows) - count)]))
    return np.stack(finals), np.stack(stacks)
