"""RNN, GRU and LSTM: the inputs of all steps as one product, then one kernel over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug.contract import EPFail, NodeView
from onnxplug_ep_opencl.kernels.call import PANELS, Call, text_type
from onnxplug_ep_opencl.kernels.elementwise import fill, launch
from onnxplug_ep_opencl.kernels.product import Product, Side, multiply, panels, tile_of
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import Work, by_registers
from onnxplug_ep_opencl.launch import Job, Launch, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text import recurrent as text
from onnxplug_kernel_text.factors import Packed
from onnxplug_kernel_text.layout import dense, space
from onnxplug_kernel_text.recurrent import GATES, SCALARS, Cell, Function
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernel_text.types import SIZES
from onnxplug_kernels.activations import named_activations

GROUP = 128
"""Work-items that share a sequence."""
_NARROW = 32
"""Bytes of the vectors of other devices than processors with longer ones."""
_DEFAULTS = {"RNN": ("tanh",), "GRU": ("sigmoid", "tanh"), "LSTM": ("sigmoid", "tanh", "tanh")}
_INPUTS = {3: "bias", 4: "lengths", 5: "initial_h", 6: "initial_c", 7: "peepholes"}
_OUTPUTS = ("y", "last_h", "last_c")


def unwritten(node: NodeView) -> str | None:
    """Why a node is declined."""
    r = node.inputs[2]
    if r is None or r.shape is None or not isinstance(r.shape[-1], int):
        return "the number of units must be known"
    try:
        _functions(node.op_type, node.attributes, 2 if node.attributes.get("direction") == "bidirectional" else 1)
    except ValueError as error:
        return str(error)
    return None


def packs(node: NodeView, target: Target) -> tuple[int, ...]:
    """Weights that are constant: recurrent ones are kept turned, those of the inputs in panels for tiles in registers."""
    found = [n for n in (1, 2) if (value := node.inputs[n]) is not None and value.constant is not None]
    return tuple(n for n in found if n == 2 or by_registers(target))


def recurrent(call: Call) -> Job:
    """The launches of a node."""
    x, r = call.input(0), call.input(2)
    turned = bool(call.attributes.get("layout", 0))
    batch, steps = x.shape[:2] if turned else x.shape[1::-1]
    directions, columns, size = r.shape
    if not batch or not size:
        return Job()
    chosen = _functions(call.op_type, call.attributes, directions)
    cell = _cell(call, size, chosen[0])
    vector = max(call.target.vector, _NARROW)
    group = 0 if call.target.registers else min(GROUP, call.target.largest_group)
    if group and cell.hidden * SIZES[cell.held] > call.target.local_memory:
        raise EPFail(f"{call.op_type}: {size} units; groups of the device share {call.target.local_memory} bytes")
    width = SIZES[cell.held]
    padded, gates = cell.padded(vector), GATES[call.op_type]
    room = size if group else size + cell.hidden
    parts = [steps * batch * directions * columns, directions * size * gates * padded, directions * batch * room]
    begins = [0]
    for count in parts:
        begins.append(-(-(begins[-1] + count * width) // ALIGNMENT) * ALIGNMENT)
    projected, held, state = (call.scratch(width, begin // width) for begin in begins[:3])
    before = multiply(call.target, "projection", _projection(call, cell, projected), call.scratch(1, begins[3]))
    launches = [*before.launches]
    if 2 in call.packed:
        held = call.owned.ref(("recurrent", padded), lambda: _turned(call, gates, padded))
    else:
        launches += _copied(call, cell, held, gates, padded)
    line, all_ = directions * columns, directions * size
    x_t, x_b = (line, steps * line) if turned else (batch * line, line)
    y_t, y_d, y_b = (all_, size, steps * all_) if turned else (batch * all_, batch * size, size)
    s_d, s_b = (size, all_) if turned else (batch * size, size)
    back = {"reverse": 0}.get(call.attributes.get("direction", "forward"), 1)
    together = 1 if all(each == chosen[0] for each in chosen) else directions
    for first in range(together):
        cell = _cell(call, size, chosen[first])
        jobs = batch * directions // together
        numbers = (first, back, steps, batch, x_t, x_b, y_t, y_d, y_b, s_d, s_b)
        assert len(numbers) == len(SCALARS)
        refs, mark = _operands(call, cell)
        tensors = [projected, held, *refs, state, *(call.write(n) for n, o in enumerate(_OUTPUTS) if o in cell.outputs)]
        source = text.recurrent(call.op_type, cell, vector, group)
        scalars = [np.int64(n) for n in (*(() if group else (jobs,)), *numbers, *mark)]
        launches.append(Launch(source, call.op_type, tensors, scalars, (jobs * (group or 1),), (group or 1,)))
    return Job(launches, begins[3] + before.workspace)


def _functions(op_type: str, attributes: Mapping[str, Any], directions: int) -> list[list[Function]]:
    names, alphas, betas = (attributes.get(n) for n in ("activations", "activation_alpha", "activation_beta"))
    return named_activations(names, alphas, betas, _DEFAULTS[op_type], directions)


def _cell(call: Call, size: int, functions: Sequence[Function]) -> Cell:
    inputs = frozenset(name for n, name in _INPUTS.items() if call.given(n) is not None)
    outputs = frozenset(name for n, name in enumerate(_OUTPUTS) if call.wanted(n) is not None)
    other = call.attributes.get("input_forget", 0) or call.attributes.get("linear_before_reset", 0)
    clip = float(call.attributes.get("clip") or 0.0)
    type_ = text_type(call.input(0).dtype)
    return Cell(call.op_type, type_, size, tuple(functions), clip, bool(other), inputs, outputs)


def _operands(call: Call, cell: Cell) -> tuple[list[Ref], list[int]]:
    """The optional inputs that there are, with where a bad length is told of; and by which number."""
    refs: list[Ref] = []
    mark: list[int] = []
    for n, name in _INPUTS.items():
        if name in cell.inputs:
            refs.append(call.read(n))
        if name == "lengths" and name in cell.inputs:
            fault, number = call.fault()
            refs.append(fault)
            mark.append(number)
    return refs, mark


def _projection(call: Call, cell: Cell, out: Ref) -> Product:
    """X W', of all directions and gates beside one another."""

    def make(call: Call) -> Product:
        x, w = call.input(0), call.input(1)
        rows, depth, columns = math.prod(x.shape[:2]), x.shape[2], math.prod(w.shape[:2])
        work = Work(cell.held, "as it is", "packed" if 1 in call.packed else "turned", 1, rows, columns, depth)
        tile = tile_of(call, work, make)
        if 1 in call.packed:
            assert isinstance(tile, Tile) and w.constant is not None
            lanes, constant = tile.columns, w.constant.reshape(columns, depth)
            ref = call.owned.ref((PANELS, lanes), lambda: panels(constant, lanes))
            right = Side(ref, cell.type, (), form=Packed)
        else:
            right = Side(call.read(1), cell.type, (), 1, depth)
        left = Side(call.read(0), cell.type, (), depth, 1)
        return Product(left, right, Side(out, cell.held, (), columns, 1), (), rows, columns, depth, tile)

    return make(call)


def _turned(call: Call, gates: int, padded: int) -> np.ndarray:
    """The recurrent weights as the kernel reads them."""
    value = call.input(2).constant
    assert value is not None
    directions, _, size = value.shape
    held = np.float32 if value.dtype.itemsize == 2 else value.dtype
    made = np.zeros((directions, size, gates, padded), held)
    made[..., :size] = value.reshape(directions, gates, size, size).transpose(0, 3, 1, 2)
    return made


def _copied(call: Call, cell: Cell, to: Ref, gates: int, padded: int) -> list[Launch]:
    """The same of weights that come with a run."""
    directions, _, size = call.input(2).shape
    shape = directions, gates, size, size  # [direction][gate][unit][unit read]
    writing = size * gates * padded, padded, 1, gates * padded
    walked = space(shape, [dense(shape), writing])
    moved = launch(call.target, "turned", [(call.read(2), cell.type)], [(to, cell.held)], walked, "y0 = x0;")
    return [*fill(call.target, "zeros", to, cell.held, directions * size * gates * padded, "0"), *moved]
