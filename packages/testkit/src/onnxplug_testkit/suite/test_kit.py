"""The kit's checks as pytest tests, in the order of levels. The plugin gives each its parameters and its verdict."""

from __future__ import annotations

import pytest

from onnxplug_testkit.check import Check
from onnxplug_testkit.kernels.generated import Generated
from onnxplug_testkit.kernels.plan import Group
from onnxplug_testkit.kernels.trial import Trial
from onnxplug_testkit.kit import Kit
from onnxplug_testkit.plugin import kit_of


@pytest.fixture(scope="session")
def kit(pytestconfig: pytest.Config) -> Kit:
    """The run in progress."""
    found = kit_of(pytestconfig)
    assert found is not None
    return found


def test_check(kit: Kit, kit_early: Check) -> None:
    """Contract and memory."""
    kit_early(kit.subject, kit.seed)


def test_trial(kit: Kit, kit_trial: Trial) -> None:
    """One structure of one operator in one version with one set of types."""
    kit.try_out(kit_trial)


def test_generated(kit: Kit, kit_generated: Generated) -> None:
    """Structures of one operator in one version, as hypothesis draws them."""
    kit.try_generated(kit_generated)


def test_group(kit: Kit, kit_group: Group) -> None:
    """One operator over many sizes, or several nodes of one operator."""
    kit.try_group(kit_group)


def test_claim(kit: Kit, kit_claim: str) -> None:
    """The claim as a whole, after the trials."""
    kit.judge_claim(kit_claim)


def test_session(kit: Kit, kit_late: Check) -> None:
    """Graphs and robustness."""
    kit_late(kit.subject, kit.seed)
