"""Small models for checks, and the sessions they run in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

import onnxplug
from onnxplug.contract import Fail, KernelDef, KernelRegistry, Mismatch, NodeView
from onnxplug.graph import Graph, Schemas, build_graph
from onnxplug.graph.infer import infer_graph
from onnxplug.load import load_model
from onnxplug.plugins import ProviderInstance
from onnxplug_testkit import tripwire
from onnxplug_testkit.check import Unsupported
from onnxplug_testkit.subject import Subject

OPSET = 17
"""Opset of the checks' own models: old enough for every provider to have kernels for it."""
CPU = "CPUExecutionProvider"
SILENT = "not claimed by get_capability"
"""The reason the core notes where a provider gives none."""
REFERENCE = "ReferenceExecutionProvider"


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = OPSET,
) -> onnx.ModelProto:
    """A model over float tensors; ``inputs`` gives shapes, outputs have none declared."""
    graph = helper.make_graph(
        list(nodes),
        "check",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def open_session(
    subject: Subject,
    made: onnx.ModelProto | bytes,
    *behind: Any,
    ahead: Sequence[Any] = (),
    options: Mapping[str, str] | None = None,
    fallback: bool = False,
    configure: Callable[[onnxplug.SessionOptions], object] | None = None,
) -> onnxplug.InferenceSession:
    """As ``open_strictly``; but where nobody is said to stand behind the subject, and it declines nodes and gives a reason for each,
    which is its right, the CPU provider does."""
    session = open_strictly(
        subject, made, *behind, ahead=ahead, options=options, fallback=fallback, configure=configure
    )
    left = [name for name, owner in session.placement().items() if owner == tripwire.NAME]
    if behind or not left or subject.name == CPU:
        return session
    reasons = {n["name"]: n["reasons"].get(subject.name, "") for n in session.explain().nodes}
    if any(reasons.get(name, "").strip() in ("", SILENT) for name in left):
        return session
    session.close()
    return open_strictly(subject, made, CPU, ahead=ahead, options=options, fallback=fallback, configure=configure)


def bound(
    session: onnxplug.InferenceSession, feeds: Mapping[str, np.ndarray], rooms: Mapping[str, np.ndarray]
) -> onnxplug.IOBinding:
    """A binding of ``feeds`` to inputs and of the memory in ``rooms`` to outputs, by name."""
    binding, value = session.io_binding(), onnxplug.OrtValue.ortvalue_from_numpy
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, value(array))
    for name, room in rooms.items():
        binding.bind_ortvalue_output(name, value(room))
    return binding


def open_strictly(
    subject: Subject,
    made: onnx.ModelProto | bytes,
    *behind: Any,
    ahead: Sequence[Any] = (),
    options: Mapping[str, str] | None = None,
    fallback: bool = False,
    configure: Callable[[onnxplug.SessionOptions], object] | None = None,
) -> onnxplug.InferenceSession:
    """A session of the subject with ``behind`` behind it (default: the tripwire) and ``ahead`` before it, nothing optimized away.

    ``made``: a model, or a file's bytes as they are. ``fallback``: whether a run that a provider fails may be answered by the others.
    ``configure`` changes the session's options.
    """
    data = made if isinstance(made, bytes) else made.SerializeToString()
    tripwire.lay()
    settings = onnxplug.SessionOptions()
    settings.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.add_session_config_entry("session.strict_providers", "1")
    # What a provider claims it compiles: what it could not would be taken for declined, and run elsewhere.
    settings.add_session_config_entry("session.disable_compile_fallback", str(int(not fallback)))
    if configure is not None:
        configure(settings)
    after = list(behind or (tripwire.NAME,))
    names = [subject.name, *(b if isinstance(b, str) else b[0] for b in after)]
    if CPU not in names:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers = [*ahead, (subject.name, {**subject.options, **(options or {})}), *after]
    return onnxplug.InferenceSession(data, settings, providers=providers, enable_fallback=int(fallback))


UNARY = ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Exp", "Identity")
BINARY = ("Add", "Mul", "Sub")


def taken(subject: Subject) -> list[str]:
    """Which of the plain element-wise operators the subject claims on floats; Unsupported when it is none of them, AssertionError
    when sessions fail."""
    found, refusals = [], dict[str, Fail]()
    for op_type in (*UNARY, *BINARY):
        inputs = ["x"] if op_type in UNARY else ["x", "x"]
        made = model([helper.make_node(op_type, inputs, ["y"], "node")], {"x": ("n", 4)}, ["y"])
        try:
            session = open_strictly(subject, made)
        except Fail as error:
            refusals.setdefault(str(error), error)
            continue
        with session:
            owners = session.placement()
        if set(owners.values()) == {subject.name}:
            found.append(op_type)
    if not found and refusals:
        told = ExceptionGroup("sessions refused", list(refusals.values()))
        raise AssertionError(f"no session can be made: {'; '.join(refusals)}") from told
    if not found:
        raise Unsupported("operators", f"none of {', '.join((*UNARY, *BINARY))} on floats is claimed")
    return found


def chain(subject: Subject, length: int = 4, shape: Sequence[int | str] = ("n", 16)) -> onnx.ModelProto:
    """A chain of operators the subject claims, of ``length`` nodes, from ``x`` to ``y``."""
    operators = taken(subject)
    nodes = []
    for index in range(length):
        op_type = operators[index % len(operators)]
        source = "x" if index == 0 else f"v{index - 1}"
        target = "y" if index == length - 1 else f"v{index}"
        inputs = [source] if op_type in UNARY else [source, "x"]
        nodes.append(helper.make_node(op_type, inputs, [target], f"step{index}"))
    return model(nodes, {"x": shape}, ["y"])


def dag(subject: Subject, rng: np.random.Generator) -> onnx.ModelProto:
    """A random graph of operators the subject claims: inputs ``x`` and ``z`` of shape [n, 16], values read several times, two of
    the intermediate values among the outputs. Node names end in _a or _b, at random."""
    operators = [o for o in taken(subject) if o != "Exp"]
    tame = next((o for o in ("Tanh", "Sigmoid") if o in operators), None)
    values, nodes = ["x", "z"], []
    for index in range(18):
        arithmetic = [o for o in operators if o in BINARY]
        op_type = str(rng.choice(arithmetic if arithmetic and rng.random() < 0.6 else operators))
        inputs = [str(rng.choice(values[-5:])) for _ in range(1 if op_type in UNARY else 2)]
        values.append(f"v{index}")
        nodes.append(helper.make_node(op_type, inputs, [values[-1]], f"node{index}_{'ab'[int(rng.integers(2))]}"))
        if op_type == "Mul" and tame is not None:  # else magnitudes would grow without bounds
            values[-1] = f"t{index}"
            nodes.append(helper.make_node(tame, [f"v{index}"], [values[-1]], f"tame{index}_a"))
    read = {name for node in nodes for name in node.input}
    outputs = [name for name in values[2:] if name not in read]
    outputs += [str(v) for v in rng.choice([v for v in values[2:] if v in read], 2, replace=False)]
    return model(nodes, {"x": ("n", 16), "z": ("n", 16)}, outputs)


def nested(subject: Subject) -> onnx.ModelProto:
    """y = If(flag, Loop(trips, v = op(v)), op(x)) of an operator the subject claims; both bodies read x from outside."""
    operators = taken(subject)
    op_type = next((o for o in operators if o in BINARY), operators[0])

    def work(source: str, target: str, name: str) -> onnx.NodeProto:
        return helper.make_node(op_type, [source] if op_type in UNARY else [source, "x"], [target], name)

    def info(
        name: str, shape: Sequence[Any] | None = ("n", 16), element: int = TensorProto.FLOAT
    ) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, element, None if shape is None else list(shape))

    body = helper.make_graph(
        [work("v", "w", "loop_work")],  # and no Identity of the condition, which the subject need not have
        "body",
        [info("i", (), TensorProto.INT64), info("go", (), TensorProto.BOOL), info("v")],
        [info("go", (), TensorProto.BOOL), info("w")],
    )
    then = helper.make_graph(
        [helper.make_node("Loop", ["trips", "", "x"], ["t"], "loop", body=body)], "then", [], [info("t")]
    )
    other = helper.make_graph([work("x", "e", "else_work")], "else", [], [info("e")])
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], "if", then_branch=then, else_branch=other)],
        "control",
        [info("x"), info("flag", (), TensorProto.BOOL), info("trips", (), TensorProto.INT64)],
        [info("y", None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(made: onnx.ModelProto, feeds: Mapping[str, Any], judged: str = "") -> list[Any]:
    """What the reference (or, when that is judged, the CPU provider) computes for a whole model."""
    options = {"memory": "host", "float64": "1"}
    providers: list[Any] = [CPU] if judged == REFERENCE else [(REFERENCE, options), CPU]
    return onnxplug.InferenceSession(made.SerializeToString(), providers=providers).run(None, dict(feeds))


def graph_of(made: onnx.ModelProto, own: Sequence[Any] = ()) -> Graph:
    """The graph as providers are shown it; ``own`` are schemas besides onnx's."""
    graph = build_graph(load_model(made.SerializeToString()), Schemas(lambda: own))
    infer_graph(graph)
    return graph


class Lookup:
    """What ``get_capability`` is handed for a graph of which nobody has taken a node yet."""

    def __init__(self, instance: ProviderInstance) -> None:
        self._registry: KernelRegistry = instance.call("get_kernel_registry") or KernelRegistry()

    def kernel_for(self, node: NodeView) -> KernelDef | Mismatch:
        """The kernel of the provider's registry, or why there is none."""
        return self._registry.kernel_for(node)

    def owner(self, node: NodeView) -> str | None:
        """Nobody."""
        return None
