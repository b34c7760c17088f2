"""What OpenVINO computes as ONNX says: operators, versions of their schemas and types, each tried with the conformance kit.

Left out are types that its processor plugin computes as others (double and int64 as float and int32, int32 as float in most
operators), float16, which it widens, and operators that it does not read, or whose results may be without elements where nobody knows
beforehand.
"""

from __future__ import annotations

import functools

from onnxplug.contract import Kernel, KernelDef, KernelRegistry, NodeView, schema_versions, type_strings
from onnxplug_ep_openvino.deviations import INEXACT

_CLAIMS = """
Abs 1-13 T=float
Acos 7-22 T=float
Acosh 9-22 T=float
Add 1-14 T=float
And 1-7 T=bool T1=bool
ArgMax 1-13 T=float
ArgMin 1-13 T=float
Asin 7-22 T=float
Asinh 9-22 T=float
Atan 7-22 T=float
Atanh 9-22 T=float
Attention 23-24 T1=float T2=float U=float,bool
AveragePool 1-22 T=float
BatchNormalization 1-9 T=float
BatchNormalization 14 T=float U=float
BatchNormalization 15 T=float T1=float T2=float
Cast 6-28 T1=bool,float,int32 T2=float,int32
Ceil 1-13 T=float
Clip 1-13 T=float
Concat 1-13 T=float
Conv 1-22 T=float
ConvInteger 10 T1=int8,uint8 T2=int8,uint8 T3=int32
ConvTranspose 1-22 T=float
Cos 7-22 T=float
Cosh 9-22 T=float
CumSum 11-14 T=float T2=int32
DepthToSpace 1-28 T=float
Div 1-14 T=float
DynamicQuantizeLinear 11 T1=float T2=uint8
Elu 1-22 T=float
Equal 11-19 T=float T1=bool
Erf 9-13 T=float
Exp 1-13 T=float
Expand 8-13 T=float
Flatten 1-25 T=float
Floor 1-13 T=float
Gather 1-13 T=float Tind=int32,int64
Gelu 20 T=float
Gemm 1-13 T=float
GlobalAveragePool 1-22 T=float
GlobalMaxPool 1-22 T=float
Greater 1-13 T=float T1=bool
GreaterOrEqual 12-16 T=float T1=bool
GroupNormalization 21 T=float
HardSigmoid 1-22 T=float
HardSwish 14-22 T=float
Hardmax 13 T=float
Identity 1-13 T=float
Identity 14-25 V=float
InstanceNormalization 1-22 T=float
IsInf 10-20 T1=float T2=bool
IsNaN 9-20 T1=float T2=bool
LayerNormalization 17 T=float U=float
LeakyRelu 1-16 T=float
Less 1-13 T=float T1=bool
LessOrEqual 12-16 T=float T1=bool
Log 1-13 T=float
LogSoftmax 13 T=float
LpNormalization 1-22 T=float
LpPool 1-22 T=float
MatMul 1-13 T=float
MatMulInteger 10 T1=int8,uint8 T2=int8,uint8 T3=int32
Max 1-13 T=float
MaxPool 1 T=float
MaxPool 8-22 T=float I=int64
Mean 1-13 T=float
MeanVarianceNormalization 9-13 T=float
Min 1-13 T=float
Mish 18-22 T=float
Mul 1-14 T=float
Neg 1-13 T=float
Not 1 T=bool
Or 1-7 T=bool T1=bool
PRelu 1-16 T=float
Pow 1-7 T=float
Pow 12-15 T=float T1=float
QLinearMatMul 10 T1=int8,uint8 T2=int8,uint8 T3=int8,uint8
QLinearMatMul 21 TS=float T1=int8,uint8 T2=int8,uint8 T3=int8,uint8
RMSNormalization 23 T=float V=float
Reciprocal 1-13 T=float
ReduceL2 1-18 T=float
ReduceMax 1-20 T=float
ReduceMean 1-18 T=float
ReduceMin 1-20 T=float
ReduceProd 1-18 T=float
ReduceSum 1-13 T=float
ReduceSumSquare 1-18 T=float
Relu 1-14 T=float
Reshape 1-25 T=float
RotaryEmbedding 23 T=float M=int64
Round 11-22 T=float
Selu 1-22 T=float
Shrink 9 T=float
Sigmoid 1-13 T=float
Sign 9-13 T=float
Sin 7-22 T=float
Sinh 9-22 T=float
Slice 1 T=float
Slice 10-13 T=float Tind=int32,int64
Softmax 13 T=float
Softplus 1-22 T=float
Softsign 1-22 T=float
SpaceToDepth 1-13 T=float
Split 1-18 T=float
Sqrt 1-13 T=float
Squeeze 1-25 T=float
Sub 1-14 T=float
Sum 1-13 T=float
Swish 24 T=float
Tan 7-22 T=float
Tanh 1-13 T=float
Transpose 1-25 T=float
Unsqueeze 1-25 T=float
Where 9-16 B=bool T=float
Xor 1-7 T=bool T1=bool
"""
"""Operator, first and last version, types by constraint."""


@functools.cache
def registry(exact: bool) -> KernelRegistry:
    """The claims, as far as the installed onnx knows the versions. ``exact``: without operators that are less exact than ONNX asks for."""
    known, found = schema_versions(), KernelRegistry()
    for row in _CLAIMS.split("\n")[1:-1]:
        op_type, versions, *types = row.split()
        first, _, last = versions.partition("-")
        here = [v for v in known.get(("", op_type), ()) if int(first) <= v <= int(last or first)]
        if here and not (exact and op_type in INEXACT):
            kinds = {name: type_strings(text.split(",")) for name, _, text in (kind.partition("=") for kind in types)}
            found.add(KernelDef("", op_type, min(here), never, until=max(here), types=kinds))
    return found


def never(node: NodeView) -> Kernel:
    """Nodes are claimed as regions, also alone."""
    raise NotImplementedError(f"{node.name}: whatever is claimed is compiled")
