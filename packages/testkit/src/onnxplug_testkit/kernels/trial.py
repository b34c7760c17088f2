"""A trial: one structure under one schema and one binding, run on the subject and compared with the oracle."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from onnx import helper

from onnxplug.contract import numpy_dtype
from onnxplug.contract.errors import STATUS_ERRORS, Misfit
from onnxplug_testkit import tripwire
from onnxplug_testkit.check import CheckFailed, fail
from onnxplug_testkit.kernels.cells import label
from onnxplug_testkit.kernels.compare import compare, is_floating, snapshot, unchanged
from onnxplug_testkit.kernels.conversion import CONVERTS, corners
from onnxplug_testkit.kernels.extremes import special
from onnxplug_testkit.kernels.forms import Agree, check_forms
from onnxplug_testkit.kernels.legal import is_legal
from onnxplug_testkit.kernels.lots import drops, implausible
from onnxplug_testkit.kernels.oracle import Oracle, oracles
from onnxplug_testkit.kernels.precision import Precision, precision
from onnxplug_testkit.kernels.retarget import Shapes, Target
from onnxplug_testkit.kernels.shaped import shapes_of_results
from onnxplug_testkit.kernels.values import fresh
from onnxplug_testkit.models import open_strictly
from onnxplug_testkit.subject import Subject

Feeds = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What a trial found. ``status``: passed, declined (the subject gave the node up; ``text`` says why) or unjudged (no oracle).
    ``ulp``: the worst error, in the units of the operator's rule."""

    status: str
    oracle: str = ""
    ulp: float = 0
    text: str = ""


@dataclass(frozen=True, eq=False)
class Trial:
    """``constant``: parameter inputs are initializers, not fed. Where the subject declines the node otherwise, parameters are initializers
    after all, and shapes of results that inference does not know are declared. ``weights``: the trial is run a second time, with the other
    inputs as initializers."""

    target: Target
    constant: bool
    weights: bool = False

    @property
    def id(self) -> str:
        """A name that is unique within a plan and stable over runs; one that pytest's ``-k`` takes whole."""
        types = "+".join(f"{name}:{_word(text)}" for name, text in self.target.binding.items())
        return f"{label(self.target.key)}-{types}-{self.target.structure.name}"

    @property
    def rule(self) -> Precision:
        """How exact the result must be. Of quotients by a scale of half precision, in which they may be taken, many are a step off. What
        is dropped is drawn. The text of an integer is that of all its digits."""
        rule, op_type = precision(*self.target.key), self.target.key[1]
        if rule.numeric and "int" in self.target.inputs[0].type:
            return replace(rule, numeric=False)
        if drops(op_type, [operand.like for operand in self.target.inputs]):
            return Precision("random")
        texts = " ".join(self.target.binding.values())
        if (
            rule.seldom and "bfloat16" in texts
        ):  # eight bits: quotients of hundreds are two steps apart, those of a thousand four
            return replace(
                rule, seldom=False, step=4 if "int16" in texts else 2 if op_type.startswith("QLinear") else 1
            )
        return replace(rule, seldom=False) if rule.seldom and "float16" in texts else rule

    def run(self, subject: Subject, seed: int) -> Outcome:
        """Run it twice with different data, and the first data again. CheckFailed names the aspect that is wrong."""
        return _Run(self, subject, np.random.default_rng([seed, number_of(self.id)])).outcome()


def _word(text: str) -> str:
    """A type string without what ``-k`` does not take: ``float``, ``seq.float``, ``map.int64.float``."""
    return ".".join(re.findall(r"\w+", re.sub(r"\btensor\(", "(", text)))


def number_of(text: str) -> int:
    """A seed from a name, the same in every process."""
    import zlib

    return zlib.crc32(text.encode())


@dataclass
class _Run:
    trial: Trial
    subject: Subject
    rng: np.random.Generator
    feeds: list[Feeds] = field(default_factory=list)

    def outcome(self) -> Outcome:
        found: list[Outcome] = []
        for constants, shapes in self._ways():
            found.append(self._outcome(constants, shapes))
            if found[-1].status != "declined":
                return found[-1]
        return found[0]

    def _ways(self) -> Iterator[tuple[dict[int, np.ndarray], Shapes]]:
        """Constants, and shapes declared of results: as the trial has them, then what makes a node easier to take."""
        constants = self._constants()
        given = constants if self.trial.constant else {}
        yield given, ()
        if constants and not self.trial.constant:
            yield constants, ()
        target = self.trial.target
        if shapes := shapes_of_results(target, target.model(), self.subject.name):
            yield given, shapes

    def _outcome(self, constants: dict[int, np.ndarray], shapes: Shapes) -> Outcome:
        target = self.trial.target
        made = target.model(constants, shapes)
        if constants and not is_legal(made, target.schema):
            constants = {}  # onnx's inference refuses some that it would not see as inputs
            made = target.model(shapes=shapes)
        try:
            session = open_strictly(self.subject, made)
        except STATUS_ERRORS as error:
            fail("kernels.creation", f"the session cannot be made: {error}")
        with session:
            owner = session.placement().get("node")
            if owner == tripwire.NAME:
                reasons: dict[str, str] = next(
                    (n["reasons"] for n in session.explain().nodes if n["name"] == "node"), {}
                )
                return Outcome("declined", text=str(reasons.get(self.subject.name, "no reason given")))
            if owner != self.subject.name:
                fail(
                    "kernels.placement",
                    f"the node is claimed by the registry, but {'opened and its body placed' if owner is None else owner}",
                )
            return self._compare(session, made, constants)

    def _compare(self, session: Any, made: Any, constants: Mapping[int, Any]) -> Outcome:
        rule, target = self.trial.rule, self.trial.target
        judged, worst = "", 0.0
        if target.native and not constants and rule.kind != "random":
            self._against_data(session)
            judged = "ONNX data"
        oracle, feeds, wanted = self._asked(made, [self._fresh(constants) for _ in range(2)])
        if oracle is None:
            return Outcome("passed", judged) if judged else Outcome("unjudged", text="no oracle computes this node")
        if rule.specials or rule.wide:
            feeds.append(oracle.admit({name: self._special(name, value) for name, value in feeds[1].items()}))
            wanted.append(oracle(feeds[2]))
        first: list[Any] = []
        kept: list[Any] = []
        for feed, want in zip(feeds, wanted, strict=True):
            got = self._execute(session, feed)
            if rule.kind == "random":
                self._plausible({**feed, **{f"x{i}": array for i, array in constants.items()}}, got)
            worst = max(worst, self._judge(got, want, oracle, oracle.magnitude(rule, feed)))
            if not first:
                first, kept = got, snapshot(got)
        if not unchanged(kept, first):
            fail("kernels.fresh_results", "results of the first run change during the next")
        if rule.kind != "random" and not unchanged(kept, self._execute(session, feeds[0])):
            fail("kernels.repeatable", "the same data gives another answer the second time")
        held = {f"x{i}": array for i, array in constants.items()}
        agree = [self._expects(oracle, rule, feed, want) for feed, want in zip(feeds[:2], wanted, strict=False)]
        check_forms(self.subject, made, target.schema, feeds[0], kept, held, self.rng, agree[0])
        if self.trial.weights and not constants:
            self._with_weights(feeds, agree)
        return Outcome("passed", oracle.name, worst)

    def _asked(self, made: Any, feeds: list[Feeds]) -> tuple[Oracle | None, list[Feeds], list[list[Any]]]:
        """The first oracle that answers all feeds, the feeds as it admits them, and its answers."""
        for oracle in oracles(made, self.subject.name):
            try:
                admitted = [oracle.admit(feed) for feed in feeds]
                return oracle, admitted, [oracle(feed) for feed in admitted]
            except Exception:  # onnxruntime's classes are its own; a refusal of any kind sends us to the next
                continue
        return None, feeds, []

    def _expects(self, oracle: Oracle, rule: Precision, feed: Feeds, wanted: list[Any]) -> Agree:
        """Compares results for ``feed`` that come another way, and fails the check that looks at that way."""
        bound = oracle.magnitude(rule, feed)

        def agree(check: str, what: str, got: Sequence[Any]) -> None:
            try:
                self._judge(got, wanted, oracle, bound)
            except CheckFailed as error:
                fail(check, f"{what}: {error}")

        return agree

    def _with_weights(self, feeds: Sequence[Feeds], agree: Sequence[Agree]) -> None:
        """The same data, all but the first input as initializers, in two sessions that are open at once."""
        pairs = [self._split(feed) for feed in feeds[:2]]
        if any(not weights for _, weights in pairs) or not is_legal(self.trial.target.model(pairs[0][1])):
            return
        with contextlib.ExitStack() as stack:
            sessions = []
            for _, weights in pairs:
                try:
                    sessions.append(stack.enter_context(open_strictly(self.subject, self.trial.target.model(weights))))
                except STATUS_ERRORS as error:
                    fail("kernels.weights", f"with initializers the session cannot be made: {error}")
            if any(s.placement().get("node") != self.subject.name for s in sessions):
                return  # constants may be declined; that the node is claimed without has been seen
            for index in (1, 0, 1, 0):
                agree[index]("kernels.weights", "with initializers", self._execute(sessions[index], pairs[index][0]))

    def _split(self, feed: Feeds) -> tuple[Feeds, dict[int, np.ndarray]]:
        """The first input that is fed, and the other ones that can be initializers, by number."""
        others = list(feed)[1:]
        weights = {
            int(n[1:]): feed[n] for n in others if isinstance(feed[n], np.ndarray) and not feed[n].dtype.hasobject
        }
        return {n: v for n, v in feed.items() if int(n[1:]) not in weights}, weights

    def _judge(self, got: Sequence[Any], wanted: list[Any], oracle: Oracle, magnitude: list[Any] | None) -> float:
        if len(got) != len(wanted):
            fail("kernels.shape", f"{len(wanted)} results are expected, {len(got)} given")
        bounds = magnitude or [None] * len(wanted)
        return max(
            (
                compare(g, w, oracle.rule(self.trial.rule), magnitude=m, slack=oracle.slack)
                for g, w, m in zip(got, wanted, bounds, strict=False)
            ),
            default=0.0,
        )

    def _plausible(self, feed: Feeds, got: Sequence[Any]) -> None:
        target = self.trial.target
        operands = [feed.get(f"x{i}") for i in range(len(target.inputs))]
        attributes = {name: helper.get_attribute_value(proto) for name, proto in target.attributes.items()}
        if said := implausible(target.key[1], attributes, operands, got):
            fail("kernels.values", f"random results that cannot be: {said}")

    def _execute(self, session: Any, feed: Feeds) -> list[Any]:
        before = snapshot(list(feed.values()))
        try:
            got: list[Any] = session.run(None, feed)
        except STATUS_ERRORS as error:
            if "tripwire:" in str(error):
                fail("kernels.placement", str(error))
            if isinstance(error.__cause__, Misfit):
                fail("kernels.shape" if error.__cause__.sized else "kernels.dtype", str(error))
            fail("kernels.execution", f"the run fails: {error}")
        if not unchanged(before, list(feed.values())):
            fail("kernels.inputs_unchanged", "the run changes its inputs")
        return got

    def _against_data(self, session: Any) -> None:
        """The structure's own values against ONNX's expected outputs, within ONNX's tolerance."""
        structure = self.trial.target.structure
        feed = {f"x{i}": v for i, v in enumerate(structure.inputs) if v is not None}
        got = self._execute(session, feed)
        wanted = [v for v in structure.outputs if v is not None]
        for a, b in zip(got, wanted, strict=True):
            if isinstance(b, np.ndarray) and is_floating(b.dtype):
                if np.asarray(a).dtype != b.dtype:
                    fail("kernels.dtype", f"{b.dtype} is expected, {np.asarray(a).dtype} given")
                rtol, atol = max(structure.rtol, 1e-3), max(structure.atol, 1e-6)
                if a.shape != b.shape or not np.allclose(
                    a.astype(np.float64), b.astype(np.float64), rtol, atol, equal_nan=True
                ):
                    fail("kernels.values", "the result is not that of ONNX's backend data")
            else:
                compare(a, b, self.trial.rule)

    def _constants(self) -> dict[int, np.ndarray]:
        op_type = self.trial.target.key[1]
        return {
            i: fresh(self.rng, op_type, o.formal, o.like, o.type)
            for i, o in enumerate(self.trial.target.inputs)
            if o.is_parameter and isinstance(o.like, np.ndarray) and not o.like.dtype.hasobject
        }

    def _fresh(self, constants: Mapping[int, Any]) -> Feeds:
        op_type = self.trial.target.key[1]
        return {
            f"x{i}": fresh(self.rng, op_type, o.formal, o.like, o.type)
            for i, o in enumerate(self.trial.target.inputs)
            if o.like is not None and i not in constants
        }

    def _special(self, name: str, value: Any) -> Any:
        operand, rule, target = self.trial.target.inputs[int(name[1:])], self.trial.rule, self.trial.target
        if target.key[1] in CONVERTS and not target.key[0]:
            text = target.output_types[0]
            return corners(self.rng, value, numpy_dtype(text[7:-1])) if name == "x0" else value
        return value if operand.is_parameter else special(self.rng, operand.formal, value, rule.specials, rule.wide)


ASPECTS: Mapping[str, str] = {
    "kernels.creation": "A session can be made of a node whose kernel is registered.",
    "kernels.placement": "The node runs on the subject, neither behind it nor opened.",
    "kernels.declines_say_why": "A node that has a kernel and is declined comes with a reason.",
    "kernels.execution": "The run raises nothing.",
    "kernels.dtype": "Results have the declared types.",
    "kernels.shape": "Results have the oracle's shapes.",
    "kernels.values": "Results are the oracle's within the operator's precision.",
    "kernels.special_values": "NaN and infinities are where the oracle has them.",
    "kernels.signed_zero": "Zeros have the oracle's sign where it is defined.",
    "kernels.inputs_unchanged": "A run leaves its inputs as they are.",
    "kernels.fresh_results": "Results stay as they are during the next run.",
    "kernels.repeatable": "The same data gives the same bits again.",
    "kernels.guard_bands": "A kernel's writing form writes its outputs and its workspace, nothing before or behind them.",
    "kernels.forms_agree": "The returning and the writing form give the oracle's results, whatever memory held, on views too.",
    "kernels.in_place": "The writing form is right over each input that it is registered to overwrite.",
    "kernels.weights": "Results are right when operands are initializers, while another session has others.",
    "kernels.sizes": "Results of common operators are right for dimensions from one to hundreds, in a session that meets them all.",
    "kernels.nodes_are_apart": "Nodes of one operator in one graph give what each gives alone.",
    "kernels.in_company": "Nodes between others, and constants that several nodes read, give and are what they give and are alone.",
    "kernels.misfits": "Operands that do not go together end in an error that names the node, and the next run is right.",
    "kernels.generated": "All of this holds for structures that hypothesis draws.",
}
"""The names under which a trial fails, and the rules."""


def aspects() -> tuple[str, ...]:
    """The names under which a trial fails."""
    return tuple(ASPECTS)
