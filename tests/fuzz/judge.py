"""Decides whether a model is answered right: as onnxruntime answers it, or where that refuses as its nodes one by one do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from fuzz.contend import CONTENDERS, FAULT, Answer, Feeds, difference, onnxruntime, plain, reference, slack_of
from onnxplug.contract.errors import STATUS_ERRORS

TYPED = frozenset(error.__name__ for error in STATUS_ERRORS)
NEWER = (
    "Unsupported model IR version",
    "only *guarantees*",
    "is not a registered function/op",
    "Could not find an implementation",
    "not implemented for CPU",
)
"""Words of onnxruntime's for models that may be right, and that it does not know."""


@dataclass(frozen=True)
class Finding:
    """One output of one contender that is not what it should be."""

    contender: str
    run: int
    output: int
    text: str
    theirs: bool = False
    """onnxruntime alone has it so: onnx.reference answers as the contender does."""

    def __str__(self) -> str:
        return f"{self.contender}, run {self.run}, output {self.output}: {self.text}"


def judge(model: ModelProto, runs: Sequence[Feeds], contenders: Sequence[str]) -> Finding | None:
    """The first difference of any of the contenders."""
    data = model.SerializeToString()
    want = onnxruntime(data, runs)
    source = "onnxruntime"
    if want.error:  # the models are legal: it has no kernel for an operator or type, or an attribute it does not know
        want, source = plain(data, runs), "plain"
    for name in contenders:
        got = CONTENDERS[name](data, runs)
        found = _compare(model, runs, got, want)
        if found:
            theirs = source == "onnxruntime" and _nearer(model, runs, got, want, reference(data, runs))
            return Finding(f"{name} against {source}", *found, theirs)
    return None


def verdict(model: ModelProto, runs: list[dict[str, Any]], contenders: Sequence[str]) -> list[tuple[str, str, str]]:
    """(contender, what is wrong, words) of each contender whose answer is not what it should be: "untyped" errors, a "fault" of the
    generator, an answer that "differs", one that is "refused" or "accepted" where onnxruntime does the other."""
    try:
        data = model.SerializeToString()
    except ValueError:
        return []
    answers = {name: CONTENDERS[name](data, runs) for name in contenders}
    want = onnxruntime(data, runs)
    if want.error == "NotImplemented" or any(word in want.message for word in NEWER):
        want = plain(data, runs)
    found = []
    for name, got in answers.items():
        if got.error == FAULT:
            found.append((name, "fault", got.message[-300:]))
        elif got.error and got.error not in TYPED and got.error != want.error:
            found.append((name, "untyped", f"{got.error}: {got.message} (onnxruntime: {want.error} {want.message})"))
        elif got.error and not want.error:
            found.append((name, "refused", got.message))
        elif want.error and not got.error:
            found.append((name, "accepted", want.message))
        elif not got.error:
            slack: list[Any] | None = None
            for index, pair in enumerate(zip(got.outputs[0], want.outputs[0], strict=True)):
                text = difference(*pair)
                if text and isinstance(pair[0], np.ndarray):
                    slack = slack_of(model, runs[0]) if slack is None else slack
                    text = difference(*pair, slack[index] if slack else 0.0)
                if text:
                    found.append((name, "differs", f"output {index}: {text}"))
                    break
    return found


def _nearer(model: ModelProto, runs: Sequence[Feeds], got: Answer, want: Answer, exact: Answer) -> bool:
    """Whether the contender agrees with the evaluation in float64, or is no farther from it than onnxruntime."""
    if _compare(model, runs, got, exact) is None:
        return True
    if got.error or want.error or exact.error:
        return False
    return all(
        _distance(mine, true) <= 2 * _distance(theirs, true)
        for lists in zip(got.outputs, want.outputs, exact.outputs, strict=True)
        for mine, theirs, true in zip(*lists, strict=True)
    )


def _distance(value: object, true: object) -> float:
    if not (isinstance(value, np.ndarray) and isinstance(true, np.ndarray) and value.dtype.kind == "f"):
        return 0.0 if not difference(value, true) else np.inf
    with np.errstate(all="ignore"):
        apart = np.abs(value.astype(np.float64) - true.astype(np.float64)) if value.shape == true.shape else np.inf
        return float(np.max(np.nan_to_num(apart), initial=0.0))


def _compare(model: ModelProto, runs: Sequence[Feeds], got: Answer, want: Answer) -> tuple[int, int, str] | None:
    if got.error or want.error:
        if got.error and want.error and got.error != FAULT:
            return None
        said = (
            f"raises {got.error}: {got.message}"
            if got.error
            else f"answers where {want.error} is raised: {want.message}"
        )
        return -1, -1, said
    for number, (mine, theirs) in enumerate(zip(got.outputs, want.outputs, strict=True)):
        slack: list[object] | None = None
        for index, pair in enumerate(zip(mine, theirs, strict=True)):
            text = difference(*pair)
            if text and isinstance(pair[0], np.ndarray):
                slack = slack_of(model, runs[number]) if slack is None else slack
                text = difference(*pair, slack[index] if slack else 0.0)
            if text:
                return number, index, text
    return None
