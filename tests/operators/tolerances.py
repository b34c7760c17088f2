"""The table of tolerances: every operator whose results may differ from the rounded float64 evaluation, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operators.tolerance import ELEMENTWISE, EXACT, Tolerance

if TYPE_CHECKING:
    from operators.case import Case


def tolerance_of(case: Case) -> Tolerance:
    """The entry of a case's operator."""
    if case.key in REDUCING and case.attributes.get("reduction", "none") == "none":
        return EXACT
    return TABLE.get(case.key, EXACT)


TABLE: dict[tuple[str, str], Tolerance] = {}
REDUCING = frozenset({("", "ScatterElements"), ("", "ScatterND")})
"""These only move elements unless their attribute ``reduction`` says more."""


def _enter(tolerance: Tolerance, names: str, domain: str = "") -> None:
    TABLE.update({(domain, name): tolerance for name in names.split()})


_enter(
    Tolerance(halves=0, zeros=False, reason="selects or rounds once; the formula leaves the sign of a zero open"),
    "Max Min PRelu Relu Shrink ThresholdedRelu",
)
_enter(
    ELEMENTWISE,
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Log Pow Sigmoid Sin Sinh Softplus Softsign Tan Tanh",
)
_enter(
    Tolerance(
        sums=8,
        zeros=False,
        reason="a sum in another order than the evaluation's; the sign of a zero sum depends on the order",
    ),
    "CumSum Einsum Gemm MatMul Mean ReduceL1 ReduceMean ReduceSum ReduceSumSquare Sum",
)
_enter(
    Tolerance(
        ulps=4, zeros=False, reason="a few operations on each element; the formula leaves the sign of a zero open"
    ),
    "Celu Elu Mish Selu Swish SwiGLU",
)
_enter(
    Tolerance(
        ulps=4, sums=4, scaled=2, zeros=False, reason="1 + erf(x) cancels below zero: the error is that of 1, times x"
    ),
    "Gelu",
)
_enter(
    Tolerance(
        ulps=4, sums=4, zeros=False, reason="a x + b cancels where it is near zero: the error is that of its two terms"
    ),
    "HardSigmoid HardSwish",
)
_enter(
    Tolerance(sums=8, zeros=False, reason="updates of one element are added up or multiplied one after the other"),
    "ScatterElements ScatterND",
)
_enter(
    Tolerance(
        ulps=16,
        scaled=8,
        zeros=False,
        reason="a quotient or logarithm of a sum: small results carry the sum's absolute error",
    ),
    "LogSoftmax LpNormalization MeanVarianceNormalization ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd Softmax CumProd",
)
_enter(
    Tolerance(sums=8, zeros=False, reason="a sum of products; the sign of a zero sum depends on the order"),
    "AveragePool CausalConvWithState Col2Im Conv ConvTranspose GlobalAveragePool NegativeLogLikelihoodLoss",
)
_enter(
    Tolerance(
        ulps=16,
        scaled=32,
        zeros=False,
        reason="normalised by a mean and a variance, whose errors are those of the largest element",
    ),
    "BatchNormalization GlobalLpPool GroupNormalization InstanceNormalization LRN LayerNormalization LpPool"
    " RMSNormalization SoftmaxCrossEntropyLoss",
)
_enter(Tolerance(ulps=8, scaled=8, zeros=False, reason="interpolation between elements"), "RoiAlign")
_enter(
    Tolerance(
        ulps=8, scaled=32, zeros=False, reason="interpolation: positions are computed in the type of their operands"
    ),
    "Resize Upsample",
)
_enter(
    Tolerance(
        ulps=8,
        scaled=32,
        sums=32,
        zeros=False,
        single=True,
        reason="interpolation; onnx.reference computes the positions in float32",
    ),
    "AffineGrid GridSample",
)
_enter(
    Tolerance(scaled=64, zeros=False, reason="a sum of products of interpolated elements"),
    "DeformConv",
)
_enter(
    Tolerance(
        ulps=64, scaled=64, floor=0, zeros=False, reason="errors of a sum of products carried through a few steps"
    ),
    "Attention GRU LSTM LinearAttention RNN",
)
_enter(
    Tolerance(
        ulps=64,
        scaled=64,
        halves=8,
        halves_scaled=2,
        zeros=False,
        reason="it runs as its function body, each step of which rounds to the type",
    ),
    "FlexAttention",
    "ai.onnx.preview",
)
_enter(
    Tolerance(ulps=4, scaled=8, zeros=False, reason="a difference of two products, which may cancel"), "RotaryEmbedding"
)
_enter(
    Tolerance(ulps=8, scaled=64, floor=1e-12, zeros=False, reason="sums of products with sines, in fast algorithms"),
    "DFT STFT",
)
_enter(
    Tolerance(ulps=8, floor=1e-6, zeros=False, reason="a sum of cosines near zero; onnx.reference computes in float32"),
    "BlackmanWindow HammingWindow HannWindow MelWeightMatrix",
)
_enter(
    Tolerance(
        ulps=16,
        scaled=32,
        floor=1e-6,
        zeros=False,
        reason="scores are float32 sums over features, supports or trees, then transformed",
    ),
    "LinearClassifier LinearRegressor Normalizer SVMClassifier SVMRegressor Scaler TreeEnsemble TreeEnsembleClassifier"
    " TreeEnsembleRegressor",
    "ai.onnx.ml",
)
_enter(
    Tolerance(
        ulps=16, scaled=16, zeros=False, reason="a few operations on each element, with a square root of an average"
    ),
    "Adagrad Adam Gradient Momentum",
    "ai.onnx.preview.training",
)
