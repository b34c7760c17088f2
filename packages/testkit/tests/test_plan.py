"""Cells, structures and trials."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx
import pytest

from onnxplug.contract import Claim, Decline, GraphView, KernelDef, KernelLookup, KernelRegistry
from onnxplug_ep_cpu.schemas import op_schemas
from onnxplug_ep_reference.provider import ReferenceProvider
from onnxplug_testkit import profiles
from onnxplug_testkit.kernels.cells import Cell, claims, label, parameters, schemas
from onnxplug_testkit.kernels.own import OwnNode, own_nodes
from onnxplug_testkit.kernels.plan import Plan, plan
from onnxplug_testkit.kernels.retarget import retarget
from onnxplug_testkit.kernels.structures import structures
from onnxplug_testkit.subject import resolve


def definition(op_type: str, since: int, until: int | None = None, **types: frozenset[str]) -> KernelDef:
    return KernelDef("", op_type, since, lambda node: None, until, types)  # type: ignore[arg-type, return-value]


def test_a_range_is_a_cell_for_each_version_and_type() -> None:
    (seven, thirteen, fourteen) = claims([definition("Add", 7, 14, T=frozenset({"tensor(float)", "tensor(int8)"}))])
    assert [c.key[2] for c in (seven, thirteen, fourteen)] == [7, 13, 14]
    assert seven.cells == [Cell("", "Add", 7, "T", "tensor(float)")]  # int8 came with version 14
    assert [c.type for c in fourteen.cells] == ["tensor(float)", "tensor(int8)"]


def test_two_definitions_of_one_version_add_up() -> None:
    (found,) = claims(
        [
            definition("Relu", 14, T=frozenset({"tensor(float)"})),
            definition("Relu", 14, T=frozenset({"tensor(double)"})),
        ]
    )
    assert len(found.cells) == 2


def test_an_operator_without_schema_is_a_cell() -> None:
    (found,) = claims([KernelDef("com.example", "Frobnicate", 1, lambda node: None)])  # type: ignore[arg-type, return-value]
    assert [str(c) for c in found.cells] == ["com.example.Frobnicate-1"]


def test_deprecated_schemas_are_no_claim() -> None:
    assert ("", "Upsample", 9) in schemas() and ("", "Upsample", 10) not in schemas()


BROUGHT = {(s.domain, s.name, s.since_version): s for s in op_schemas()}


@pytest.mark.parametrize(
    "own", list(own_nodes()), ids=lambda own: f"{label((own.domain, own.op_type, own.version))}-{own.name}"
)
def test_own_structures_are_legal_as_written(own: OwnNode) -> None:
    key = (own.domain, own.op_type, own.version)
    (structure,) = (s for s in structures()[key[:2]] if s.name == f"own_{own.name}" and s.key == key)
    schema = schemas().get(key) or BROUGHT[key]
    (claimed,) = claims([KernelDef(*key, lambda node: None)], list(BROUGHT.values()))  # type: ignore[arg-type, return-value]
    assert retarget(structure, claimed, {}, schema) is not None


def test_names_of_own_structures_are_unique() -> None:
    names = [(own.domain, own.op_type, own.name) for own in own_nodes()]
    assert len(set(names)) == len(names)


def test_a_structure_keeps_to_its_types() -> None:
    (claimed,) = claims([KernelDef("ai.onnx.ml", "Imputer", 1, lambda node: None)])  # type: ignore[arg-type, return-value]
    fitting = {
        s.name
        for s in structures()["ai.onnx.ml", "Imputer"]
        if retarget(s, claimed, {"T": "tensor(int32)"}) is not None
    }
    assert fitting == {"own_imputer_1_integers"}


def test_retargeting_moves_operands_into_attributes() -> None:
    (claimed,) = claims([definition("Squeeze", 11)])
    found = [t for s in structures()["", "Squeeze"] if (t := retarget(s, claimed, {"T": "tensor(int8)"})) is not None]
    assert found
    for target in found:
        made = target.model()
        onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
        assert len(made.graph.node[0].input) == 1
        assert made.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT8


def test_types_outside_the_claim_are_not_tried() -> None:
    (claimed,) = claims([definition("Gather", 13, T=frozenset({"tensor(float)"}), Tind=frozenset({"tensor(int32)"}))])
    targets = [t for s in structures()["", "Gather"] if (t := retarget(s, claimed, {})) is not None]
    assert targets and all(t.binding == {"T": "tensor(float)", "Tind": "tensor(int32)"} for t in targets)


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan(resolve("cpu"), {"Add", "Gather", "Cast", "SequenceAt", "Optional"})


def test_a_plan_reaches_its_cells(small: Plan) -> None:
    reached = {cell for trial in small.trials for cell in trial.target.cells}
    assert reached == set(small.cells) and not small.unreached


def test_names_of_trials_are_unique(small: Plan) -> None:
    assert len({t.id for t in small.trials}) == len(small.trials)


@pytest.mark.parametrize("ep", ["cpu", "reference"])
def test_names_of_trials_can_be_given_to_k(ep: str) -> None:
    made = plan(resolve(ep), {"Cast", "SequenceAt", "Optional", "ZipMap", "Identity"})
    for name in (*(t.id for t in made.trials), *(g.id for g in made.groups), *(g.id for g in made.generated)):
        assert re.fullmatch(r"[\w:+.\-\[\]]+", name), name


def test_every_structure_is_tried_in_the_newest_version(small: Plan) -> None:
    """ONNX's own among them: of Cast those are pairs of types, each of which is code of its own."""
    tried = {t.target.structure.name for t in small.trials if t.target.key[1] == "Cast"}
    assert tried >= {s.name for s in structures()["", "Cast"]}


def test_several_profiles_are_one_floor() -> None:
    both = profiles.load("cnn, transformer")
    assert str(both) == "cnn-1, transformer-1"
    assert set(both.cells) == set(profiles.load("cnn").cells) | set(profiles.load("transformer").cells)
    assert len(both.cells) == len(set(both.cells))
    with pytest.raises(ValueError, match="most is not a profile"):
        profiles.load("cnn,most")


@pytest.mark.parametrize("name", profiles.NAMES)
def test_profiles_name_real_cells(name: str) -> None:
    profile = profiles.load(name)
    assert profile.cells and str(profile) == f"{name}-1"
    newest = {key[:2]: key for key in sorted(schemas())}
    for domain, op_type, parameter, text in profile.cells:
        assert text in parameters(schemas()[newest[domain, op_type]])[parameter], (op_type, parameter, text)


def test_types_that_no_schema_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = KernelRegistry([definition("Abs", 13, T=frozenset({"float"}))])
    monkeypatch.setattr(ReferenceProvider, "get_kernel_registry", lambda self: kernels)
    made = plan(resolve("reference"), {"Abs"})
    assert list(made.unreached.values()) == [
        "no type claimed for T is one of its schema, which are written like 'tensor(float)'"
    ]


def test_parameters_may_be_taken_from_initializers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which trials feed them is a matter of order; a claim is not to hang on it."""
    claims_of = ReferenceProvider.get_capability

    def constant_alone(self: ReferenceProvider, graph: GraphView, kernels: KernelLookup) -> Iterator[Claim | Decline]:
        for found in claims_of(self, graph, kernels):
            nodes = found.nodes if isinstance(found, Claim) else []
            fed = [n for n in nodes if n.op_type == "Reshape" and n.inputs[1].constant is None]
            yield Decline(fed[0], "the target is fed") if fed else found

    monkeypatch.setattr(ReferenceProvider, "get_capability", constant_alone)
    subject = resolve("reference")
    trials = plan(subject, {"Reshape"}).trials
    assert not all(trial.constant for trial in trials)
    assert {trial.run(subject, 1).status for trial in trials} <= {"passed", "unjudged"}
