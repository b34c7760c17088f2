"""What a registry refuses when a kernel is entered."""

from __future__ import annotations

import pytest

from onnxplug.contract import KernelDef, KernelRegistry, type_strings, versions


def definition(
    op_type: str, since: int, until: int | None = None, domain: str = "", types: tuple[str, ...] = ()
) -> KernelDef:
    taken = {"T": type_strings(types)} if types else {}
    return KernelDef(domain, op_type, since, lambda node: lambda x: x, until, taken)


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [
        (8, None, "kernel Relu: since=8 is not a schema version of it (1, 6, 13, 14)"),
        (13, 99, "kernel Relu: until=99 promises versions that do not exist yet"),
        (13, 6, "kernel Relu: until=6 is below since=13"),
    ],
)
def test_versions_that_the_history_does_not_have(since: int, until: int | None, said: str) -> None:
    registry = KernelRegistry()
    for _ in range(2):  # what was looked at once is remembered, an error is told again
        with pytest.raises(ValueError) as error:
            registry.add(definition("Relu", since, until))
        assert str(error.value).startswith(said)
    assert len(registry) == 0


def test_versions_before_the_history_and_operators_without_one_are_taken() -> None:
    made = [definition("LayerNormalization", 1), definition("Relu", 3, 2, domain="mine")]
    assert list(KernelRegistry(made)) == made


@pytest.mark.parametrize(("since", "until"), [(13, 14), (6, 13), (1, 14), (13, None)])
def test_two_kernels_for_a_version(since: int, until: int | None) -> None:
    registry = KernelRegistry([definition("Relu", 13)])
    with pytest.raises(
        ValueError, match=rf"kernel Relu: versions {since}-{until or since} overlap the kernel for 13-13"
    ):
        registry.add(definition("Relu", since, until))
    registry.add(definition("Relu", 14))
    registry.add(definition("Relu", 1, 6))


def test_two_kernels_for_a_version_and_different_types() -> None:
    registry = KernelRegistry([definition("Relu", 14, types=("float", "double"))])
    registry.add(definition("Relu", 14, types=("float16",)))
    with pytest.raises(ValueError, match="overlap"):
        registry.add(definition("Relu", 14, types=("int8", "double")))
    assert len(registry) == 2


def test_one_operator_s_history_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of onnx where nothing is kept on disk."""
    history = versions.schema_versions()
    monkeypatch.setattr(versions, "_shelf", lambda: None)
    assert len(history) > 200
    assert {key: versions.versions_of(*key) for key in history} == history
    assert versions.versions_of("com.acme", "Frob") == versions.versions_of("", "Frob") == frozenset()
