"""What a one-node model shall give: the reference provider in float64, on host memory.

Where the reference has no kernel and the operator is a function of others, these are run one after the other, each result rounded;
the bound is widened for that. A few the kit computes itself (``conversion.py``, ``plain.py``, ``worked.py``). What else
the reference does not take, and the reference itself, is judged by onnxruntime where it is installed, by the same model said otherwise
(``restate.py``) or converted to a newer operator set, and by the CPU provider, whichever answers first; a provider never judges itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto

import onnxplug
from onnxplug.contract.errors import STATUS_ERRORS
from onnxplug_testkit.kernels.compare import is_floating
from onnxplug_testkit.kernels.conversion import Conversion
from onnxplug_testkit.kernels.plain import Plain
from onnxplug_testkit.kernels.precision import Precision
from onnxplug_testkit.kernels.restate import Restated, restatements
from onnxplug_testkit.kernels.worked import Worked
from onnxplug_testkit.models import CPU, REFERENCE

CONVERTED_TO = 18
"""The operator set old models are converted to: the newest before types were only added."""
INLINED_SLACK, SECOND_OPINION_SLACK = 8.0, 2.0
RESULTS = 8
"""More than any operator with such a rule has."""
_ENDS_THE_PROCESS = frozenset({"QLinearLeakyRelu", "QLinearSigmoid"})
"""Operators of which onnxruntime 1.31 reads beside the operands, and aborts, where the last zero point is left out."""
_HOST_DOUBLE = (REFERENCE, {"memory": "host", "float64": "1"})


@dataclass(frozen=True)
class Oracle:
    """Expected results of one model. ``name`` says whose they are; ``slack`` how much wider than the table its bounds are; ``form``
    how the model is said to it."""

    name: str
    session: Any
    slack: float
    form: Restated | None = None

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The expected outputs."""
        if self.form is None:
            found: list[Any] = self.session.run(None, dict(feeds))
            return found
        return self.form.back(self.session.run(None, dict(self.form.feed(feeds))), feeds)

    def admit(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs this oracle can be asked about, as near to ``feeds`` as there are."""
        admit = self.form.admit if self.form is not None else getattr(self.session, "admit", dict)
        return dict(admit(feeds))

    def rule(self, rule: Precision) -> Precision:
        """The operator's rule, in this oracle's precision."""
        return dataclasses.replace(rule, single=True) if self.form is not None and self.form.single else rule

    def magnitude(self, rule: Precision, feeds: Mapping[str, Any]) -> list[Any] | None:
        """What each output's error is relative to besides the output itself: sum|a||b| for rules of kind ``sum``, from the same model
        on absolute values; the largest input for rules that say so."""
        if rule.of_inputs:
            floats = [np.abs(v.astype(np.float64)).max(initial=0) for v in feeds.values() if _is_float(v)]
            return [max(floats, default=0.0)] * RESULTS
        if rule.kind != "sum":
            return None
        return self({name: _absolute(value) for name, value in feeds.items()})


def oracles(made: onnx.ModelProto, judged: str) -> Iterator[Oracle]:
    """The oracles that take this model, the best first."""
    for kit in (Conversion, Plain, Worked):
        if kit.takes(made):
            yield Oracle("the kit", kit(made), 1.0)
    yield from _asked(made, judged, None)
    for form in restatements(made):
        yield from _asked(form.model, judged, form)
    newer = _converted(made) if judged != REFERENCE else None
    session = _session(newer, _HOST_DOUBLE) if newer is not None else None
    if session is not None:
        yield Oracle(f"{REFERENCE}, converted", session, INLINED_SLACK)
    own = _session(made, CPU) if judged not in (CPU, REFERENCE) else None
    if own is not None:
        yield Oracle(CPU, own, SECOND_OPINION_SLACK)


def refusers(made: onnx.ModelProto, judged: str, feeds: Mapping[str, Any]) -> list[Callable[[Mapping[str, Any]], bool]]:
    """Who computes the model from ``feeds``, as functions that tell whether they refuse others: the reference, the CPU provider, and
    onnxruntime if it is installed."""
    found: list[Callable[[Mapping[str, Any]], bool]] = []
    ours = [name for name in (REFERENCE, CPU) if name != judged]
    for session in (
        *(_session(made, _HOST_DOUBLE if name == REFERENCE else name) for name in ours),
        _onnxruntime(made),
    ):
        if session is not None and not _refuses(session, feeds):
            found.append(functools.partial(_refuses, session))
    return found


def _refuses(session: Any, feeds: Mapping[str, Any]) -> bool:
    try:
        session.run(None, dict(feeds))
    except Exception:  # onnxruntime's classes are its own
        return True
    return False


def _asked(made: onnx.ModelProto, judged: str, form: Restated | None) -> Iterator[Oracle]:
    """The providers that take a model, themselves or its function body; onnxruntime."""
    name = made.graph.node[0].name
    said = "" if form is None else f", {form.text}"
    slack = INLINED_SLACK if form is not None and form.inlined else 1.0
    if judged != REFERENCE:
        session = _session(made, _HOST_DOUBLE)
        if session is not None:
            direct = not name or session.placement().get(name) == REFERENCE
            inlined = "" if direct else ", inlined"
            yield Oracle(f"{REFERENCE}{said}{inlined}", session, max(slack, 1.0 if direct else INLINED_SLACK), form)
    else:
        own = _session(made, CPU)
        if own is not None:
            yield Oracle(f"{CPU}{said}", own, max(slack, SECOND_OPINION_SLACK), form)
    foreign = _onnxruntime(made)
    if foreign is not None:
        yield Oracle(f"onnxruntime{said}", foreign, max(slack, SECOND_OPINION_SLACK), form)


def _converted(made: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model of an old operator set in a newer one, by onnx's version converter, whose adapters know what changed but in Hardmax."""
    if made.graph.node[0].domain or made.graph.node[0].op_type == "Hardmax":
        return None
    try:
        return onnx.version_converter.convert_version(made, CONVERTED_TO)
    except Exception:  # the converter raises RuntimeError and whatever its C++ assertions become
        return None


def _onnxruntime(made: onnx.ModelProto) -> Any:
    """A session of onnxruntime's CPU provider that optimizes nothing; None where it is not installed or does not take the model.

    Types that NumPy does not have of itself it hands out as bytes, so that it is no oracle for them.
    """
    values = (*made.graph.input, *made.graph.output)
    if any(v.type.tensor_type.elem_type > TensorProto.COMPLEX128 for v in values):
        return None
    if made.graph.node[0].op_type == "MoE" and values[0].type.tensor_type.elem_type == TensorProto.FLOAT16:
        return None  # onnxruntime 1.31 leaves the products of halves out
    if made.graph.node[0].op_type == "QLinearSoftmax":
        return None  # onnxruntime multiplies by floor(1 / y_scale): a step off from y_scale / 2 on where 1 / y_scale is not whole
    if made.graph.node[0].op_type in _ENDS_THE_PROCESS and len(made.graph.node[0].input) < 5:
        return None
    try:
        import onnxruntime  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(made.SerializeToString(), settings, providers=[CPU])
    except Exception:  # its exception classes are private; whatever the reason, it is no oracle here
        return None


def _session(made: onnx.ModelProto, provider: Any) -> onnxplug.InferenceSession | None:
    settings = onnxplug.SessionOptions()
    settings.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    if provider != CPU:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        return onnxplug.InferenceSession(made.SerializeToString(), settings, providers=[provider], enable_fallback=0)
    except STATUS_ERRORS:
        return None


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and is_floating(value.dtype)


def _absolute(value: Any) -> Any:
    return np.abs(value) if _is_float(value) else value
