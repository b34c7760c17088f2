"""MatMul and Gemm, with the fused forms of onnxruntime's."""

from __future__ import annotations

from onnxplug.contract import NodeView, ValueView
from onnxplug_ep_cpu.codegen import expr as ex
from onnxplug_ep_cpu.codegen.lower.activation import fused_activation
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.matrices import batch_first, matrix_product, product_of_tensors, turned
from onnxplug_ep_cpu.codegen.lower.norm_affine import grown
from onnxplug_ep_cpu.codegen.lower.pending import Pending
from onnxplug_ep_cpu.codegen.lower.support import INTEGERS, NUMBERS, REALS, attributes, floats, of, rank
from onnxplug_ep_cpu.codegen.lower.whole import product_of_integers
from onnxplug_ep_cpu.codegen.tensor import Ints


@lowering("MatMul", supports=of(NUMBERS))
def matmul(b: Lowering, node: NodeView) -> None:
    """Batched matrix product with broadcast batches; a vector is a row on the left, a column on the right."""
    (x, w), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    shape = b.shape(y)
    whole = b.element(y) in INTEGERS
    if min(rank(x), rank(w)) >= 2 and not whole:
        b.pend(y, matrix_product(b, shape, x, w))
        return
    batch = shape[: len(shape) - (rank(x) > 1) - (rank(w) > 1)]
    left, right = b.read(x), b.read(w)
    row = left if rank(x) > 1 else left.reshaped((1, left.size))
    column = right if rank(w) > 1 else right.reshaped((right.size, 1))
    assert row is not None and column is not None, "a vector is a matrix of one row or column"
    form = (*batch, row.shape[-2], column.shape[-1])
    made = product_of_integers(b, form, row, column) if whole else b.write(product_of_tensors(b, form, row, column))
    flat = made.reshaped(shape)
    assert flat is not None
    b.define(y, flat)


@lowering("Gemm", supports=of(REALS))
def gemm(b: Lowering, node: NodeView) -> None:
    """alpha A B + beta C."""
    (y,) = node.outputs
    assert y is not None
    b.pend(y, _gemm(b, node))


def _gemm(b: Lowering, node: NodeView) -> Pending:
    (x, w, *rest), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    given = attributes(node, alpha=1.0, beta=1.0, transA=0, transB=0)
    pending = matrix_product(b, b.shape(y), x, w, bool(given["transA"]), bool(given["transB"]))
    return _scaled(b, b.shape(y), pending, rest[0] if rest else None, given["alpha"], given["beta"])


def _scaled(b: Lowering, shape: Ints, pending: Pending, bias: ValueView | None, alpha: float, beta: float) -> Pending:
    """alpha times a product, plus beta times a bias."""
    build = ex.Build()
    total = build("leaf", 0)
    if alpha != 1.0:
        total = build("mul", total, build("const", alpha))
    if bias is None or beta == 0.0:
        pending.expr = build.finish(total)
        return pending
    c = build("leaf", 1)
    total = build("add", total, c if beta == 1.0 else build("mul", c, build("const", beta)))
    leaf = b.read(bias)
    if pending.takes is None or not pending.takes(leaf):
        return Pending(shape, build.finish(total), [b.write(pending), leaf], element=pending.element)
    pending.leaves.append(leaf)
    pending.expr = build.finish(total)
    return pending


def _activation(node: NodeView) -> ex.Expr | None:
    """What a fused product ends in; FusedGemm may call a second parameter gamma, which is Selu's name for it."""
    alpha, beta, gamma = (node.attributes.get(f"activation_{name}") for name in ("alpha", "beta", "gamma"))
    second = gamma if beta is None and node.op_type == "FusedGemm" else beta
    return fused_activation(node.attributes.get("activation", ""), [alpha, second])


def _fused_supports(node: NodeView) -> str | None:
    if _activation(node) is None:
        return f"no code is generated for the activation {node.attributes.get('activation')}"
    return floats(node) or (None if min(map(rank, node.inputs[:2])) >= 2 else "an operand is a vector")


@lowering("FusedGemm", supports=_fused_supports, domain="com.microsoft")
def fused_gemm(b: Lowering, node: NodeView) -> None:
    """Gemm, and an activation of the result."""
    _pend_activated(b, node, _gemm(b, node))


def _pend_activated(b: Lowering, node: NodeView, product_: Pending) -> None:
    """The node's output is the activation of a product."""
    (y,) = node.outputs
    expr = _activation(node)
    assert y is not None and expr is not None
    b.pend(y, grown(b, product_, expr, []))


@lowering("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", supports=_fused_supports, domain="com.microsoft")
def fused_matmul(b: Lowering, node: NodeView) -> None:
    """alpha A B; each operand with its last two dimensions, or its batch and rows, changed about."""
    (x, w), (y,) = node.inputs, node.outputs
    assert x is not None and w is not None and y is not None
    given = attributes(node, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0)
    if not given["transBatchA"] and not given["transBatchB"]:
        pending = matrix_product(b, b.shape(y), x, w, bool(given["transA"]), bool(given["transB"]))
    else:
        left, right = (
            turned(batch_first(b.read(v), given[f"transBatch{side}"]), given[f"trans{side}"])
            for v, side in ((x, "A"), (w, "B"))
        )
        pending = product_of_tensors(b, b.shape(y), left, right)
    _pend_activated(b, node, _scaled(b, b.shape(y), pending, None, given["alpha"], 0.0))
