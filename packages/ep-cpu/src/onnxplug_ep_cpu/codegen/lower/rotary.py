"""RotaryEmbedding, ONNX's and com.microsoft's."""

from __future__ import annotations

from onnxplug.contract import NodeView
from onnxplug.contract.records import record
from onnxplug_ep_cpu.codegen.kernels.rotary import Rotary
from onnxplug_ep_cpu.codegen.lower.context import Lowering
from onnxplug_ep_cpu.codegen.lower.entries import lowering
from onnxplug_ep_cpu.codegen.lower.heads import split_heads
from onnxplug_ep_cpu.codegen.lower.support import FLOATS, attributes, rank, typed
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.program import STATUS_WORD, Ref
from onnxplug_ep_cpu.codegen.tensor import Tensor


@record(frozen=True, slots=True)
class Angles:
    """Cosines and sines, [positions, pairs] or [batch, rows, pairs]. Row i of an input stands at ``first`` + ``step`` i,
    plus its number in ``places`` [batch, rows] (sizes of 1 broadcast); None: at its own row."""

    cos: Tensor
    sin: Tensor
    places: Tensor | None = None
    first: int = 0
    step: int = 0


def rotate(b: Lowering, x: Tensor, y: Tensor, angles: Angles, interleaved: bool) -> None:
    """Heads [batch, heads, rows, size] with their first elements turned in pairs; the others are copied."""
    batch, heads, rows, size = x.shape
    cos, sin, places = angles.cos, angles.sin, angles.places
    pairs = cos.shape[-1]
    if 2 * pairs > size or cos.shape != sin.shape:
        raise Unsupported(f"{cos.shape} cosines and {sin.shape} sines do not turn heads of {size} elements")
    if x.size == 0:
        return
    x = x if x.strides[3] == 1 else b.copied(x, range(4))
    cos, sin = (t if t.is_dense else b.copied(t, range(len(t.shape))) for t in (cos, sin))
    strides = [4 * s for s in (*x.strides[:3], *y.strides[:3])]
    outer = 4 * cos.strides[0] if len(cos.shape) == 3 and cos.shape[0] > 1 else 0
    if places is None:
        if cos.shape[-2] < rows:
            raise Unsupported(f"there are {cos.shape[-2]} cosines for {rows} rows")
        where: list[int | Ref] = [0, 0]
    else:
        steps = places.broadcast((batch, rows)).strides
        where = [places.itemsize * s for s in steps]
    args: list[int | Ref] = [
        x.ref, y.ref, cos.ref, sin.ref, 0 if places is None else places.ref, Ref(STATUS_WORD), rows, heads, pairs,
        size - 2 * pairs, *strides, outer, 4 * pairs, cos.shape[-2], *where, angles.step, angles.first,
    ]  # fmt: skip
    kernel = Rotary(0 if places is None else 8 * places.itemsize, interleaved)
    b.program.call(kernel, args, batch * rows, x.size * 0.3 + 10.0 * batch * rows * heads)


def _supports(node: NodeView) -> str | None:
    x, *rest = [*node.inputs, *[None] * 4][:4]
    places = rest.pop(0 if node.domain else 2)
    if node.attributes.get("is_packed_batching", 0):
        return "sequences packed into one are not generated"
    if rank(x) not in (3, 4) or (places is not None and rank(places) not in (1, 2)):
        return "the rank of an operand is not what the operator takes"
    if not node.domain and rank(x) == 3 and not node.attributes.get("num_heads", 0):
        return "the number of heads is missing"
    reason = typed(places, {"int64"})
    return reason or next((r for v in (x, *rest, *node.outputs) if (r := typed(v, FLOATS))), None)


@lowering("RotaryEmbedding", supports=_supports)
@lowering("RotaryEmbedding", supports=_supports, domain="com.microsoft")
def rotary_embedding(b: Lowering, node: NodeView) -> None:
    """Heads turned by the angles of their positions; without positions there are angles for each row. In com.microsoft
    a single position is the first row's."""
    x, *rest = [*node.inputs, *[None] * 4][:4]
    places = rest.pop(0 if node.domain else 2)
    cos, sin = rest
    (y,) = node.outputs
    assert x is not None and cos is not None and sin is not None and y is not None
    given = attributes(node, interleaved=0, num_heads=0, rotary_embedding_dim=0)
    cosines, sines, data = b.read(cos), b.read(sin), b.read(x)
    pairs = cosines.shape[-1]
    target = b.output(y)
    heads, out = data, target
    if len(data.shape) == 3:
        count = given["num_heads"] or data.shape[2] // (2 * pairs)
        heads, out = split_heads(data, count), split_heads(target, count)
    width = given["rotary_embedding_dim"] or heads.shape[3]
    if 2 * pairs != width:
        raise Unsupported(f"the caches hold {pairs} angles, half of {width} are needed")
    where = None if places is None else b.dense(places)
    if where is None:
        rotate(b, heads, out, Angles(cosines, sines), bool(given["interleaved"]))
        return
    alone = len(where.shape) == 1
    where = where.viewed((1, 1), (0, 0)) if alone else where
    rotate(b, heads, out, Angles(cosines, sines, where, 0, int(alone)), bool(given["interleaved"]))
