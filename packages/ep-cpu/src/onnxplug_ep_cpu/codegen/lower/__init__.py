"""Lowerings, one operator family per file, imported when a graph has operators of theirs: a process pays for the code it uses.

The table tells without importing anything which family a node needs; a test compares it with what the families enter.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable

FAMILIES = {
    "arithmetic": (
        "Abs", "Acos", "Add", "And", "Asin", "Atan", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast",
        "CastLike", "Ceil", "Clip", "Cos", "Div", "Equal", "Erf", "Exp", "Floor",
        "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul",
        "Neg", "Not", "Or", "Pow", "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Sub", "Sum", "Tan",
        "Tanh", "Where", "Xor",
    ),
    "hyperbolic": ("Acosh", "Asinh", "Atanh", "Cosh", "Sinh"),
    "activation": (
        "BiasGelu", "Celu", "Elu", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu",
        "QuickGelu", "Reciprocal", "Relu", "Selu", "Shrink", "Softplus", "Softsign", "Swish", "ThresholdedRelu",
    ),
    "matmul": (
        "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "Gemm", "MatMul", "TransposeMatMul",
    ),
    "attention_pattern": ("Softmax",),
    "conv": ("Conv", "FusedConv"),
    "conv_last": ("NhwcConv",),
    "conv_transpose": ("ConvTranspose",),
    "pad": ("Pad",),
    "resize": ("Resize", "Upsample"),
    "pool": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "NhwcMaxPool"),
    "maxima": ("MaxUnpool",),
    "norm_affine": ("BatchNormalization", "LRN"),
    "norm": (
        "GroupNormalization", "InstanceNormalization", "LayerNormalization", "MeanVarianceNormalization", "RMSNormalization",
        "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    ),
    "diffusion": ("BiasAdd", "BiasSplitGelu", "GroupNorm", "SkipGroupNorm"),
    "softmax": ("Hardmax", "LogSoftmax", "Softmax"),
    "reduce": (
        "LpNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
        "ReduceProd", "ReduceSum", "ReduceSumSquare",
    ),
    "extremes": ("ArgMax", "ArgMin"),
    "norm_patterns": ("ReduceMean",),
    "move": ("ConstantOfShape", "Expand", "Gather", "GatherND", "Slice", "Split", "Tile"),
    "views": ("Concat", "Dropout", "ExpandDims", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"),
    "recurrent": ("GRU", "LSTM", "RNN"),
    "qrecurrent": ("DynamicQuantizeLSTM",),
    "quantize": ("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"),
    "qlinear": ("QLinearAdd", "QLinearConcat", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QLinearWhere"),
    "qmatmul": ("DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QGemm", "QLinearMatMul"),
    "qfloats": ("QLinearAveragePool", "QLinearSoftmax"),
    "qconcat": ("QuantizeLinear",),
    "qconv": ("ConvInteger", "QLinearConv"),
    "qpool": ("QLinearGlobalAveragePool",),
    "qdq": ("DequantizeLinear",),
    "qblocks": ("DequantizeLinear",),
    "nbits": ("MatMulBnb4", "MatMulNBits"),
    "experts": ("MoE", "QMoE"),
    "attention_contrib": ("Attention", "MultiHeadAttention"),
    "attention_onnx": ("Attention",),
    "attention_quantized": ("QAttention",),
    "attention_grouped": ("GroupQueryAttention",),
    "linear": ("LinearAttention",),
    "gates": ("GatedRMSNorm", "LinearAttentionGate"),
    "causal": ("CausalConvWithState",),
    "blocks": ("GatherBlockQuantized",),
    "rotary": ("MRotaryEmbedding", "RotaryEmbedding"),
    "embedding": ("EmbedLayerNormalization", "QEmbedLayerNormalization"),
    "bags": ("Loop",),
    "stretches": ("ReduceMax", "ReduceMean", "ReduceSum"),
    "ml_features": (
        "ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "Normalizer", "OneHotEncoder", "Scaler",
    ),
    "grams": ("TfIdfVectorizer",),
    "ml_linear": ("LinearClassifier", "LinearRegressor"),
    "ml_labels": ("LabelEncoder",),
    "trees": ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    "svm": ("SVMClassifier", "SVMRegressor"),
    "neighbours": ("CDist", "Scan", "TopK"),
    "grid": ("AffineGrid", "GridSample"),
    "deform": ("DeformConv",),
    "fold": ("Col2Im",),
    "regions": ("MaxRoiPool", "RoiAlign"),
    "fourier": ("DFT", "STFT"),
    "einsum": ("Einsum",),
    "running": ("CumProd", "CumSum"),
    "rearrange": ("DepthToSpace", "EyeLike", "OneHot", "ReverseSequence", "SpaceToDepth", "Trilu"),
    "scatter": ("GatherElements", "Scatter", "ScatterElements", "ScatterND"),
}  # fmt: skip
"""Family -> the operators, of whatever domain, that it lowers; of a family of patterns those without which none of its
patterns is found. Patterns of families further up are tried first."""

NEEDS = {
    "attention_pattern": frozenset({"MatMul"}), "qblocks": frozenset({"MatMul"}), "stretches": frozenset({"Slice"}),
}  # fmt: skip
"""Family of patterns -> operators of which a graph has to have one as well."""

_FAMILIES_OF: dict[str, list[str]] = {}
for _family, _operators in FAMILIES.items():
    for _operator in _operators:
        _FAMILIES_OF.setdefault(_operator, []).append(_family)


def families(operators: Iterable[str]) -> None:
    """Import the families that these operators need, which enters their lowerings."""
    present = frozenset(operators)
    for operator in present:
        for family in _FAMILIES_OF.get(operator, ()):
            if not NEEDS.get(family, present) & present:
                continue
            importlib.import_module(f"{__package__}.{family}")


def rank(module: str) -> int:
    """The place of a family's module in the table: the order in which patterns are tried, whenever they were imported."""
    family = module.rpartition(".")[2]
    return next((number for number, name in enumerate(FAMILIES) if name == family), len(FAMILIES))
