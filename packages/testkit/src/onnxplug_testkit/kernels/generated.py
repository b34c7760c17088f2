"""Tests of one operator in one version over structures that hypothesis draws; what fails is shrunk to a plain structure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from onnxplug_testkit.check import CheckFailed
from onnxplug_testkit.kernels.cells import Cell, Claimed, label
from onnxplug_testkit.kernels.draw import structure_of
from onnxplug_testkit.kernels.retarget import Target, retarget
from onnxplug_testkit.kernels.trial import Outcome, Trial, number_of
from onnxplug_testkit.subject import Subject

EXAMPLES = 8
TYPES_TRIED = frozenset({"float", "double", "float16", "int32", "int64", "uint8", "bool"})
"""Elements the first input is drawn from, as far as they are claimed; the others have their own trials."""


@dataclass(frozen=True, eq=False)
class Generated:
    """Drawn structures of one schema version."""

    claimed: Claimed
    schema: Any
    takes: Callable[[Target], bool]

    @property
    def id(self) -> str:
        """A name that is unique within a plan and stable over runs."""
        return label(self.claimed.key)

    def run(self, subject: Subject, seed: int) -> list[tuple[Collection[Cell], Outcome]]:
        """Judge ``EXAMPLES`` structures; the cells of each with its outcome. CheckFailed shows the plainest that fails."""
        found: list[tuple[Collection[Cell], Outcome]] = []

        @hypothesis.seed(seed ^ number_of(self.id))
        @hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )
        @given(st.composite(lambda draw: self._draw(draw))())
        def judge(target: Target | None) -> None:
            if target is None or not self.takes(target):
                return
            try:
                outcome = Trial(target, constant=False).run(subject, seed)
            except CheckFailed as error:
                raise CheckFailed("kernels.generated", f"{target}: {error}") from None
            found.append((target.cells, outcome))

        judge()
        return found

    def _draw(self, draw: Callable[[Any], Any]) -> Target | None:
        """A drawn structure with a drawn type; None where that is not legal in this version."""
        structure = structure_of(draw, *self.claimed.key[1:])
        first = self.schema.inputs[0].type_str
        options = _tried(frozenset(self.claimed.types.get(first, frozenset())))
        wanted = {first: options[draw(st.integers(0, len(options) - 1))]} if options else {}
        return retarget(structure, self.claimed, wanted, self.schema)


@functools.cache
def _tried(types: frozenset[str]) -> list[str]:
    return sorted((t for t in types if t[7:-1] in TYPES_TRIED), key=lambda text: (text != "tensor(float)", text))
