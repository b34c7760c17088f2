"""Operators over many sizes, and several nodes of one operator."""

from __future__ import annotations

from collections import Counter

from onnxplug_testkit.kernels.plan import plan
from onnxplug_testkit.kernels.sized import Sized, forms
from onnxplug_testkit.kernels.together import Together
from onnxplug_testkit.subject import resolve


def test_every_form_is_legal_in_the_newest_version() -> None:
    made = plan(resolve("cpu"), set(forms()))
    found = Counter(group.claimed.key[1] for group in made.groups if isinstance(group, Sized))
    assert found == {op_type: len(given) for op_type, given in forms().items()}


def test_nodes_of_one_operator_are_of_one_type() -> None:
    for group in plan(resolve("cpu"), {"LeakyRelu", "Softmax", "Concat"}).groups:
        if isinstance(group, Together):
            assert len({repr(target.binding) for target in group.targets}) == 1 < len(group.targets)
