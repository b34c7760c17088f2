"""TfIdfVectorizer: n-grams of integers, or of strings that the region numbers."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug_ep_cpu.codegen.gram_table import Table, unfit
from onnxplug_ep_cpu.codegen.kernels.grams import Grams
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.numbered import word_numbers
from onnxplug_ep_cpu.codegen.lower.support import typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import Ref

EXACT = 1 << 24
"""Counts up to which float32 has each."""


def supports(node: NodeView) -> str | None:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None and y is not None
    if x.dtype != object and (reason := typed(x, {"int32", "int64"})) is not None:
        return reason
    return unfit(node) or typed(y, {"float32"})


@lowering("TfIdfVectorizer", supports=supports)
def tfidf(b: Lowering, node: NodeView) -> None:
    """As ``onnxplug_kernels.ops.tfidf``."""
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None and y is not None
    numbers = word_numbers(b, x) if x.dtype == object else None
    table = b.prepared.made(node, lambda: Table(node, numbers))
    tensor = b.dense(x)
    if len(tensor.shape) not in (1, 2):
        raise Unsupported(f"it takes shape [C] or [N, C], got {list(tensor.shape)}")
    size = tensor.shape[-1]
    rows = tensor.shape[0] if len(tensor.shape) == 2 else 1
    farthest = 1 if table.longest == 1 else max(1, min(table.skips + 1, size - 1))
    if size * farthest >= EXACT:
        raise Unsupported("its counts may be beyond what float32 has exactly")
    out = b.output(y)
    made = out if out.is_dense else b.scratch(out.shape)
    if made.size != rows * table.width:
        raise Unsupported(f"its result has shape {list(made.shape)}, not {table.width} columns for each row")
    args: list[int | Ref] = [
        made.ref, tensor.ref, b.tensor_of(table.entries).ref, b.tensor_of(table.weights).ref, size, table.width,
        table.longest, farthest, len(table.entries) - 1, table.probes,
    ]  # fmt: skip
    kernel = Grams(node.attributes["mode"], 8 * tensor.itemsize)
    b.program.call(
        kernel, args, rows, rows * (0.5 * table.width + 4.0 * table.probes * size * farthest * table.longest)
    )
    b.values[y.name] = made
