"""Placed graph and shapes to a frozen plan of steps."""

from onnxplug.graph.schemas import Evaluate
from onnxplug.plan.failures import step_failure
from onnxplug.plan.planner import Planner
from onnxplug.plan.steps import Form, Keep, Plan, Slot, Step

__all__ = ["Evaluate", "Form", "Keep", "Plan", "Planner", "Slot", "Step", "step_failure"]
