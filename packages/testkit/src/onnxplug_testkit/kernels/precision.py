"""How exact each operator's results must be, relative to the oracle's result rounded to the declared type.

ULP are those of the output's type at the expected value. Integers, booleans and strings are exact, but for operators that round real
numbers to them, which may land one step off where a number falls on a boundary.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from onnxplug_testkit.kernels.extremes import COMPARED, CUT, MASKED, MOVED, SPECIALS, SPREADING, STEEP, Wide

Kind = Literal["exact", "rounded", "elementary", "sum", "scale", "random"]


@dataclass(frozen=True, slots=True)
class Precision:
    """The rule for one operator.

    ``exact``: bit for bit, the sign of zero included. ``rounded``: IEEE arithmetic, ``ulp`` units in the last place and the sign of
    zero. ``elementary``: a function of single elements, ``ulp`` units. ``sum``: |error| <= ``ulp`` eps sum|a||b|, the sum computed by
    the oracle from absolute values. ``scale``: |error| <= ``ulp`` eps max|expected|. ``random``: shape and type only. ``step``: how far
    an integer may be off. ``specials``: which of NaN, infinities and zeros of both signs have one defined result as inputs;
    ``zeros``: whether the sign of a zero result is defined. ``single``: parameters are held in single precision, so that results in
    double are exact to single precision's units only. ``numeric``: strings are compared as the numbers they spell. ``of_inputs``: the scale
    is that of the largest input if that is larger: a mean of numbers that cancel is off by their rounding, n eps max|x| / n at worst.
    ``least``: the scale is this much at least. ``wide``: how large integers may be that have a defined result. ``seldom``: such a step is
    rare, so that most elements are exact. ``bits``: a truth value is made of any byte, kept or told as 0 and 1.
    """

    kind: Kind
    ulp: float = 0
    step: int = 0
    specials: tuple[float, ...] = ()
    zeros: bool = True
    single: bool = False
    numeric: bool = False
    of_inputs: bool = False
    least: float = 0
    wide: Wide = ""
    seldom: bool = False
    bits: bool = False


_EXACT = [
    "Cast", "CastLike", "ConcatFromSequence", "Constant", "ConstantOfShape", "EyeLike",
    "GlobalMaxPool", "Hardmax", "MaxPool", "MaxRoiPool", "MaxUnpool",
    "OptionalHasElement", "Scatter", "SequenceAt", "SequenceEmpty",
    "SequenceErase", "SequenceLength", "Shape", "Size", "Unique",
    "TensorScatter", "Binarizer", "LabelEncoder", "GatherPacked", "MaxpoolWithMask",
]  # fmt: skip
_MOVES = [
    "CenterCropPad", "Compress", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements",
    "ExpandDims", "GatherND", "Identity", "Pad", "Reshape", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "Transpose", "Trilu", "Unsqueeze", "Optional", "OptionalGetElement", "SequenceConstruct", "SequenceInsert", "SplitToSequence",
    "SampleOp", "UnfoldTensor",
]  # fmt: skip
_SELECTS = [
    "ArgMax", "ArgMin", "ArrayFeatureExtractor", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "MurmurHash3",
    "OneHot", "TopK",
]  # fmt: skip
_EXACT_SPECIALS = [
    "Abs",
    "Ceil",
    "Floor",
    "IsInf",
    "IsNaN",
    "Neg",
    "NonZero",
    "Where",
    "And",
    "Or",
    "Xor",
    "Not",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
]
_ROUNDED = ["Add", "Sub", "Mul", "Div", "Sqrt", "Reciprocal"]
_ELEMENTARY = [
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Log",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Tan",
    "Tanh",
    "Elu",
    "LeakyRelu",
    "ThresholdedRelu",
    "Celu",
    "Selu",
]
_SUMS = [
    "AveragePool",
    "Conv",
    "ConvTranspose",
    "CumSum",
    "Einsum",
    "Gemm",
    "GlobalAveragePool",
    "MatMul",
    "Mean",
    "ReduceMean",
    "ReduceSum",
    "ReduceL1",
    "Sum",
]
_RANDOM = ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
_SINGLE = [
    "AffineGrid",
    "DeformConv",
    "LRN",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
    "SkipSimplifiedLayerNormalization",
]
_DIFFERENCES = [
    "Adagrad", "Adam", "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization",
    "MeanVarianceNormalization", "Momentum", "SkipLayerNormalization",
]  # fmt: skip
"""What subtracts a mean or a step from its input, which may leave little."""
_QUANTIZES = [
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QLinearSigmoid",
    "QLinearLeakyRelu", "QLinearSoftmax", "QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean", "QLinearConcat",
    "QLinearWhere", "QGemm",
]  # fmt: skip

_TABLE: dict[str, Precision] = {
    **{name: Precision("exact") for name in _EXACT},
    **{name: Precision("exact", specials=MOVED, wide="all") for name in _MOVES},
    **{name: Precision("exact", wide="all") for name in _SELECTS},
    **{name: Precision("exact", specials=SPECIALS, wide="all") for name in _EXACT_SPECIALS},
    **{name: Precision("rounded", 1, specials=SPECIALS) for name in _ROUNDED},
    **{name: Precision("rounded", 1, specials=SPECIALS, wide="sum") for name in ("Add", "Sub")},
    "Mul": Precision("rounded", 1, specials=SPECIALS, wide="product"),
    "Div": Precision("rounded", 1, specials=SPECIALS, wide="all"),
    **{name: Precision("elementary", 4, specials=SPECIALS) for name in _ELEMENTARY},
    **{name: Precision("sum", 4) for name in _SUMS},
    **{
        name: Precision("sum", 4, specials=SPREADING, wide="sum") for name in ("CumSum", "ReduceSum", "ReduceL1", "Sum")
    },
    "MatMul": Precision("sum", 4, specials=SPREADING, wide="products"),
    "Gemm": Precision("sum", 4, specials=SPREADING, wide="products"),
    "Einsum": Precision("sum", 4, wide="products"),
    **{name: Precision("random") for name in _RANDOM},
    **{name: Precision("scale", 4, step=1, seldom=True) for name in _QUANTIZES},
    **{name: Precision("scale", 32, single=True) for name in _SINGLE},
    **{name: Precision("scale", 32, single=True, of_inputs=True) for name in _DIFFERENCES},
    "Relu": Precision("exact", specials=SPECIALS, zeros=False, wide="all"),
    "Cast": Precision("exact", numeric=True, wide="all"),
    "CastLike": Precision("exact", numeric=True, wide="all"),
    "Clip": Precision("exact", zeros=False, specials=CUT, wide="all"),
    "BitCast": Precision("exact", bits=True, wide="all"),
    "BlackmanWindow": Precision("scale", 32, step=1),
    "Dropout": Precision("exact", zeros=False),
    # As 1 - exp(-x^2) P(x) from x = 0.5 on: exp's error enters with 2 x^2 erfc/erf <= 0.5, P's (Horner, 3 ULP) and the subtraction's with
    # erfc/erf <= 0.92 and 1: 5 ULP; below as x P(x^2): 4 ULP. Integers: erf(4) is 1 in single precision and cut off to 0 in double.
    "Erf": Precision("elementary", 8, step=1, specials=SPECIALS),
    # Gates and states lie in [-1, 1] and are rounded there: where a gate saturates, 1 - z keeps eps of 1 whatever is left of it. So the
    # scale is 1 at least. A gate's sum of k products with magnitudes adding up to S is off by sqrt(k) eps S / 2 (roundings independent),
    # its function's slope is <= 1, T steps add up: for the largest structure (k = 3, S = 135, T = 2) 230 eps.
    "GRU": Precision("scale", 256, least=1.0),
    # A coordinate of W / 2 pixels is rounded three times, the slope between pixels is at most 2 max|x| (cubic: 3) along each of two axes:
    # 2 * 3 * 1.5 * W / 2 = 27 eps max|x| for the structures' W = 6, and 4 for the weighted sum. Coordinates are often single.
    "GridSample": Precision("scale", 32, step=1, single=True),
    "HammingWindow": Precision("scale", 32, step=1),
    "HannWindow": Precision("scale", 32, step=1),
    "LSTM": Precision("scale", 256, least=1.0),
    "RNN": Precision("scale", 256, least=1.0),
    "PRelu": Precision("elementary", 4, wide="product"),
    # alpha x + beta, clipped: |alpha x| <= 1 + beta where it is not, so that product, sum and alpha in single precision make
    # (1.5 + 1 + 1.5) / 2 eps.
    "HardSigmoid": Precision("scale", 4),
    "Max": Precision("exact", zeros=False, specials=COMPARED, wide="all"),
    "Min": Precision("exact", zeros=False, specials=COMPARED, wide="all"),
    "Sign": Precision("exact", specials=COMPARED, wide="all"),
    **{name: Precision("exact", specials=COMPARED, wide="all") for name in ("ReduceMax", "ReduceMin")},
    **{name: Precision("scale", 32, specials=MASKED) for name in ("Softmax", "LogSoftmax")},
    "Round": Precision("exact", specials=SPECIALS),
    "Pow": Precision("elementary", 8),
    "Mod": Precision("exact", wide="all"),
    **{name: Precision("exact", wide="all") for name in ("Scatter", "TensorScatter", "Unique")},
    **{name: Precision("scale", 32, wide="sum") for name in ("ScatterElements", "ScatterND")},
    "Gelu": Precision("scale", 8, single=True),
    "FastGelu": Precision("scale", 32, single=True),
    "QuickGelu": Precision("scale", 32, single=True),
    "Mish": Precision("scale", 8),
    # In integers a logarithm is cut off, which falls on either side of a whole number.
    "ReduceLogSum": Precision("scale", 32, step=1),
    "ReduceLogSumExp": Precision("scale", 32, step=1, specials=STEEP),
    "Col2Im": Precision("scale", 32, wide="sum"),
    **{name: Precision("scale", 32, wide="products") for name in ("FusedGemm", "SparseToDenseMatMul")},
    "ReduceProd": Precision("scale", 32, wide="all"),
    "ReduceSumSquare": Precision("scale", 32, wide="products"),
    "SoftmaxCrossEntropyLoss": Precision("scale", 32, specials=STEEP),
}
_OTHER = Precision("scale", 32)


@functools.cache
def precision(domain: str, op_type: str, version: int) -> Precision:
    """The rule for an operator; composite operators that are not in the table go by scale."""
    if op_type == "Dropout" and version < 7:
        return Precision("random")  # it drops unless is_test says otherwise
    return _TABLE.get(op_type, _OTHER)
