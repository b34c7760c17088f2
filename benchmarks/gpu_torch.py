"""The architectures of ``gpu_models`` in PyTorch: each node by the function a PyTorch program would call, on the same weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def operators() -> Mapping[str, Callable[..., Any]]:
    """Operator -> function of (attributes, tensors). PyTorch is imported when one is called."""
    return {
        "Add": lambda a, x, y: x + y,
        "Attention": _attention,
        "Conv": _conv,
        "Flatten": lambda a, x: x.flatten(1),
        "Gather": _gather,
        "Gelu": lambda a, x: _f().gelu(x),
        "GlobalAveragePool": lambda a, x: _f().adaptive_avg_pool2d(x, 1),
        "LayerNormalization": lambda a, x, w, b: _f().layer_norm(x, w.shape, w, b, a["epsilon"]),
        "MatMul": lambda a, x, y: x @ y,
        "MaxPool": lambda a, x: _f().max_pool2d(x, a["kernel_shape"], a["strides"], a["pads"][:2]),
        "ReduceMean": lambda a, x, axes: x.mean(tuple(axes.tolist()), keepdim=bool(a["keepdims"])),
        "Relu": lambda a, x: _f().relu(x),
        "Reshape": lambda a, x, shape: x.reshape([n or x.shape[k] for k, n in enumerate(shape.tolist())]),
        "Tanh": lambda a, x: x.tanh(),
        "Transpose": lambda a, x: x.permute(a["perm"]),
    }


def hosted(node: onnx.NodeProto) -> bool:
    """Whether a node's second input is numbers that shape its call: axes, a shape, one place."""
    return node.op_type in ("ReduceMean", "Reshape") or (node.op_type == "Gather" and len(node.attribute) > 0)


def function(model: onnx.ModelProto, device: Any) -> Callable[..., tuple[Any, ...]]:
    """A function of the model's inputs in order, which gives its outputs."""
    import torch

    table = operators()
    lists = {n.input[1] for n in model.graph.node if hosted(n)}
    weights: dict[str, Any] = {}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        weights[tensor.name] = array if tensor.name in lists else torch.from_numpy(np.array(array)).to(device)
    steps = [
        (table[n.op_type], {a.name: helper.get_attribute_value(a) for a in n.attribute}, list(n.input), list(n.output))
        for n in model.graph.node
    ]
    names, wanted = [i.name for i in model.graph.input], [o.name for o in model.graph.output]

    def run(*inputs: Any) -> tuple[Any, ...]:
        known = weights | dict(zip(names, inputs, strict=True))
        for call, attributes, given, made in steps:
            results = call(attributes, *(known[name] if name else None for name in given))
            known.update(zip(made, results if isinstance(results, tuple) else (results,), strict=True))
        return tuple(known[name] for name in wanted)

    return run


def calls(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], *, captured: bool
) -> dict[str, Callable[[], object]]:
    """PyTorch's runs of a graph, waited for: eager and compiled, the latter with CUDA graphs where ``captured``."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True  # our default
    plain = function(model, "cuda")
    inputs = [torch.from_numpy(feeds[i.name]).cuda() for i in model.graph.input]
    compiled = torch.compile(plain, mode="reduce-overhead" if captured else "default")

    def timed(run: Callable[..., Any]) -> Callable[[], object]:
        def call() -> None:
            with torch.inference_mode():
                run(*inputs)
            torch.cuda.synchronize()

        return call

    return {"torch_eager": timed(plain), "torch_compiled": timed(compiled)}


def _f() -> Any:
    import torch

    return torch.nn.functional


def _conv(a: Mapping[str, Any], x: Any, w: Any, b: Any) -> Any:
    return _f().conv2d(x, w, b, a["strides"], a["pads"][:2])


def _gather(a: Mapping[str, Any], x: Any, indices: Any) -> Any:
    if a.get("axis", 0) == 0:
        return _f().embedding(indices, x)
    return x.select(a["axis"], indices.item())


def _attention(a: Mapping[str, Any], q: Any, k: Any, v: Any, mask: Any = None, *past: Any) -> Any:
    heads = a["q_num_heads"]
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if past:
        import torch

        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    y = _f().scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
    return (y, k, v) if past else y
