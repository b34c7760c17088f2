"""Decides whether a model is answered right: as onnxruntime answers it, or where that refuses as its nodes one by one do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto

from fuzz.contend import CONTENDERS, Answer, Feeds, difference, onnxruntime, plain, reference, slack_of


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
            theirs = source == "onnxruntime" and _compare(model, runs, got, reference(data, runs)) is None
            return Finding(f"{name} against {source}", *found, theirs)
    return None


def _compare(model: ModelProto, runs: Sequence[Feeds], got: Answer, want: Answer) -> tuple[int, int, str] | None:
    if got.error or want.error:
        if got.error and want.error:
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
