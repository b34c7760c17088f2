"""Which nodes become native regions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from onnxplug.contract import Claim, GraphView, KernelLookup, NodeView, convex_groups, prefer_host
from onnxplug_ep_cpu.codegen.awaited import Awaited, sizes
from onnxplug_ep_cpu.codegen.lower.entries import accepted, is_lowered, lowerings

HEAVY = frozenset(
    {
        "Conv", "MatMul", "Gemm", "ConvTranspose", "FusedConv", "LSTM", "GRU", "RNN", "QLinearConv", "ConvInteger", "MatMulInteger",
        "QLinearMatMul", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulBnb4", "MatMulNBits", "FusedGemm",
        "Attention", "MultiHeadAttention", "GroupQueryAttention", "Softmax", "LogSoftmax", "Einsum", "LayerNormalization",
        "SkipLayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization", "LRN", "MaxPool",
        "AveragePool", "Resize", "Upsample", "TopK", "DynamicQuantizeLSTM", "CumSum", "CumProd", "Loop",
        "GatherElements", "GatherND", "ScatterElements", "ScatterND", "MaxRoiPool", "RoiAlign", "TfIdfVectorizer", "Mod", "Erf", "Gelu",
        "Mish", "Softplus", "MaxUnpool", "Hardmax", "MeanVarianceNormalization", "BatchNormalization", "LpNormalization",
        "GlobalAveragePool", "GlobalMaxPool", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Celu", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu",
        "Selu", "Sigmoid", "Softsign", "OneHot", "Trilu", "AffineGrid", "ArgMax", "ArgMin",
        "QLinearAveragePool", "NhwcMaxPool", "DeformConv", "Col2Im", "GridSample",
        "MoE", "QMoE", "QAttention", "EmbedLayerNormalization", "QEmbedLayerNormalization", "LinearAttention", "LinearAttentionGate",
        "CausalConvWithState", "GatedRMSNorm", "GatherBlockQuantized", "ReverseSequence", "DynamicQuantizeLinear", "QuantizeLinear",
        "RotaryEmbedding", "MRotaryEmbedding", "BiasGelu", "FastGelu", "Shrink", "ThresholdedRelu", "QuickGelu",
        "BiasSplitGelu", "GroupNorm", "NhwcConv", "SkipGroupNorm",
    }
)  # fmt: skip
"""Operators that make a region worth having by themselves, as those of ``ML`` do: with NumPy each is several steps."""
ML = "ai.onnx.ml"
SHAPE_OPERANDS = {
    "Reshape": (1,),
    "Unsqueeze": (1,),
    "ExpandDims": (1,),
    "Squeeze": (1,),
    "Expand": (1,),
    "ConstantOfShape": (0,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Pad": (1, 3),
    "Resize": (2, 3),
    "Upsample": (1,),
    "GroupQueryAttention": (6,),
    "OneHot": (1,),
    "AffineGrid": (1,),
    "Col2Im": (1, 2),
    "TopK": (1,),
    "Loop": (0,),
}
"""Operands whose values decide the shape of a result. A region takes such a node if they follow from shapes, or if it can wait for them
(see ``awaited``)."""
SMALLEST = 2
"""Fewer generated nodes than this, none of them heavy or of large operands, are left to NumPy."""
UNCONNECTED = 4
"""Fewer such nodes than this are left to NumPy where nothing connects them: a region saves each but the first a call, a microsecond, and
takes milliseconds to make."""
LARGE = 512
"""Elements from which on NumPy takes longer over one node than entering a region does, which takes no longer than a call of
NumPy's: it uses one thread, narrower loops for many functions, and new memory for what lies between."""
UNKNOWN = 64
"""The size assumed for a dimension that is not known."""
VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "ExpandDims", "Flatten", "Identity", "Dropout"})
"""Operators that move nothing with NumPy. A main graph of nothing else copies what it shows; as a region that is one call."""


def claims(graph: GraphView, kernels: KernelLookup) -> Iterable[Claim]:
    """Regions of the nodes that no other provider has taken."""
    lowerings(graph.nodes)
    shapes = {id(node) for node in prefer_host(graph)}
    shared = any(kernels.owner(node) is not None for node in graph.nodes)
    texts = [chain for chain in _texts(graph) if all(kernels.owner(node) is None for node in chain)]
    apart = {id(node) for chain in texts for node in chain}
    alone = _resized_alone(graph, shapes)
    awaited = Awaited(graph, shapes, alone)
    yield from (Claim(chain, "native") for chain in texts)

    free = [node for node in graph.nodes if kernels.owner(node) is None and id(node) not in apart]
    carrying = _carrying(free, {value.name for value in graph.outputs})
    taken = {id(node) for node in free}

    def supported(node: NodeView) -> bool:
        if id(node) not in taken or id(node) in awaited.makers or id(node) in alone:
            return False
        if id(node) in shapes or id(node) in carrying:
            return True
        if any(v is not None and v.dtype == object and v.constant is None for v in node.inputs) and accepted(node):
            return False
        if node.op_type == "Loop" and shared:
            return False  # its body may be the others'
        decided = not _undecided(node, shapes) or (id(node) in awaited.behind and bool(sizes(node))) or accepted(node)
        return decided and is_lowered(node)

    groups = convex_groups(graph, lambda node: id(node) not in awaited.behind and supported(node))
    if awaited.behind:
        groups += convex_groups(graph, lambda node: id(node) in awaited.behind and supported(node))
    groups = _with_constants(groups)
    if not awaited.behind and graph.parent is not None and sum(map(len, groups)) == len(graph.nodes):
        groups = [list(graph.nodes)]  # a body that is one region runs trip after trip
    whole = len(groups) == 1 and len(groups[0]) == len(graph.nodes)
    brief = whole and all(map(_is_view if graph.parent is None else _is_fixed, graph.nodes))

    def is_worth(group: list[NodeView]) -> bool:
        compute = [node for node in group if id(node) not in shapes and id(node) not in carrying]
        return (brief and bool(compute)) or len(compute) >= SMALLEST or any(map(_alone, compute))

    yield from (Claim(group, "native") for group in groups if is_worth(group))
    members = {id(node) for node in graph.nodes}
    left = [node for group in groups if not is_worth(group) for node in group]
    unconnected = [n for n in left if id(n) not in shapes and not _reads_text(n) and _is_unconnected(n, members)]
    if len(unconnected) >= UNCONNECTED:
        yield Claim(unconnected, "native")


def _is_unconnected(node: NodeView, graph: Collection[int]) -> bool:
    """Whether nothing that the node reads is made by one of the graph's, and none reads what it makes: however many such nodes are one
    region, no path leaves it, and what they read and make, being the graph's, does not lie in memory longer than without it."""
    read = [v for v in (*node.inputs, *node.captures) if v is not None and v.producer is not None]
    return not any(id(v.producer) in graph for v in read) and not any(
        v.consumers for v in node.outputs if v is not None
    )


def _reads_text(node: NodeView) -> bool:
    """Whether a kernel takes the node as fast by itself (``objects``): a region has the numbers of strings looked up first."""
    return any(v is not None and v.dtype is not None and v.dtype.hasobject for v in node.inputs)


def _resized_alone(graph: GraphView, shapes: set[int]) -> set[int]:
    """Nodes of a loop that resize parts of images, as large as data say: nearly every trip has another shape, for which a region would
    be bound, so a kernel that serves any takes them."""
    if not any(node.op_type == "Resize" for node in graph.nodes) or not _is_repeated(graph):
        return set()
    from onnxplug_ep_cpu.kernels.resize import serves

    varying: set[int] = set()
    found: set[int] = set()
    for node in graph.nodes:
        undecided = _undecided(node, shapes)
        if not undecided and not any(v is not None and id(v.producer) in varying for v in node.inputs):
            continue
        if serves(node):
            found.add(id(node))
        if undecided or not _is_sized(node):
            varying.add(id(node))
    return found


def _is_repeated(graph: GraphView) -> bool:
    """Whether the graph is a loop's body, or a branch in one."""
    while graph.parent is not None:
        if any(
            node.op_type != "If" and any(body is graph for body in node.subgraphs.values())
            for node in graph.parent.nodes
        ):
            return True
        graph = graph.parent
    return False


def _is_sized(node: NodeView) -> bool:
    """Whether the shapes of the node's results are known whatever those of its operands are."""
    return all(v is None or (v.shape is not None and all(isinstance(n, int) for n in v.shape)) for v in node.outputs)


def _texts(graph: GraphView) -> list[list[NodeView]]:
    """Nodes that together count what is in texts."""
    if not {"Tokenizer", "TfIdfVectorizer"} <= {node.op_type for node in graph.nodes}:
        return []
    from onnxplug_ep_cpu.codegen.documents import chains

    return [chain.nodes for chain in chains(graph.nodes, {value.name for value in graph.outputs})]


def _carrying(nodes: Sequence[NodeView], shown: Collection[str]) -> set[int]:
    """Nodes that pass strings on, to encoders that read them as numbers or from those whose results are places in a list of strings."""
    encoders = [node for node in nodes if node.domain == ML]
    if not any(v is not None and v.dtype == object for node in encoders for v in (*node.inputs, *node.outputs)):
        return set()
    from onnxplug_ep_cpu.codegen.lower.numbered import carriers

    return carriers(nodes, shown)


def _alone(node: NodeView) -> bool:
    """Whether the node makes a region worth having by itself."""
    if node.op_type in HEAVY or (node.op_type == "Div" and _whole(node)):
        return True
    if node.domain == ML:  # words are looked up as fast without a region
        values = (*node.inputs, *(node.outputs if node.op_type == "LabelEncoder" else ()))
        return not any(v is not None and v.dtype == object for v in values)
    if _is_view(node):
        return False
    sizes = [
        math.prod(UNKNOWN if isinstance(n, str) or n is None else n for n in value.shape)
        for value in (*node.inputs, *node.outputs)
        if value is not None and value.constant is None and value.shape is not None
    ]
    return max(sizes, default=0) >= LARGE


def _is_view(node: NodeView) -> bool:
    return node.op_type in VIEWS


def _is_fixed(node: NodeView) -> bool:
    """Whether all shapes are known. A body of such nodes is bound once and runs trip after trip, where NumPy takes longer to be called than
    to compute; one of a growing list would be bound in each trip."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return all(v.shape is not None and all(isinstance(n, int) for n in v.shape) for v in values)


def _whole(node: NodeView) -> bool:
    """Whether the node's results are integers."""
    (y,) = node.outputs
    return y is not None and y.dtype is not None and y.dtype.kind == "i"


def _with_constants(groups: list[list[NodeView]]) -> list[list[NodeView]]:
    """Nodes of constants alone (weights being dequantized) with what reads them; nothing leads to them, so they fit anywhere."""
    home = {id(node): number for number, group in enumerate(groups) for node in group}
    joining: dict[int, list[NodeView]] = {}
    for number, group in enumerate(groups):
        if len(group) > 1 or any(v is not None and v.constant is None for v in group[0].inputs) or group[0].captures:
            continue
        readers = {home.get(id(r)) for v in group[0].outputs if v is not None for r in v.consumers}
        reader = readers.pop() if len(readers) == 1 else None
        if reader is not None and reader != number:
            joining.setdefault(reader, []).append(group[0])
            group.clear()
    return [[*joining.get(number, ()), *group] for number, group in enumerate(groups) if group]


def _undecided(node: NodeView, shapes: set[int]) -> bool:
    """Whether an operand that decides the result's shape depends on data."""
    operands = (node.inputs[index] for index in SHAPE_OPERANDS.get(node.op_type, ()) if index < len(node.inputs))
    return any(
        value is not None and value.constant is None and (value.producer is None or id(value.producer) not in shapes)
        for value in operands
    )
