"""Element types that a schema allows and onnx.reference refuses or gets wrong: the registry does not claim them."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import defs

_INTEGERS = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_COMPLEX = frozenset({"complex64", "complex128"})
_FLOAT8 = frozenset({"float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz"})
_NO_NUMBERS = frozenset({"bool", "string"})

_LEFT_OUT: Mapping[tuple[str, str], Mapping[str, frozenset[str]]] = {
    ("", "Col2Im"): {"T": frozenset({"string"})},  # adds up strings
    ("", "Erf"): {"T": frozenset({"double"})},  # rounds to float
    ("", "GridSample"): {"T1": _INTEGERS | _COMPLEX | _NO_NUMBERS},  # truncates between the steps of an interpolation
    ("", "GRU"): {"T1": frozenset({"int32"})},  # ignores sequence_lens, the only input of that type
    ("", "LSTM"): {"T1": frozenset({"int32"})},
    ("", "RNN"): {"T1": frozenset({"int32"})},
    ("", "LayerNormalization"): {"U": frozenset({"bfloat16"})},  # knows stash_type 1 only
    ("", "OneHot"): {"T3": _NO_NUMBERS},  # subtracts the values from each other
    ("", "QLinearMatMul"): {"T1": _FLOAT8, "T2": _FLOAT8, "T3": _FLOAT8},  # reads integer limits
    ("", "ReduceLogSum"): {"T": _INTEGERS},  # raises: its logarithm has no integer result
    ("", "ReduceLogSumExp"): {"T": _INTEGERS},
    ("", "Resize"): {"T1": _COMPLEX | _NO_NUMBERS},  # drops imaginary parts, wants numbers
    ("", "Trilu"): {"T": frozenset({"string"})},  # fills with the text "0"
    ("ai.onnx.ml", "LinearRegressor"): {"T": _INTEGERS},  # these round their coefficients to the input's type
    ("ai.onnx.ml", "SVMClassifier"): {"T1": _INTEGERS},
    ("ai.onnx.ml", "SVMRegressor"): {"T": _INTEGERS},
    ("ai.onnx.ml", "Scaler"): {"T": _INTEGERS},
    ("ai.onnx.ml", "TreeEnsembleRegressor"): {"T": _INTEGERS},
}
_OF_A_VERSION: Mapping[tuple[str, str, int], Mapping[str, frozenset[str]]] = {
    ("", "Dropout", 10): {"T1": frozenset({"bool"})},  # its mask is declined
}


def narrowed(domain: str, op_type: str, version: int) -> dict[str, frozenset[str]]:
    """The type strings taken, by type parameter; parameters that are taken whole are not named."""
    left_out = {**_LEFT_OUT.get((domain, op_type), {}), **_OF_A_VERSION.get((domain, op_type, version), {})}
    if not left_out:
        return {}
    constraints = defs.get_schema(op_type, version, domain).type_constraints
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in constraints}
    return {
        name: types - {f"tensor({element})" for element in left_out[name]}
        for name, types in allowed.items()
        if name in left_out
    }
