"""RNN, GRU and LSTM: the launches over time, behind the product of the inputs of all steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from onnxplug_kernel_text import recurrent as text
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.nodes.call import NodeCall, Ref
from onnxplug_kernel_text.nodes.launch import Launch, Pass, filled, text_type
from onnxplug_kernel_text.recurrent import GATES, SCALARS, Cell, Function
from onnxplug_kernel_text.types import SIZES

DEFAULTS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
"""Functions of one direction that a node without names has."""
_INPUTS = {3: "bias", 4: "lengths", 5: "initial_h", 6: "initial_c", 7: "peepholes"}
_OUTPUTS = ("y", "last_h", "last_c")


@dataclass(frozen=True)
class Layer:
    """A node: extents, and the functions of each direction. ``vector``: bytes of the device's vectors; ``group``: work-items that share a
    sequence, 0 where one has it alone."""

    call: NodeCall
    functions: Sequence[Sequence[Function]]
    vector: int
    group: int

    @property
    def turned(self) -> bool:
        """Whether sequences come before steps."""
        return bool(self.call.attributes.get("layout", 0))

    @property
    def extents(self) -> tuple[int, int]:
        """Sequences, steps."""
        shape = self.call.input(0).shape
        return (shape[0], shape[1]) if self.turned else (shape[1], shape[0])

    @property
    def gates(self) -> int:
        """Of the operator."""
        return GATES[self.call.op_type]

    def cell(self, direction: int = 0) -> Cell:
        """What is in the text of a direction's kernel."""
        call = self.call
        inputs = frozenset(name for n, name in _INPUTS.items() if call.given(n) is not None)
        outputs = frozenset(name for n, name in enumerate(_OUTPUTS) if call.wanted(n) is not None)
        other = call.attributes.get("input_forget", 0) or call.attributes.get("linear_before_reset", 0)
        clip, type_ = float(call.attributes.get("clip") or 0.0), text_type(call.input(0).dtype)
        functions = tuple(self.functions[direction])
        return Cell(call.op_type, type_, call.input(2).shape[-1], functions, clip, bool(other), inputs, outputs)

    @property
    def width(self) -> int:
        """Bytes of what is held in between."""
        return SIZES[self.cell().held]

    @property
    def shared(self) -> int:
        """Bytes of local memory that a group takes."""
        return self.cell().hidden * self.width

    @property
    def elements(self) -> tuple[int, int, int]:
        """Of the projected input, the recurrent weights as the kernel reads them, and the state's scratch memory."""
        (batch, steps), (directions, columns, size) = self.extents, self.call.input(2).shape
        room = size if self.group else size + self.cell().hidden
        return (
            steps * batch * directions * columns,
            directions * size * self.gates * self.padded,
            directions * batch * room,
        )

    @property
    def padded(self) -> int:
        """Units of a gate with those that make whole vectors of them."""
        return self.cell().padded(self.vector)

    def weights(self) -> np.ndarray:
        """The recurrent weights, which are constant, as the kernel reads them."""
        value = self.call.input(2).constant
        assert value is not None
        directions, _, size = value.shape
        held = np.float32 if value.dtype.itemsize == 2 else value.dtype
        made = np.zeros((directions, size, self.gates, self.padded), held)
        made[..., :size] = value.reshape(directions, self.gates, size, size).transpose(0, 3, 1, 2)
        return made

    def laid_out(self, to: Ref) -> list[Pass]:
        """The same of weights that come with a run."""
        directions, _, size = self.call.input(2).shape
        gates, padded, cell = self.gates, self.padded, self.cell()
        shape = directions, gates, size, size  # [direction][gate][unit][unit read]
        walked = space(shape, [dense(shape), (size * gates * padded, padded, 1, gates * padded)])
        moved = Pass([(self.call.read(2), cell.type)], (to, cell.held), walked, "y0 = x0;")
        return [filled(to, cell.held, directions * size * gates * padded, "0"), moved]

    def launches(self, projected: Ref, weights: Ref, state: Ref, fault: tuple[Ref, int] | None) -> list[Launch]:
        """All steps. ``fault``: where a bad length is told of, and by which number; there must be one where there are lengths."""
        call, (batch, steps) = self.call, self.extents
        directions, columns, size = call.input(2).shape
        line, all_ = directions * columns, directions * size
        x_t, x_b = (line, steps * line) if self.turned else (batch * line, line)
        y_t, y_d, y_b = (all_, size, steps * all_) if self.turned else (batch * all_, batch * size, size)
        s_d, s_b = (size, all_) if self.turned else (batch * size, size)
        back = {"reverse": 0}.get(call.attributes.get("direction", "forward"), 1)
        together = 1 if all(each == self.functions[0] for each in self.functions) else directions
        launches = []
        for first in range(together):
            cell, jobs = self.cell(first), batch * directions // together
            numbers = (first, back, steps, batch, x_t, x_b, y_t, y_d, y_b, s_d, s_b)
            assert len(numbers) == len(SCALARS)
            refs, mark = _operands(call, cell, fault)
            written = (call.write(n) for n, name in enumerate(_OUTPUTS) if name in cell.outputs)
            tensors = (projected, weights, *refs, state, *written)
            source = text.recurrent(call.op_type, cell, self.vector, self.group)
            scalars = tuple(np.int64(n) for n in (*(() if self.group else (jobs,)), *numbers, *mark))
            launches.append(Launch(source, call.op_type, tensors, scalars, jobs, self.group or 1))
        return launches


def begins(sizes: Sequence[int], alignment: int) -> list[int]:
    """Where parts of scratch memory of so many bytes begin, one behind the other, and where the last ends."""
    found = [0]
    for size in sizes:
        found.append(-(-(found[-1] + size) // alignment) * alignment)
    return found


def rows(call: NodeCall) -> tuple[int, int, int]:
    """Rows, columns and depth of the product of the inputs with the weights of all directions and gates."""
    x, w = call.input(0), call.input(1)
    return math.prod(x.shape[:2]), math.prod(w.shape[:2]), x.shape[2]


def _operands(call: NodeCall, cell: Cell, fault: tuple[Ref, int] | None) -> tuple[list[Ref], list[int]]:
    """The optional inputs that there are, with where a bad length is told of; and by which number."""
    refs: list[Ref] = []
    mark: list[int] = []
    for n, name in _INPUTS.items():
        if name in cell.inputs:
            refs.append(call.read(n))
        if name == "lengths" and name in cell.inputs:
            assert fault is not None
            refs.append(fault[0])
            mark.append(fault[1])
    return refs, mark
