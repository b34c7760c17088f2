"""The cases of ``operators.py``: operators with the shapes, types and attributes that exporters write.

``F(1, 128, 768)`` is an input of float32, ``.weight()`` makes an initializer of it; see ``operator_models.py`` for the other letters.
"""

from __future__ import annotations

from operator_cases_nn import NEURAL
from operator_models import B, Case, D, F, H, I, L, Q, S, U, chain, every, given, one

IMAGE, TOKENS, TABLE = (1, 64, 56, 56), (1, 128, 768), (256, 256)

FUNCTIONS = [
    *every(
        "Abs Neg Sqrt Ceil Floor Round Sign Reciprocal Exp Log Erf Sin Cos Tanh Sigmoid Softplus",
        F(*TOKENS).within(0.1, 3),
    ),
    *every("Relu LeakyRelu Elu Selu HardSigmoid HardSwish Mish Softsign Celu ThresholdedRelu Gelu", F(*IMAGE)),
    *every("Tan Atan Asin Acos Sinh Cosh Asinh Atanh", F(256, 256).within(0.1, 0.9)),
    *every("Relu Sigmoid Tanh Exp Neg Sqrt", F(1, 64).within(0, 2)),
    *every("Abs Neg Exp Log Sqrt Sin Tanh Sigmoid Relu Floor", D(*TABLE).within(0.1, 3)),
    *every("Relu Sigmoid Tanh Exp Gelu", H(*TOKENS)), *every("Abs Neg Sign", L(*TABLE)), *every("Abs Neg", I(*TABLE)),
    *every("IsNaN IsInf", F(*TABLE)),
    one("Clip", F(*IMAGE), given(0, dtype="f4", shape=()), given(6, dtype="f4", shape=())),
    one("Clip", L(*TABLE), given(3, shape=()), given(60, shape=())), one("PRelu", F(*IMAGE), F(64, 1, 1).weight()),
    one("Shrink", F(*TABLE), lambd=0.5), one("Gelu", F(*TOKENS), approximate="tanh"),
]  # fmt: skip

ARITHMETIC = [
    *every("Add Sub Mul Div Pow Max Min", F(*IMAGE).within(0.1, 2), F(*IMAGE).within(0.1, 2)),
    *every("Add Mul Div", F(*IMAGE).within(0.1, 2), F(1, 64, 1, 1).within(0.1, 2).weight()),
    *every("Add Sub Mul", F(*TOKENS), F(768).weight()), *every("Add Mul", F(*TOKENS), F(1, 128, 1)),
    *every("Add Sub Mul Div", F(*TOKENS), given(1.5, dtype="f4", shape=())),
    *every("Add Mul Less", F(512, 1), F(1, 512)), *every("Add Mul Sub", F(1, 16), F(1, 16)),
    one("Pow", F(*TOKENS), given(2, dtype="f4", shape=())),
    one("Pow", F(*TOKENS).within(0, 2), given(0.5, dtype="f4", shape=())),
    one("Pow", F(*TOKENS), given(3, dtype="f4", shape=())),
    *every("Add Sub Mul Div Max Min Mod", L(*TABLE).within(1, 99), L(*TABLE).within(1, 99)),
    *every("Add Mul Div Mod", L(*TABLE), given(7, shape=())), *every("Add Sub Mul Max", L(4), L(4)),
    *every("Add Sub Mul Div Max", I(*TABLE).within(1, 99), I(*TABLE).within(1, 99)),
    *every("Add Mul Sub Div Max Pow", D(*TABLE).within(0.5, 2), D(*TABLE).within(0.5, 2)),
    *every("Add Mul Div", H(*TOKENS), H(768).weight()), *every("Add Mul", D(*TABLE), D(256)),
    one("Mod", F(*TABLE), F(*TABLE).within(1, 3), fmod=1), one("Sum", F(*IMAGE), F(*IMAGE), F(*IMAGE)),
    one("Mean", F(*TABLE), F(*TABLE)), one("Max", F(*TABLE), F(*TABLE), F(256)),
    *every("Equal Greater LessOrEqual", F(*TABLE), F(*TABLE)), one("Equal", L(*TABLE), given(0, shape=())),
    *every("Equal Less Greater GreaterOrEqual", L(*TABLE), L(*TABLE)), one("Equal", I(*TABLE), I(*TABLE)),
    one("Greater", F(*IMAGE), given(0.5, dtype="f4", shape=())), one("LessOrEqual", L(1, 1, 1, 256), L(1, 1, 256, 1)),
    one("Less", D(*TABLE), D(*TABLE)), one("Equal", L(4), L(4)), one("Equal", Q(*TABLE), Q(*TABLE)),
    *every("And Or Xor", Q(*TABLE), Q(*TABLE)), one("Not", Q(*TABLE)), one("And", Q(1, 1, 128, 128), Q(8, 1, 1, 128)),
    *every("BitwiseAnd BitwiseOr BitwiseXor", I(*TABLE), I(*TABLE)), one("BitwiseNot", I(*TABLE)),
    one("BitShift", U(*TABLE), U(*TABLE).within(0, 7), direction="LEFT"),
    one("Where", Q(1, 1, 128, 128), F(1, 12, 128, 128), given(-1e9, dtype="f4", shape=())),
    one("Where", Q(*TABLE), F(*TABLE), F(*TABLE)), one("Where", Q(*TABLE), L(*TABLE), given(0, shape=())),
    one("Where", Q(*TABLE), D(*TABLE), D(*TABLE)), one("Where", Q(4), L(4), L(4)),
    one("Where", Q(*TABLE), Q(*TABLE), Q(*TABLE)), one("Where", Q(128, 1), F(128, 768), F(768)),
    one("Where", Q(*TABLE), U(*TABLE), U(*TABLE)),
    *(one("Cast", operand, to=to) for operand, to in (
        (L(*TABLE), 1), (F(*TABLE), 7), (F(*TABLE), 6), (Q(*TABLE), 1), (F(*TABLE), 9), (F(*TOKENS), 10),
        (H(*TOKENS), 1), (I(*TABLE), 7), (L(*TABLE), 6), (U(1, 3, 224, 224), 1), (F(1, 3, 224, 224).within(0, 255), 2),
        (D(*TABLE), 1), (F(*TABLE), 11), (L(*TABLE), 9), (Q(*TABLE), 7), (Q(*TABLE), 6), (I(*TABLE), 1), (L(1, 16), 1),
        (L(*TABLE), 11), (F(*TABLE), 16), (B(*TABLE), 1),
    )),
]  # fmt: skip

REARRANGING = [
    *(one("Transpose", operand, perm=perm) for operand, perm in (
        (F(1, 128, 12, 64), [0, 2, 1, 3]), (F(1, 12, 128, 64), [0, 1, 3, 2]), (F(*IMAGE), [0, 2, 3, 1]),
        (F(1, 56, 56, 64), [0, 3, 1, 2]), (F(512, 512), [1, 0]), (F(1, 3, 224, 224), [0, 2, 3, 1]),
        (F(1, 224, 224, 3), [0, 3, 1, 2]), (F(49, 64, 3, 4, 32), [2, 0, 3, 1, 4]),
        (F(1, 8, 7, 8, 7, 96), [0, 1, 3, 2, 4, 5]), (F(1, 16, 8, 14, 14), [0, 2, 1, 3, 4]), (F(128, 1, 512), [1, 0, 2]),
        (F(1, 16, 32), [0, 2, 1]), (L(*TABLE), [1, 0]), (I(512, 128), [1, 0]), (U(1, 224, 224, 3), [0, 3, 1, 2]),
        (B(1, 64, 56, 56), [0, 2, 3, 1]), (H(1, 128, 12, 64), [0, 2, 1, 3]), (D(*TABLE), [1, 0]), (Q(256, 512), [1, 0]),
        (H(512, 512), [1, 0]), (F(8400, 84), [1, 0]), (F(1, 84, 8400), [0, 2, 1]),
    )),
    one("Concat", F(1, 64, 56, 56), F(1, 64, 56, 56), axis=1),
    one("Concat", F(1, 12, 127, 64), F(1, 12, 1, 64), axis=2), one("Concat", F(1, 128, 384), F(1, 128, 384), axis=-1),
    one("Concat", *[F(1, 32, 28, 28)] * 4, axis=1), one("Concat", F(1, 56, 56, 3), F(1, 56, 56, 5), axis=-1),
    one("Concat", L(1), L(1), L(2), axis=0), one("Concat", L(256, 128), L(256, 128), axis=1),
    one("Concat", U(1, 56, 56, 32), U(1, 56, 56, 32), axis=3), one("Concat", D(128, 64), D(128, 64), axis=1),
    one("Concat", F(256, 1), F(256, 1), F(256, 1), axis=1), one("Concat", *[F(1, 80, 80, 1)] * 4, axis=-1),
    one("Concat", F(8400, 1), F(8400, 1), axis=1), one("Split", F(1, 128, 2304), results=3, axis=-1, num_outputs=3),
    one("Split", F(1, 64, 56, 56), given(32, 32), results=2, axis=1),
    one("Split", F(1, 8400, 84), given(4, 80), results=2, axis=2),
    one("Split", L(256, 2), results=2, axis=1, num_outputs=2),
    *(one("Slice", operand, given(*a), given(*b), given(*c), given(*d)) for operand, a, b, c, d in (
        (F(*TOKENS), [0], [1], [1], [1]), (F(*IMAGE), [0], [2**31 - 1], [2], [2]),
        (F(*IMAGE), [0, 0], [2**31 - 1] * 2, [2, 3], [2, 2]), (F(1, 128, 768), [-1], [-(2**31)], [1], [-1]),
        (F(1, 128, 2304), [768], [1536], [2], [1]), (L(1, 512), [0], [128], [1], [1]),
        (F(1, 12, 128, 64), [0], [32], [3], [1]), (D(*TABLE), [1], [255], [1], [2]),
        (Q(1, 1, 256, 256), [0], [128], [3], [1]), (U(1, 224, 224, 3), [-1], [-(2**31)], [3], [-1]),
        (L(4), [1], [3], [0], [1]), (F(1, 64, 58, 58), [1, 1], [57, 57], [2, 3], [1, 1]),
    )),
    one("Gather", F(3000, 768).weight(), L(1, 128), axis=0), one("Gather", F(*TOKENS), given(0, shape=()), axis=1),
    one("Gather", F(1, 128, 64), L(32), axis=1), one("Gather", F(64, 100), L(128), axis=1),
    one("Gather", F(1, 2, 128, 64), given(1, shape=()), axis=1), one("Gather", L(4), given(1, shape=()), axis=0),
    one("Gather", L(512, 128), L(100), axis=0), one("Gather", H(3000, 768).weight(), L(1, 128)),
    one("Gather", F(1, 64, 56, 56), given(2, 1, 0), axis=1), one("Gather", D(256, 128), I(100), axis=0),
    one("Gather", Q(256, 100), L(64), axis=0), one("Gather", F(100, 1).weight(), L(2048), axis=0),
    one("GatherElements", F(256, 128), L(256, 128), axis=1), one("GatherElements", F(1, 1000, 4), L(1, 300, 4), axis=1),
    one("GatherElements", L(128, 100), L(128, 100), axis=0), one("GatherElements", F(12, 128, 256), L(12, 128, 128), axis=2),
    one("GatherND", F(100, 100, 64), L(300, 2)),
    one("GatherND", F(100, 100), L(1000, 2)), one("GatherND", L(128, 100), L(64, 1)),
    one("GatherND", F(4, 100, 32), L(4, 50, 1), batch_dims=1),
    one("ScatterElements", F(256, 128), L(256, 128), F(256, 128), axis=1),
    one("ScatterElements", F(1000, 100), L(100, 100), F(100, 100), axis=0, reduction="add"),
    one("ScatterND", F(256, 64), L(100, 1), F(100, 64)),
    one("ScatterND", F(100, 100, 8), L(300, 2), F(300, 8), reduction="add"),
    one("ScatterND", F(100, 100), L(2000, 2), F(2000)), one("ScatterND", L(1, 128), L(64, 2).within(0, 1), L(64)),
    one("ScatterND", F(1, 12, 256, 64), L(1, 1, 8, 1, 3).within(0, 1), F(1, 1, 8, 1, 64)),
    one("Expand", F(1, 1, 1, 128), given(1, 12, 128, 128)), one("Expand", F(1, 4, 1, 128, 64), given(1, 4, 4, 128, 64)),
    one("Expand", L(1, 128), given(64, 128)), one("Expand", F(256, 1), given(256, 256)),
    one("Expand", Q(1, 1, 1, 128), given(8, 1, 128, 128)), one("Expand", D(1, 256), given(256, 256)),
    one("Tile", F(1, 128, 64), given(1, 1, 4)), one("Tile", F(1, 128, 64), given(8, 1, 1)),
    one("Tile", L(128, 1), given(1, 128)), one("Tile", F(16, 16), given(4, 4)), one("Tile", Q(1, 128), given(128, 1)),
    one("Pad", F(*IMAGE), given(0, 0, 1, 1, 0, 0, 1, 1)),
    one("Pad", F(*IMAGE), given(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),
    one("Pad", F(*IMAGE), given(0, 0, 3, 3, 0, 0, 3, 3), mode="edge"),
    one("Pad", F(1, 80, 3000), given(0, 0, 1, 0, 0, 1)), one("Pad", L(1, 100), given(0, 0, 0, 28)),
    one("Pad", F(1, 16000), given(0, 200, 0, 200), mode="reflect"),
    one("Pad", U(1, 3, 224, 224), given(0, 0, 8, 8, 0, 0, 8, 8)), one("Reshape", F(*TOKENS), given(1, 128, 12, 64)),
    one("Reshape", L(4), given(2, 2)), one("Unsqueeze", L(1, 128), given(1, 2)), one("Squeeze", F(1, 128, 1), given(2)),
    one("Flatten", F(1, 2048, 1, 1)), one("Shape", F(1, 3, 224, 224)), one("Size", F(3, 224)),
    one("Identity", F(*TOKENS)), one("Identity", F(4)), one("DepthToSpace", F(1, 256, 28, 28), blocksize=2, mode="CRD"),
    one("DepthToSpace", F(1, 64, 56, 56), blocksize=2), one("SpaceToDepth", F(1, 3, 224, 224), blocksize=2),
    one("Trilu", F(256, 256), upper=0), one("Trilu", F(256, 256), given(1, shape=()), upper=1),
    one("Trilu", Q(256, 256)), one("Trilu", L(256, 256)), one("Trilu", D(256, 256)), one("EyeLike", F(256, 256)),
    one("ReverseSequence", F(100, 8, 64), L(8)), one("OneHot", L(128), given(100, shape=()), given(0, 1, dtype="f4")),
    one("OneHot", L(8, 64), given(32, shape=()), given(0, 1), axis=1),
    one("Range", given(0, shape=()), L().within(500, 501), given(1, shape=())),
    one("ConstantOfShape", given(1, 12, 128, 128)), one("NonZero", Q(*TABLE)), one("NonZero", L(1, 512)),
    one("NonZero", F(*TABLE)), one("Compress", F(256, 64), Q(256), axis=0), one("Compress", F(4096), Q(4096)),
    one("Unique", L(1000)), one("Unique", L(1200), results=4), one("Unique", F(1000), sorted=1),
    one("Unique", L(1000, 3).within(0, 20), results=3, axis=0), one("Unique", F(500, 4), results=4, axis=0),
    one("CenterCropPad", F(1, 3, 240, 240), given(224, 224), axes=[2, 3]),
    one("Col2Im", F(1, 27, 900), given(32, 32), given(3, 3)),
]  # fmt: skip

REDUCING = [
    *every(
        "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp ReduceLogSum",
        F(*TOKENS).within(0.5, 1.5), given(-1),
    ),
    *every("ReduceMean ReduceSum ReduceMax ReduceL2", F(*IMAGE), given(2, 3)),
    *every("ReduceMean ReduceMax ReduceSum", F(*TOKENS), given(1)),
    *every("ReduceMean ReduceMax ReduceSum", F(1, 56, 56, 64), given(1, 2), keepdims=0),
    *every("ReduceMean ReduceMax", F(*IMAGE), given(1)), *every("ReduceSum ReduceMean ReduceMax", F(*TABLE)),
    *every("ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd", L(*TABLE).within(1, 2), given(1)),
    *every("ReduceSum ReduceMax", L(*TABLE), given(0)), *every("ReduceSum ReduceMax ReduceMean", I(*TABLE), given(1)),
    *every("ReduceSum ReduceMean ReduceMax ReduceL2", D(*TABLE), given(1)),
    *every("ReduceMean ReduceSum", D(*TABLE), given(0)), *every("ReduceProd ReduceMax", L(4), given(0)),
    one("ReduceMean", F(8, 16), given(-1)), *every("ArgMax ArgMin", F(1, 1000), axis=1),
    *every("ArgMax ArgMin", F(128, 1000), axis=-1), *every("ArgMax ArgMin", F(1, 21, 64, 64), axis=1),
    one("ArgMax", L(128, 500), axis=1), one("ArgMax", D(256, 256), axis=1), one("ArgMax", I(256, 256), axis=0),
    one("ArgMin", L(64, 1000), axis=1), one("ReduceMean", L(*TABLE), given(0)),
    one("ArgMax", F(1, 80, 8400), axis=1, keepdims=0), one("ArgMax", F(256, 256), axis=0, keepdims=0),
    one("ArgMax", U(128, 128), axis=1), *every("Softmax LogSoftmax", F(1, 12, 128, 128), axis=-1),
    *every("Softmax LogSoftmax", F(1, 1000), axis=1), one("Softmax", F(1, 21, 64, 64), axis=1),
    one("Softmax", F(1, 16, 4, 8400), axis=1), one("Softmax", D(*TABLE), axis=-1),
    one("Softmax", H(1, 12, 128, 128), axis=-1), one("Softmax", F(4096, 8), axis=-1),
    one("Hardmax", F(128, 100), axis=-1), one("LogSoftmax", F(32, 30000), axis=-1), one("Softmax", F(2, 3)),
    *(one("CumSum", operand, given(axis, shape=())) for operand, axis in (
        (F(128, 768), 1), (F(128, 768), 0), (L(512, 64), 0), (L(1, 128), 1), (L(256, 256), 1), (I(256, 256), 0), (D(256, 256), 1),
        (F(1, 64, 64, 16), 2),
    )),
    *(one("TopK", operand, given(k), results=2, axis=-1) for operand, k in (
        (F(1, 1000), 5), (F(1, 50257), 50), (F(64, 1000), 10), (F(1, 8400), 300), (L(64, 500), 10), (D(64, 500), 10),
        (F(1, 512), 512), (I(16, 400), 16), (F(1, 30000), 1),
    )),
    one("TopK", F(1, 64, 100), given(5), results=2, axis=1), one("TopK", F(32, 1000), given(10), results=2, largest=0),
    one("LpNormalization", F(128, 768), axis=-1, p=2), one("LpNormalization", F(128, 512), axis=1, p=1),
    one(
        "NonMaxSuppression", F(1, 100, 4).within(0, 1), F(1, 1, 100).within(0, 1), given(50), given(0.5, dtype="f4"),
        given(0.3, dtype="f4"),
    ),
    one(
        "NonMaxSuppression", F(1, 2000, 4).within(0, 1), F(1, 8, 2000).within(0, 1), given(100), given(0.5, dtype="f4"),
        given(0.6, dtype="f4"),
    ),
]  # fmt: skip

GROUPS = [
    chain("t = Mul(x, a)", "y = Add(t, b)", x=F(*IMAGE), a=F(1, 64, 1, 1).weight(), b=F(1, 64, 1, 1).weight()),
    chain("t = Sigmoid(x)", "y = Mul(x, t)", x=F(*IMAGE)),
    chain("t = Add(x, a)", "y = Relu(t)", x=F(*IMAGE), a=F(*IMAGE)),
    chain(
        "t = Reshape(x, s)", "u = Transpose<perm=[0,2,1,3]>(t)", "y = MatMul(u, v)", x=F(*TOKENS),
        s=given(1, 128, 12, 64), v=F(1, 12, 64, 128),
    ),
    chain(
        "t = Reshape(x, s)", "u = Transpose<perm=[0,2,1,3,4]>(t)", "y = Reshape(u, r)", x=F(1, 58, 28, 28),
        s=given(1, 2, 29, 28, 28), r=given(1, 58, 28, 28),
    ),
    chain("t = Transpose<perm=[0,2,1,3]>(x)", "y = Reshape(t, s)", x=F(1, 12, 128, 64), s=given(1, 128, 768)),
    chain("t = ReduceMean(x, a)", "y = Sub(x, t)", x=F(*TOKENS), a=given(-1)),
    chain("t = Sub(x, m)", "u = Mul(t, t)", "y = ReduceMean(u, a)", x=F(*TOKENS), m=F(1, 128, 1), a=given(-1)),
    chain("t = Equal(x, z)", "u = Not(t)", "y = Cast<to=1>(u)", x=L(*TABLE), z=given(0, shape=())),
    chain(
        "t = Cast<to=1>(x)", "u = Sub(o, t)", "y = Mul(u, m)", x=L(1, 1, 1, 512), o=given(1, dtype="f4", shape=()),
        m=given(-1e4, dtype="f4", shape=()),
    ),
    chain("t = Gather<axis=0>(w, i)", "y = Add(t, p)", w=F(3000, 768).weight(), i=L(1, 128), p=F(1, 128, 768).weight()),
    chain(
        "t = Shape(x)", "u = Gather<axis=0>(t, i)", "y = Unsqueeze(u, a)", x=F(1, 128, 768), i=given(1, shape=()),
        a=given(0),
    ),
    chain(
        "t = Div(x, d)", "u = Softmax<axis=-1>(t)", "y = MatMul(u, v)", x=F(1, 12, 128, 128),
        d=given(8, dtype="f4", shape=()), v=F(1, 12, 128, 64),
    ),
    chain(
        "t = Cast<to=1>(x)", "u = Div(t, s)", "y = Transpose<perm=[0,3,1,2]>(u)", x=U(1, 224, 224, 3),
        s=given(255, dtype="f4", shape=()),
    ),
    chain("t = Exp(x)", "u = ReduceSum(t, a)", "y = Log(u)", x=F(*TOKENS), a=given(-1)),
]  # fmt: skip

CELL = "{ p = MatMul(s, u) q = MatMul(e, w) r = Add(p, q) t = Tanh(r) o = Identity(t) }"
SCAN = f"Scan<num_scan_inputs=1, body=b (float[4,16] s, float[4,8] e) => (float[4,16] t, float[4,16] o) {CELL}>"
TRIP = "l (int64 i, bool c, float[4,16] s) => (bool d, float[4,16] t, float[4,16] o)"
WEIGHTS = {"u": F(16, 16).weight().within(-0.2, 0.2), "w": F(8, 16).weight()}
COUNT, GO = given(20, shape=()), given(True, dtype="?", shape=())
LOOPS = [
    *[chain(f"z, y = {SCAN}(h, x)", h=F(4, 16), x=F(trips, 4, 8), **WEIGHTS) for trips in (1, 12, 100)],
    chain(
        f"z, y = Loop<body={TRIP} {{ e = Gather<axis=0>(x, i) d = Identity(c) {CELL[1:]}>(n, g, h)", h=F(4, 16),
        x=F(20, 4, 8), n=COUNT, g=GO, **WEIGHTS,
    ),
    chain(
        f"z, y = Loop<body={TRIP} {{ p = MatMul(s, u) t = Tanh(p) o = Neg(t) m = ReduceMax<keepdims=0>(t) d = Greater(m, k) }}>"
        "(n, g, h)", h=F(4, 16), n=COUNT, g=GO, k=given(-1, dtype="f4", shape=()), u=WEIGHTS["u"],
    ),
    chain(
        f"z, y = Loop<body={TRIP} {{ d = Identity(c) t, a = {SCAN}(s, x) o = Neg(t) }}>(n, g, h)", h=F(4, 16),
        x=F(10, 4, 8), n=COUNT, g=GO, **WEIGHTS,
    ),
    chain(
        "y = Loop<body=l (int64 i, bool c, float[m,4] s) => (bool d, float[k,4] t) { d = Identity(c) "
        "r = ReduceMax<keepdims=1>(s, a) e = Tanh(r) t = Concat<axis=0>(s, e) }>(n, g, x)",
        x=F(1, 4), n=COUNT, g=GO, a=given(0),
    ),
]  # fmt: skip

ONE_HOT = 'ai.onnx.ml.OneHotEncoder<cats_strings=["red", "green", "blue", "black"], zeros=1>'
LABEL = (
    'ai.onnx.ml.LabelEncoder<keys_strings=["red", "green", "blue"], values_floats=[0.0, 1.0, 2.0], default_float=-1.0>'
)
PATH = 'ai.onnx.ml.LabelEncoder<keys_int64s=[2, 5, 6], values_strings=["100", "101", "111"], default_string="0">'
TABLES = [
    case
    for rows in (1, 1000)
    for case in (
        chain(
            "a = Gather<axis=1>(x, i)", "b = Gather<axis=1>(x, j)", f"c = {ONE_HOT}(a)", f"d = {ONE_HOT}(b)",
            "e = Concat<axis=-1>(c, d)", "y = Reshape(e, s)", x=S(rows, 2), i=given(0), j=given(1), s=given(-1, 8),
        ),
        chain(
            "a = ai.onnx.ml.ArrayFeatureExtractor(x, i)", "b = ai.onnx.ml.ArrayFeatureExtractor(x, j)", f"c = {LABEL}(a)",
            f"d = {LABEL}(b)", "y = Concat<axis=1>(c, d)", x=S(rows, 2), i=given(0), j=given(1),
        ),
        chain(
            f"a = {PATH}(p)", f"b = {PATH}(q)", "c = Reshape(a, s)", "d = Reshape(b, s)", "y = Concat<axis=1>(c, d)",
            p=L(rows).within(0, 8), q=L(rows).within(0, 8), s=given(-1, 1),
        ),
    )
]  # fmt: skip

CASES: list[Case] = [*FUNCTIONS, *ARITHMETIC, *REARRANGING, *REDUCING, *GROUPS, *LOOPS, *TABLES, *NEURAL]
"""All, in the order they run."""
