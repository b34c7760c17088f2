"""Products as onnxruntime writes them into an optimized model: quantizers that go on with it treat a Gemm otherwise than a MatMul with an
Add behind it. Sessions that write none keep what the model has, which providers know to fuse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

from onnxplug.graph.ir import Graph, Node
from onnxplug.graph.making import make_node
from onnxplug.graph.value import Value

_DTYPES = (np.float32, np.float16)
_SWAPPED = [1, 0]

Rewriting = Callable[["_Products", Node], Node | None]
"""The node that stands for one of a graph and for those that are only read by it; None where there is none."""


def write_products(graph: Graph, disabled: Collection[str]) -> None:
    """Rewrite the products of a graph and of those nested in it, but for the rewritings that are disabled by onnxruntime's names."""
    for name, rewritten in _REWRITINGS:
        while name not in disabled and _Products(graph).rewrite(rewritten):
            graph.refresh()
    for node in graph.nodes:
        for body in node.subgraphs.values():
            write_products(body, disabled)


class _Products:
    """One walk over the products of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.gone = graph, set[Node]()
        self._own, self._results = set(graph.nodes), set(graph.outputs)

    def rewrite(self, rewritten: Rewriting) -> bool:
        """Whether anything was."""
        for at, node in enumerate(self.graph.nodes):
            made = rewritten(self, node) if not node.domain and node not in self.gone else None
            self.graph.nodes[at] = made or node
        self.graph.nodes = [node for node in self.graph.nodes if node not in self.gone]
        return bool(self.gone)

    def maker(self, value: Value | None, op_type: str) -> Node | None:
        """The node of this operator that makes a value which only one node reads."""
        node = None if value is None else value.producer
        if value is None or node is None or node.op_type != op_type or node.domain or node not in self._own - self.gone:
            return None
        return node if value not in self._results and len(value.consumers) == 1 else None

    def gemm(
        self, like: Node, gone: Node, inputs: Sequence[Value | None], outputs: Sequence[Value | None], name: str,
        turned: Collection[int] = (), swapped: bool = False,
    ) -> Node:  # fmt: skip
        """A Gemm in place of a product, that reads the operands ``turned`` the other way around, in the other order when ``swapped``."""
        self.gone.add(gone)
        flags = [_flag(like, key) for key in ("transA", "transB")][:: -1 if swapped else 1]
        a, b = (flag ^ (at in turned) for at, flag in enumerate(flags))
        factors = {key: float(like.attributes.get(key, 1.0)) for key in ("alpha", "beta")}
        made = [value for value in outputs if value is not None]
        attributes = {**factors, "transA": a, "transB": b}
        opset = self.graph.opset("") or like.since_version
        return make_node(self.graph, f"{like.name}/{name}", "Gemm", opset, inputs, made, attributes, like.origin)


def _joined(op_type: str, product: str, name: str) -> Rewriting:
    """A product of two matrices and the sum behind it as one Gemm, where that broadcasts the summand."""

    def rewritten(products: _Products, node: Node) -> Node | None:
        if node.op_type != op_type or node.since_version < 7 or len(node.inputs) != 2:
            return None
        for made, summand in (node.inputs, node.inputs[::-1]):
            maker = products.maker(made, product)
            if maker is None or summand is None or summand is made or any(maker.inputs[2:]):
                continue
            if _broadcasts(maker, summand) and maker.attributes.get("beta", 1) == 1:
                return products.gemm(maker, maker, [*maker.inputs[:2], summand], node.outputs, name)
        return None

    return rewritten


def _turned(products: _Products, node: Node) -> Node | None:
    """A Gemm with the Transpose of what it reads, or of what it gives without a summand."""
    name = "GemmTransposeFusion/"
    if node.op_type == "Gemm" and node.since_version >= 7:
        for operand in (0, 1):
            turn = products.maker(node.inputs[operand], "Transpose")
            if turn is not None and _turns(turn):
                inputs = [*node.inputs[:operand], turn.inputs[0], *node.inputs[operand + 1 :]]
                return products.gemm(node, turn, inputs, node.outputs, name, turned=(operand,))
    elif node.op_type == "Transpose" and _turns(node):
        maker = products.maker(node.inputs[0], "Gemm")
        if maker is not None and maker.since_version >= 7 and not any(maker.inputs[2:]):
            inputs = maker.inputs[1::-1]
            return products.gemm(maker, maker, inputs, node.outputs, name, turned=(0, 1), swapped=True)
    return None


def _turns(node: Node) -> bool:
    source = node.inputs[0]
    return source is not None and len(source.shape or ()) == 2 and node.attributes.get("perm", _SWAPPED) == _SWAPPED


def _broadcasts(product: Node, summand: Value) -> bool:
    """Whether a Gemm can add a summand to a product of two matrices, as far as sizes are known."""
    a, b = product.inputs[:2]
    if a is None or b is None or a.dtype not in _DTYPES or summand.dtype != a.dtype:
        return False
    if a.shape is None or b.shape is None or summand.shape is None or not len(a.shape) == len(b.shape) == 2:
        return False
    rows, columns = a.shape[_flag(product, "transA")], b.shape[1 - _flag(product, "transB")]
    fitting = ((columns,), (1, columns), (rows, columns), (rows, 1))
    return None not in summand.shape and summand.shape in fitting


def _flag(node: Node, name: str) -> int:
    return int(bool(node.attributes.get(name, 0)))


_REWRITINGS: tuple[tuple[str, Rewriting], ...] = (
    ("MatMulAddFusion", _joined("Add", "MatMul", "MatMulAddFusion")),
    ("GemmSumFusion", _joined("Sum", "Gemm", "GemmSumFusion/")),
    ("GemmTransposeFusion", _turned),
)
