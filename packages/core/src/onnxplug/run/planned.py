"""A plan with the idle frames that wait for its next run, and what is found out about it once."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from onnxplug.contract.types import TensorType
from onnxplug.place.units import Located, PlacedGraph, RegionUnit
from onnxplug.plan import Form, Plan, Step
from onnxplug.run.frame import Frame

if TYPE_CHECKING:
    from onnxplug.run.lane import Lane

SMALL = 1 << 20
"""Bytes of a frame from which on not so many are kept idle."""
POOL = 4
"""Idle frames kept per plan; more threads than that make frames that are dropped after their run."""

HANDED_ON = frozenset(
    {
        "ArrayFeatureExtractor", "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape", "Expand", "Flatten", "Gather",
        "GatherElements", "GatherND", "Identity", "NonZero", "Reshape", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
        "SequenceErase", "SequenceInsert", "SequenceLength", "Shape", "Size", "Slice", "Split", "SplitToSequence", "Squeeze", "Tile",
        "Transpose", "Unique", "Unsqueeze", "Where", "ZipMap",
    }
)  # fmt: skip
"""Operators that compute nothing NumPy could warn of."""
COMPARED = frozenset({"And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Xor"})
"""Operators that compute nothing NumPy could warn of where their operands are whole numbers or truth values."""


Signature = tuple[tuple[int, ...] | None, ...]


class Planned:
    """A plan and the frames and lanes that wait for its next run."""

    __slots__ = ("computes", "is_small", "lanes", "plan", "pool", "straight", "used")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.computes = any(step.form in (Form.INTO, Form.RETURNS) and not _only_moves(step) for step in plan.steps)
        """Whether NumPy may compute: its warnings are switched off then, as users cannot do anything about them."""
        self.is_small = sum(plan.slabs.values()) <= SMALL
        self.pool: deque[Frame] = deque()
        self.lanes: deque[Lane] = deque(maxlen=POOL)
        self.straight = True
        """Whether lanes may run in its frames, as far as is known."""
        self.used = 0


def _only_moves(step: Step) -> bool:
    """Whether the step makes no number: it reads strings, or hands on what it reads."""
    if step.op_type in HANDED_ON:
        return True
    read = [located[0].type for located in step.unit.ins if located is not None]
    if step.op_type in COMPARED and all(isinstance(t, TensorType) and t.dtype.kind in "biu" for t in read):
        return True
    return bool(read) and all(isinstance(t, TensorType) and t.element == "string" for t in read)


def planned_dtype(placed: PlacedGraph, located: Located) -> Any:
    """The dtype of an input whose shape a plan goes by: of tensors of numbers, and of those of strings that only regions read, which may
    make numbers of them. Nothing else that is made of strings is planned."""
    type_ = located[0].type
    if not isinstance(type_, TensorType):
        return None
    if type_.element == "string":
        others = (unit.ins for unit in placed.units if not isinstance(unit, RegionUnit))
        if located in placed.outputs or any(located in ins for ins in others):
            return None
    return type_.dtype
