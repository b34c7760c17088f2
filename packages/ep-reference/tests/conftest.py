"""Providers for the tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from onnxplug.contract import SessionContext, parse_options
from onnxplug_ep_reference.memory import live_buffers
from onnxplug_ep_reference.plugin import onnxplug_provider
from onnxplug_ep_reference.provider import ReferenceProvider


@pytest.fixture
def make_provider() -> Iterator[Callable[..., ReferenceProvider]]:
    """Makes providers from option strings; closing them at the end shows leaks."""
    made: list[ReferenceProvider] = []
    before = live_buffers()  # of the process: OrtValues made outside of any session keep an arena

    def make(**options: str) -> ReferenceProvider:
        spec = onnxplug_provider()
        context = SessionContext(threads=1, config={}, log=logging.getLogger("onnxplug.test"))
        made.append(spec.create(parse_options(spec.options, options), context))
        return made[-1]

    yield make
    for provider in made:
        provider.close()
    assert [b for b in live_buffers() if all(b is not known for known in before)] == []


@pytest.fixture
def provider(make_provider: Callable[..., ReferenceProvider]) -> ReferenceProvider:
    return make_provider()
