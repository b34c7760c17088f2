"""The nodes of a region as a program, every shape known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from onnxplug.contract import NodeView, TensorSpec, ValueView, fits
from onnxplug.contract.logs import Log
from onnxplug_ep_cpu.codegen import fuse
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.decided import decide
from onnxplug_ep_cpu.codegen.lower.entries import lower
from onnxplug_ep_cpu.codegen.lower.support import require
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.packer import Packer
from onnxplug_ep_cpu.codegen.pool import Pool
from onnxplug_ep_cpu.codegen.prepared import Prepared
from onnxplug_ep_cpu.codegen.program import Buffer, Form, Program
from onnxplug_ep_cpu.codegen.target import Target
from onnxplug_ep_cpu.codegen.tensor import Tensor, dense_strides, element_of
from onnxplug_ep_cpu.codegen.undecided import Open
from onnxplug_kernels.fitting import misfit

log = Log("onnxplug.cpu")


def lowered(
    prepared: Prepared,
    target: Target,
    threads: int,
    pool: Callable[[], Pool],
    specs: Mapping[str, TensorSpec],
    open_: Open,
) -> tuple[Form, Lowering]:
    """The region's nodes lowered; constants they want packed are packed, by the threads that ``pool`` gives. Unsupported where code
    cannot be generated for these shapes."""
    region = prepared.region
    for value in (*region.inputs, *region.outputs):
        if value.name not in specs and value.dtype != object:
            raise Unsupported(f"the shape of '{value.name}' depends on data")
    known = {v.name for v in region.outputs if v.name in specs and specs[v.name].constant is not None}
    outputs = {v.name: Buffer("output", 0, i) for i, v in enumerate(region.outputs) if v.name not in known}
    packer = Packer(target, threads, pool)
    program = Program(begin=compiler(target).begin)
    lowering = Lowering(dict(specs), prepared, outputs, open_, program, target, threads, packer)
    for number, value in enumerate(region.inputs):
        spec = specs[value.name]
        buffer = Buffer("input", spec.nbytes, number)
        element = "int64" if spec.dtype == object else element_of(spec.dtype)  # strings are numbered
        lowering.values[value.name] = Tensor(buffer, spec.shape, dense_strides(spec.shape), element=element)
    try:
        for node in prepared.nodes:
            if not fits(node, [_shape(specs, v) for v in node.inputs]):
                raise Unsupported(f"the operands of {node.op_type} '{node.name}' do not go together")
        for node in prepared.ruled:
            require(misfit(node.domain, node.op_type, [_shape(specs, v) for v in node.inputs], node.attributes))
        with np.errstate(all="ignore"):  # of scales that are 0, which are divided by here as they would be in a run
            _steps(lowering, prepared)
        lowering.finish()
    finally:  # another lowering takes what this one packed for filled
        packer.finish()
    form = Form(lowering.program, compiler(target), len(region.inputs), len(region.outputs), threads)
    log.debug("region %s is lowered: %s", region.name, prepared.facts())
    return form, lowering


def _steps(lowering: Lowering, prepared: Prepared) -> None:
    """Lower each step, or each node of a step that declines these shapes."""
    for step in prepared.steps:
        if not isinstance(step, fuse.Group):
            _lower(lowering, step)
            continue
        lowering.program.turn_to(step.nodes)
        if not step.lower(lowering):
            for node in step.nodes:
                _lower(lowering, node)


def _shape(specs: Mapping[str, TensorSpec], value: ValueView | None) -> tuple[int, ...] | None:
    spec = None if value is None else specs.get(value.name)
    return None if spec is None else spec.shape


def _lower(lowering: Lowering, node: NodeView) -> None:
    if any(v is not None and lowering.is_computed(v) for v in node.outputs):
        lowering.program.turn_to((node,))
        (decide if _is_decided(lowering, node) else lower)(lowering, node)


def _is_decided(b: Lowering, node: NodeView) -> bool:
    """Whether the node's results are constants of this bind: it has no lowering, or it reads nothing but such constants and the
    plan, to which they were too large, does not know what shapes follow."""
    if id(node) in b.prepared.decided:
        return True
    unknown = any(v is not None and v.dtype != object and v.name not in b.specs for v in node.outputs)
    return unknown and all(v is None or b.is_constant(v) for v in node.inputs)
