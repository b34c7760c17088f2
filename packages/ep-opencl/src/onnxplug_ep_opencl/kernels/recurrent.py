"""RNN, GRU and LSTM: the inputs of all steps as one product, then one kernel over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnxplug.contract import EPFail, NodeView
from onnxplug_ep_opencl.kernels.call import PANELS, Call
from onnxplug_ep_opencl.kernels.elementwise import launch
from onnxplug_ep_opencl.kernels.lines import GROUP, group_within
from onnxplug_ep_opencl.kernels.product import Product, Side, multiply, panels, tile_of
from onnxplug_ep_opencl.kernels.shared import shared
from onnxplug_ep_opencl.kernels.target import Target
from onnxplug_ep_opencl.kernels.tiles import Work, by_registers
from onnxplug_ep_opencl.launch import Job, Ref
from onnxplug_ep_opencl.memory import ALIGNMENT
from onnxplug_kernel_text.factors import Packed
from onnxplug_kernel_text.nodes.recurrent import DEFAULTS, Layer, begins, rows
from onnxplug_kernel_text.recurrent import Cell, Function
from onnxplug_kernel_text.tile import Tile
from onnxplug_kernels.activations import named_activations

_NARROW = 32
"""Bytes of the vectors of other devices than processors with longer ones."""


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
    directions, _, size = call.input(2).shape
    group = 0 if call.target.registers else group_within(call.target, GROUP)
    functions = _functions(call.op_type, call.attributes, directions)
    layer = Layer(call, functions, max(call.target.vector, _NARROW), group)
    if not layer.extents[0] or not size:
        return Job()
    if group and layer.shared > call.target.local_memory:
        raise EPFail(f"{call.op_type}: {size} units; groups of the device share {call.target.local_memory} bytes")
    width, starts = layer.width, begins([n * layer.width for n in layer.elements], ALIGNMENT)
    projected, held, state = (call.scratch(width, begin // width) for begin in starts[:3])
    before = multiply(call.target, "projection", _projection(call, layer.cell(), projected), call.scratch(1, starts[3]))
    launches = [*before.launches]
    if 2 in call.packed:
        held = call.owned.ref(("recurrent", layer.padded), layer.weights)
    else:
        for part in layer.laid_out(held):
            launches += launch(call.target, "turned", part.inputs, [part.output], part.walked, part.body)
    fault = call.fault() if call.given(4) is not None else None
    launches += shared(call.target, layer.launches(projected, held, state, fault))
    return Job(launches, starts[3] + before.workspace)


def _functions(op_type: str, attributes: Mapping[str, Any], directions: int) -> list[list[Function]]:
    names, alphas, betas = (attributes.get(n) for n in ("activations", "activation_alpha", "activation_beta"))
    return named_activations(names, alphas, betas, DEFAULTS[op_type], directions)


def _projection(call: Call, cell: Cell, out: Ref) -> Product:
    """X W', of all directions and gates beside one another."""

    def make(call: Call) -> Product:
        w, (count, columns, depth) = call.input(1), rows(call)
        work = Work(cell.held, "as it is", "packed" if 1 in call.packed else "turned", 1, count, columns, depth)
        tile = tile_of(call, work, make)
        if 1 in call.packed:
            assert isinstance(tile, Tile) and w.constant is not None
            lanes, constant = tile.columns, w.constant.reshape(columns, depth)
            ref = call.owned.ref((PANELS, lanes), lambda: panels(constant, lanes))
            right = Side(ref, cell.type, (), form=Packed)
        else:
            right = Side(call.read(1), cell.type, (), 1, depth)
        left = Side(call.read(0), cell.type, (), depth, 1)
        return Product(left, right, Side(out, cell.held, (), columns, 1), (), count, columns, depth, tile)

    return make(call)
