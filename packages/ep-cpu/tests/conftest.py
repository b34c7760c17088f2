"""Hypothesis without deadlines: a first example pays for imports."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("onnxplug", deadline=None, max_examples=40)
settings.load_profile("onnxplug")
