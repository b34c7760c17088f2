"""Operators over many sizes, and several nodes of one operator."""

from __future__ import annotations

from collections import Counter

from onnxplug_testkit.kernels.plan import OTHER_TYPES, plan
from onnxplug_testkit.kernels.sized import Sized, forms
from onnxplug_testkit.kernels.together import Together
from onnxplug_testkit.subject import resolve


def test_every_form_is_legal_in_the_newest_version() -> None:
    made = plan(resolve("cpu"), set(forms()))
    found = Counter(group.claimed.key[1] for group in made.groups if isinstance(group, Sized))
    assert found == {op_type: len(given) for op_type, given in forms().items()}


def test_nodes_of_some_other_types_stand_beside_those_of_one() -> None:
    for group in plan(resolve("cpu"), {"LeakyRelu", "Softmax", "Concat"}).groups:
        if isinstance(group, Together):
            types = Counter(repr(target.binding) for target in group.targets)
            ((_, most), *others) = types.most_common()
            assert most > 1 and 1 <= len(others) <= OTHER_TYPES
