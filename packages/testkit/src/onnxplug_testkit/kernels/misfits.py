"""Operands that do not go together: an operator's structures with one operand of another extent, or a place that is not there.

Nobody lists them. What is changed counts as a misfit where two at least, and most, of ONNX's inference and the oracles that compute the
structure refuse what was made of it.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.check import fail
from onnxplug_testkit.kernels.cells import Key, label
from onnxplug_testkit.kernels.compare import snapshot, unchanged
from onnxplug_testkit.kernels.legal import is_legal
from onnxplug_testkit.kernels.oracle import refusers
from onnxplug_testkit.kernels.precision import precision
from onnxplug_testkit.kernels.retarget import Target
from onnxplug_testkit.kernels.trial import Feeds, Outcome, number_of
from onnxplug_testkit.kernels.values import fresh
from onnxplug_testkit.models import open_session
from onnxplug_testkit.subject import Subject

STRUCTURES, EACH = 6, 3
"""Structures looked at, and misfits of each."""
AGREE = 2
"""So many refuse what is a misfit: of what texts leave open, one may be stricter than another."""
LARGE = 4096
"""Elements of operands beyond which a structure is left alone."""
FAR = 99
"""A place, an axis or an extent that none of the structures has."""
DOMAINS = ("", "ai.onnx.ml")
"""Those whose texts say what operands must be; of others it is what one library's kernels look at."""
CULPRIT = "culprit"
REFUSALS = (*STATUS_ERRORS, RuntimeError, ValueError)


def can_misfit(key: Key, targets: Sequence[Target]) -> bool:
    """Whether there are operands that might not go together, and somebody who says so."""
    several = any(sum(o.like is not None for o in target.inputs) > 1 for target in targets)
    return several and key[0] in DOMAINS and precision(*key).kind != "random"


@dataclass(frozen=True, eq=False)
class Misfits:
    """The structures of one schema version."""

    key: Key
    targets: Sequence[Target]

    @property
    def id(self) -> str:
        """The name of the test."""
        return f"kernels.misfits[{label(self.key)}]"

    def run(self, subject: Subject, seed: int) -> Outcome:
        """Feed misfits to sessions that were right and shall be right again. CheckFailed tells the one that gives a result."""
        rng = np.random.default_rng([seed, number_of(self.id)])
        tried = 0
        for target in _various(self.targets)[:STRUCTURES]:
            tried += self._try(subject, target, rng)
        return (
            Outcome("passed")
            if tried
            else Outcome("unjudged", text="no oracle refuses what was made of its structures")
        )

    def _try(self, subject: Subject, target: Target, rng: np.random.Generator) -> int:
        good = {
            f"x{i}": fresh(rng, target.key[1], o.formal, o.like, o.type)
            for i, o in enumerate(target.inputs)
            if o.like is not None
        }
        made = _of_any_extent(target.model())
        asked: list[Callable[[Feeds], bool]] = [
            functools.partial(_is_illegal, target),
            *refusers(made, subject.name, good),
        ]
        changed = list(_changed(target, good))
        changed = [changed[i] for i in rng.permutation(len(changed))]
        wrong = ((what, bad) for what, bad in changed if _agree([refuses(bad) for refuses in asked]))
        found = list(itertools.islice(wrong, EACH)) if len(asked) >= AGREE else []
        try:
            session = open_session(subject, made)
        except STATUS_ERRORS:
            return 0  # which is for its trial to say
        with session:
            if session.placement().get(CULPRIT) != subject.name:
                return 0
            try:
                before = snapshot(session.run(None, good))
            except STATUS_ERRORS:
                return 0
            for what, bad in found:
                _refused(session, bad, f"{target} {what}")
                try:
                    after = session.run(None, good)
                except STATUS_ERRORS as error:
                    fail("kernels.misfits", f"{target}: after a run that failed the next one fails: {error}")
                if not unchanged(before, after):
                    fail("kernels.misfits", f"{target} gives another result after a run that failed")
        return len(found)


def _agree(refused: Sequence[bool]) -> bool:
    return sum(refused) >= AGREE and 2 * sum(refused) > len(refused)


def _is_illegal(target: Target, feeds: Feeds) -> bool:
    """Whether ONNX's inference refuses what it is told of the operands."""
    operands = [dataclasses.replace(o, like=feeds.get(f"x{i}")) for i, o in enumerate(target.inputs)]
    shown = dataclasses.replace(target, inputs=operands)
    held = {i: o.like for i, o in enumerate(operands) if o.is_parameter and isinstance(o.like, np.ndarray)}
    return not is_legal(shown.model(held), target.schema)


def _refused(session: Any, bad: Feeds, what: str) -> None:
    try:
        session.run(None, bad)
    except (Exception, SystemExit) as error:
        if not isinstance(error, REFUSALS):
            fail("kernels.misfits", f"{what}: {type(error).__name__} escapes: {error}")
        if CULPRIT not in str(error):
            fail("kernels.misfits", f"{what}: the error does not name the node: {error}")
    else:
        fail("kernels.misfits", f"{what} gives a result, where an error is due")


def _various(targets: Sequence[Target]) -> list[Target]:
    """One of each way in which operands are there, then the others; without large ones, and those of nothing, of which extents hardly
    count."""
    small = [
        t for t in targets if all(0 < np.size(o.like) <= LARGE for o in t.inputs if isinstance(o.like, np.ndarray))
    ]
    first = {tuple(np.ndim(o.like) if isinstance(o.like, np.ndarray) else -1 for o in t.inputs): t for t in small[::-1]}
    return [*first.values(), *(t for t in small if t not in first.values())]


def _of_any_extent(made: onnx.ModelProto) -> onnx.ModelProto:
    """With dimensions that no session knows before a run."""
    made.graph.node[0].name = CULPRIT
    for value in made.graph.input:
        for number, dimension in enumerate(value.type.tensor_type.shape.dim):
            dimension.dim_param = f"{value.name}_{number}"
    return made


def _changed(target: Target, good: Feeds) -> Iterator[tuple[str, Feeds]]:
    """Feeds with one thing changed, and what. Not the number of dimensions, which sessions look at themselves."""
    for name, value in good.items():
        if not isinstance(value, np.ndarray):
            continue
        formal = target.inputs[int(name[1:])].formal
        for axis in range(value.ndim):
            wider = [(0, int(axis == each)) for each in range(value.ndim)]
            mode: Any = "edge" if value.size else "constant"
            with_more = np.pad(value.astype(object), wider, mode).astype(value.dtype)
            yield f"with one more of {formal} along axis {axis}", {**good, name: with_more}
        if value.dtype.kind == "i" and value.size:
            for far in (FAR, -FAR):
                beyond = value.copy()
                beyond.reshape(-1)[0] = far
                yield f"with {far} in {formal}", {**good, name: beyond}
