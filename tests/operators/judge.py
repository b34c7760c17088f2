"""Runs a case on ``CPUExecutionProvider`` and holds the result against what it must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxplug.contract.errors import EPFail, Fail
from onnxplug.contract.types import TensorType, element_of, numpy_dtype
from operators.case import Case
from operators.model import by_case, feeds_of, on_cpu, output_types, reference_session
from operators.oracle import Oracle, evaluate, find_oracle
from operators.tolerance import EXACT, Tolerance, allowed, eps
from operators.tolerances import tolerance_of
from operators.values import element_name


@dataclass
class Expected:
    """The outputs of a case, the magnitudes its tolerance needs (else nothing), and who computed them."""

    outputs: list[Any]
    magnitudes: list[Any]
    source: str


def judge(*cases: Case) -> set[str]:
    """Compare cases of one cell; AssertionError when one differs. Who said what the results must be: "reference", "oracle" or "property".

    Cases go into one model where they can; what fails there is judged again alone, for a message about one node.
    """
    if len(cases) > 1 and not any(case.captures or case.before for case in cases):
        try:
            return _judge(cases)
        except Exception:  # any failure is that of one case, which is found below
            pass
    return {source for case in cases for source in _judge([case])}


def _judge(cases: Sequence[Case]) -> set[str]:
    results = on_cpu(*cases)
    if cases[0].verify is not None:
        for case, first, second in zip(cases, results, on_cpu(*cases), strict=True):
            assert case.verify is not None
            case.verify(case, first, second)
        return {"property"}
    wanted = _expected(cases)
    for case, got, want in zip(cases, results, wanted, strict=True):
        _compare_case(case, got, want)
    return {want.source for want in wanted}


def _compare_case(case: Case, got: list[Any], want: Expected) -> None:
    tolerance = tolerance_of(case)
    types = [text for text, asked in zip(output_types(case), case.present, strict=True) if asked]
    assert len(got) == len(want.outputs), f"{len(got)} outputs, {len(want.outputs)} expected"
    precision = eps([np.float32] if tolerance.single else [v.dtype for v in case.inputs if _is_float(v)])
    for index, (mine, theirs, text) in enumerate(zip(got, want.outputs, types, strict=True)):
        magnitude = want.magnitudes[index] if want.magnitudes else None
        compare(f"output {index} of {case}", mine, theirs, text, tolerance, magnitude, precision)


def _expected(cases: Sequence[Case]) -> list[Expected]:
    """What each case must give: what onnx.reference says, or an oracle where that declines, fails or is known to be wrong."""
    overrides = [find_oracle(case, override=True) for case in cases]
    asked = [case for case, override in zip(cases, overrides, strict=True) if override is None]
    answers = iter(_by_reference(asked))
    return [
        next(answers) if found is None else _by_oracle(found, case)
        for case, found in zip(cases, overrides, strict=True)
    ]


def _by_reference(cases: Sequence[Case]) -> list[Expected]:
    if not cases:
        return []
    session, refusal = reference_session(*cases), "declines"
    if session is not None:
        feeds = feeds_of(*cases)
        try:
            outputs = by_case(cases, session.run(None, feeds))
            sums = tolerance_of(cases[0]).sums
            magnitudes = by_case(cases, session.run(None, _magnitudes(feeds))) if sums else [[] for _ in cases]
            return [Expected(*pair, "reference") for pair in zip(outputs, magnitudes, strict=True)]
        except (Fail, EPFail) as error:
            refusal = f"fails with {error.text}"
    if len(cases) > 1:
        return [answer for case in cases for answer in _by_reference([case])]
    found = find_oracle(cases[0], override=False)
    assert found is not None, f"no oracle, and onnx.reference {refusal}: {cases[0]}"
    return [_by_oracle(found, cases[0])]


def _by_oracle(found: Oracle, case: Case) -> Expected:
    values = list(_magnitudes(dict(enumerate(case.inputs))).values())
    magnitudes = evaluate(found, case, values) if tolerance_of(case).sums else []
    return Expected(evaluate(found, case, case.inputs), magnitudes, "oracle")


def _magnitudes(feeds: dict[Any, Any]) -> dict[Any, Any]:
    return {name: np.abs(value) if _is_float(value) else value for name, value in feeds.items()}


def _is_float(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray) and value.dtype.kind not in "OSUb" and _element_is_float(element_of(value.dtype))
    )


def _element_is_float(element: str) -> bool:
    return element in ("float", "double", "float16", "bfloat16")


def compare(
    where: str, got: Any, want: Any, type_: str, tolerance: Tolerance, magnitude: Any, precision: float
) -> None:
    """Types, shapes and contents of one value; AssertionError where they differ."""
    if type_.startswith("optional("):
        type_ = type_[len("optional(") : -1]
    if want is None or got is None:
        assert want is None and got is None, f"{where}: got {got!r}, want {want!r}"
    elif type_.startswith("seq("):
        assert isinstance(got, list), f"{where}: got a {type(got).__name__}, want a list"
        assert len(got) == len(want), f"{where}: {len(got)} items, want {len(want)}"
        for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            compare(f"{where}[{index}]", mine, theirs, type_[4:-1], tolerance, None, precision)
    elif type_.startswith("map("):
        assert dict(got) == dict(want), f"{where}: got {got}, want {want}"
    else:
        _compare_tensors(
            where, got, np.asarray(want), numpy_dtype(element_name(type_)), tolerance, magnitude, precision
        )


def _compare_tensors(
    where: str, got: np.ndarray, want: np.ndarray, dtype: Any, tolerance: Tolerance, magnitude: Any, precision: float
) -> None:
    assert isinstance(got, np.ndarray), f"{where}: got a {type(got).__name__}"
    assert str(TensorType(element_of(got.dtype))) == str(TensorType(element_of(dtype))), (
        f"{where}: got {got.dtype}, want {dtype}"
    )
    assert got.shape == want.shape, f"got shape {got.shape}, want {want.shape}: {where}"
    if np.dtype(dtype).kind == "O":
        assert got.tolist() == want.tolist(), f"got {got.tolist()}, want {want.tolist()}: {where}"
        return
    element = element_of(dtype)
    with np.errstate(all="ignore"):
        want = want if want.dtype == dtype else want.astype(dtype)
    if element.startswith("complex"):
        part = np.dtype(np.float32 if element == "complex64" else np.float64)
        _compare_floats(where, got.real, want.real, part, tolerance, None, precision)
        _compare_floats(where, got.imag, want.imag, part, tolerance, None, precision)
    elif "float" in element or element == "double":
        _compare_floats(where, got, want, dtype, tolerance, magnitude, precision)
    else:
        _require(where, got == want, got, want)


def _compare_floats(
    where: str, got: np.ndarray, want: np.ndarray, dtype: Any, tolerance: Tolerance, magnitude: Any, precision: float
) -> None:
    mine, theirs = got.astype(np.float64), want.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    if tolerance != EXACT and element_of(dtype) in ("float", "double", "float16", "bfloat16"):
        with np.errstate(all="ignore"):
            close = np.abs(mine - theirs) <= allowed(tolerance, want, magnitude, dtype, precision)
        same |= close & np.isfinite(mine) & np.isfinite(theirs)
    if tolerance.zeros and dtype.itemsize > 1:
        same &= (mine != 0) | (theirs != 0) | (np.signbit(mine) == np.signbit(theirs))
    _require(where, same, got, want)


def _require(where: str, same: Any, got: np.ndarray, want: np.ndarray) -> None:
    same = np.asarray(same)
    if not same.all():
        at = tuple(int(i) for i in np.argwhere(~same)[0])
        raise AssertionError(f"got {got[at]!r}, want {want[at]!r} at {at} ({(~same).sum()} of {same.size}): {where}")
