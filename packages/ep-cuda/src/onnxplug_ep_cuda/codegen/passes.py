"""Element-wise kernels of one node: a thread for each element."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnxplug_ep_cuda.codegen.launch import Call, Job, Launch, integers
from onnxplug_kernel_text.elementwise import Operand, elementwise
from onnxplug_kernel_text.nodes.launch import Pass

_BLOCK = 256


def passing(describe: Callable[[Call], Pass | Sequence[Pass] | None]) -> Callable[[Call], Job | None]:
    """The lowering of an operator that passes over its elements."""

    def lowered(call: Call) -> Job | None:
        found = describe(call)
        if found is None:
            return None
        return Job([_launch(call.op_type, made) for made in ([found] if isinstance(found, Pass) else found)])

    return lowered


def _launch(name: str, made: Pass) -> Launch:
    walked, typed = made.walked, [*made.inputs, made.output]
    operands = [Operand(type_, pattern) for (_, type_), pattern in zip(typed, walked.patterns, strict=True)]
    text = elementwise(name, operands[:-1], operands[-1:], made.body, index="i64")
    return Launch(
        text, name, tuple(ref for ref, _ in typed), integers(*walked.scalars), -(-walked.points // _BLOCK), _BLOCK
    )
