"""The way that a change of some inputs' specs took through a region, to be taken again for the next change.

In each step of a model that generates text the same inputs change, and behind them the same values: some in every layer, and
these alike. The next step then looks at one node for all nodes that are alike, and makes sure that what the change did not
get past still holds it up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from onnxplug.contract.kernels import TensorSpec
from onnxplug.contract.logs import Log
from onnxplug.graph.ir import Node
from onnxplug.graph.value import Value
from onnxplug.plan.script import Learned, Script, Specs, alike

log = Log("onnxplug.plan")

Found = Sequence[TensorSpec | None]
Infer = Callable[[Node, Found], Found]

UNCHANGED = -1
SCRIPTS = 4
"""Of the latest changes, kept of a course."""
FRUITLESS = 6
"""Changes in a row that no script foretold, after which none is made any more: that takes several times as long as the change."""


class Course:
    """``before`` and ``after`` are the specs of ``inputs``; ``visited``: the nodes behind those that changed, in order, with
    their operands' specs; ``changed``: the values with another spec than before; ``specs``: what values have now. Equal
    specs are one object, and ``kind`` gives one object for nodes that are alike, or False."""

    def __init__(
        self,
        inputs: Sequence[Value],
        before: Found,
        after: Found,
        visited: Sequence[tuple[Node, Found]],
        changed: Set[Value],
        specs: Mapping[Value, TensorSpec | None],
        kind: Callable[[Node], Any],
    ) -> None:
        self._members: list[list[Value]] = []
        """Values of each class: they are alike, and change."""
        self._classes: dict[Value, int] = {}
        self._steps: list[tuple[Node, list[int], Found, list[int], Found, bool]] = []
        """Node, its operands as classes and as specs of what does not change, its outputs in both ways, and whether it stands
        for other nodes."""
        self._inputs: list[int] = []
        self._scripts: list[Script] = []
        self._untold = 0
        """Changes in a row that no script foretold."""
        pairs: dict[tuple[int, int], int] = {}
        for value, was, now in zip(inputs, before, after, strict=True):
            number = UNCHANGED
            if was is not now:
                number = pairs.setdefault((id(was), id(now)), len(self._members))
                self._join([number], [value])
            self._inputs.append(number)
        alike: dict[Any, int] = {}
        for node, operands in visited:
            self._step(node, operands, changed, specs, kind(node), alike)

    def _step(
        self, node: Node, operands: Found, changed: Set[Value], specs: Mapping[Value, TensorSpec | None], kind: Any,
        alike: dict[Any, int],
    ) -> None:  # fmt: skip
        classes = [UNCHANGED if v is None else self._classes.get(v, UNCHANGED) for v in node.inputs]
        makes: list[TensorSpec | None] = [None if v is None else specs[v] for v in node.outputs]
        moves = [v is not None and v in changed for v in node.outputs]
        key = None
        if kind and _all_known(node, operands):
            fixed = [0 if c != UNCHANGED else id(spec) for c, spec in zip(classes, operands, strict=True)]
            key = id(kind), *classes, *fixed, *map(id, makes), *moves
            at = alike.get(key)
            if at is not None:
                first, was, given, numbers, made, _ = self._steps[at]
                self._join(numbers, node.outputs)
                self._steps[at] = first, was, given, numbers, made, True
                return
            alike[key] = len(self._steps)
        count = len(self._members)
        numbers = [count + sum(moves[:i]) if moving else UNCHANGED for i, moving in enumerate(moves)]
        self._join(numbers, node.outputs)
        self._steps.append((node, classes, operands, numbers, makes, False))

    def _join(self, numbers: Sequence[int], values: Sequence[Value | None]) -> None:
        for number, value in zip(numbers, values, strict=True):
            if number != UNCHANGED and value is not None:
                if number == len(self._members):
                    self._members.append([])
                self._members[number].append(value)
                self._classes[value] = number

    def repeat(self, before: Found, inputs: Found, infer: Infer, anew: Infer) -> Learned | None:
        """Values and the specs they have now, for inputs that had the specs ``before``; None where the change takes another
        course. ``anew``: as ``infer``, of operands whose sizes are followed."""
        past: dict[int, TensorSpec | None] = {}
        given: dict[int, TensorSpec | None] = {}
        for number, was, spec in zip(self._inputs, before, inputs, strict=True):
            if (was if number == UNCHANGED else given.setdefault(number, spec)) is not spec:
                return None
            past.setdefault(number, was)
        for script in self._scripts:
            learned = script.repeat(given)
            if learned is not None:
                self._untold = 0
                return learned
        found = self._change(given, infer, operator.is_)
        if found is None:
            return None
        if self._untold < FRUITLESS:
            self._untold += 1
            self._follow(past, given, found, anew)
        return [(members, found[number]) for number, members in enumerate(self._members)]

    def _follow(self, past: Specs, given: Specs, found: Specs, anew: Infer) -> None:
        """Keep a script of this change, where one can be made. Rules and NumPy may raise anything for what is no plain number, which is
        no fault of the change: that went well."""
        try:
            script = Script(past, given, lambda specs: self._change(specs, anew, alike), self._members, found)
        except Exception as reason:
            log.debug("shapes are not followed: %s: %s", type(reason).__name__, reason)
            self._untold += FRUITLESS // 2  # the next is hardly better
        else:
            self._scripts = [script, *self._scripts[: SCRIPTS - 1]]

    def _change(self, given: Specs, infer: Infer, same: Callable[[Any, Any], bool]) -> Specs | None:
        """The specs of all classes for those of the inputs' classes; None where the change takes another course."""
        now = dict(given)
        for node, classes, fixed, numbers, made, stands in self._steps:
            operands = [s if c == UNCHANGED else now[c] for c, s in zip(classes, fixed, strict=True)]
            if stands and not _all_known(node, operands):
                return None
            found = infer(node, operands)
            for at, number in enumerate(numbers):
                spec = found[at] if at < len(found) else None
                if number != UNCHANGED:
                    now[number] = spec
                elif node.outputs[at] is not None and not same(spec, made[at]):
                    return None
        return now


def _all_known(node: Node, operands: Found) -> bool:
    """Whether what follows for the node depends on its kind and its operands' specs alone; else on what is declared of them."""
    return all(
        value is None or (spec is not None and spec.dtype != object)
        for value, spec in zip(node.inputs, operands, strict=True)
    )
