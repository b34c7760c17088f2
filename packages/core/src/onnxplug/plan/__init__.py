"""Placed graph and shapes to a frozen plan of steps."""

from onnxplug.plan.failures import step_failure
from onnxplug.plan.planner import Planner
from onnxplug.plan.steps import Form, Keep, Plan, Step

__all__ = ["Form", "Keep", "Plan", "Planner", "Step", "step_failure"]
