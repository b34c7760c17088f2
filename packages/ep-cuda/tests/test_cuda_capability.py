"""What the provider claims of a graph, and as what."""

from __future__ import annotations

import contextlib

import numpy as np
import onnx.parser
import pytest

from onnxplug.contract import Claim, Decline, GraphView, KernelDef, Mismatch, NodeView
from onnxplug_ep_cuda.capability import capability
from onnxplug_ep_cuda.registry import registry

MODEL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N, 3, 8, 8] x) => (float[N, 4, 16, 4] z, int64[K] n)
<float scale = {0.5}, float one = {1}> {
  c = Conv(x, w)
  r = Relu(c)
  n = Shape(r)
  k = Slice(n, s0, s1)
  f = Reshape(r, shape)
  t = Transpose<perm = [0, 1, 3, 2]>(f)
  s = MatMul(f, t)
  d = Mul(s, scale)
  p = Softmax(d)
  o = MatMul(p, f)
  e = Add(o, one)
  q = Exp(e)
  u = Neg(q)
  z = Identity(u)
}"""


class Everywhere:
    """A place of work that needs no entering."""

    entered = True

    def inside(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Lookup:
    """The provider's own kernels, nothing taken by others."""

    def __init__(self, taken: str = "") -> None:
        self._registry, self._taken = registry(np, Everywhere(), tf32=True), taken

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        return self._registry.kernel_for(node)

    def owner(self, node: NodeView) -> str | None:
        return "OtherExecutionProvider" if node.op_type == self._taken else None


@pytest.fixture(scope="module")
def graph() -> GraphView:
    models = pytest.importorskip("onnxplug_testkit.models", reason="capability: onnxplug-testkit")
    made = onnx.parser.parse_model(MODEL)
    constants = {
        "w": np.ones((4, 3, 1, 1), np.float32), "s0": np.array([0]), "s1": np.array([1]), "shape": np.array([0, 4, 16, 4]),
    }  # fmt: skip
    made.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in constants.items())
    found: GraphView = models.graph_of(made)
    return found


def regions(graph: GraphView, *, cudnn: bool, taken: str = "") -> dict[str, list[str]]:
    """Operators of each region that is claimed."""
    claims = [c for c in capability(graph, Lookup(taken), cudnn=cudnn) if isinstance(c, Claim) and c.fused]
    return {str(claim.fused): [node.op_type for node in claim.nodes] for claim in claims}


def test_convolutions_attention_and_chains_are_regions(graph: GraphView) -> None:
    found = regions(graph, cudnn=True)
    assert found["convolution"] == ["Conv", "Relu"]
    assert found["attention"] == ["Transpose", "MatMul", "Mul", "Softmax", "MatMul"]
    assert found["elementwise"] == ["Add", "Exp", "Neg"]


def test_without_cudnn_convolutions_are_kernels(graph: GraphView) -> None:
    assert set(regions(graph, cudnn=False)) == {"attention", "elementwise"}


def test_what_another_provider_has_is_in_no_region(graph: GraphView) -> None:
    assert set(regions(graph, cudnn=True, taken="Softmax")) == {"convolution", "elementwise"}


def test_every_node_is_claimed_by_itself_too_or_declined_with_a_reason(graph: GraphView) -> None:
    answers = list(capability(graph, Lookup(), cudnn=True))
    alone = {id(c.nodes[0]) for c in answers if isinstance(c, Claim) and c.fused is None}
    declined = {id(d.node): d.reason for d in answers if isinstance(d, Decline)}
    assert all((id(node) in alone) != (id(node) in declined) for node in graph.nodes)
    assert all(reason for reason in declined.values())
