"""From ``MODEL``, ``--providers`` and ``--option`` to a session. What was named is used, or the command fails."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence

from onnxplug.cli.failure import NO_PROVIDER, USAGE, CliError, as_failure
from onnxplug.contract.errors import EPFail, Fail, RuntimeException
from onnxplug.contract.options import parse_options
from onnxplug.plugins import InvalidProvider, ProviderLookupError, registry
from onnxplug.session.options import SessionOptions
from onnxplug.session.session import InferenceSession


def open_session(args: argparse.Namespace, options: SessionOptions | None = None) -> InferenceSession:
    """The session that the arguments ask for.

    CliError (NO_PROVIDER) for a named provider that cannot be used, CliError (USAGE) for an option that does not exist
    or fit; onnxplug's exception classes for the model.
    """
    named = args.providers is not None
    names = _named(args.providers) if named else registry.available_providers()
    if not names:
        raise CliError(
            NO_PROVIDER,
            "ProviderLookupError",
            "No provider can be used here",
            "pip install onnxplug-ep-cpu; then onnxplug doctor",
        )
    given = _options(args.options, names)
    options = options or SessionOptions()
    if named:
        options.add_session_config_entry("session.strict_providers", "1")
    providers = [(name, given[name]) for name in names]
    options.add_session_config_entry("session.show_progress", str(int(not args.json)))
    try:
        return InferenceSession(args.model, options, providers, enable_fallback=int(not named))
    except Exception as error:
        if named and _is_providers_fault(error, names):
            failure = as_failure(error, "onnxplug doctor; or leave the provider out of --providers")
            failure.code = NO_PROVIDER
            raise failure from error
        raise


def _named(texts: Sequence[str]) -> list[str]:
    names = []
    for text in texts:
        try:
            name = registry.full_name(text)
            registry.spec(name)
        except ProviderLookupError as error:
            message, _, fix = str(error).partition(" To fix: ")
            hint = fix or "onnxplug providers lists what can be used"
            raise CliError(NO_PROVIDER, "ProviderLookupError", message, hint) from error
        if name in names:
            raise CliError(USAGE, "UsageError", f"--providers names {name} twice", "name each provider once")
        names.append(name)
    return names


def _options(texts: Sequence[tuple[str, str, str]], names: Sequence[str]) -> Mapping[str, dict[str, str]]:
    """Options by provider, checked against the providers' option classes."""
    options: dict[str, dict[str, str]] = {name: {} for name in names}
    for text, key, value in texts:
        try:
            name = registry.full_name(text)
        except ProviderLookupError as error:
            raise CliError(
                USAGE, "UsageError", f"--option: {error}", "onnxplug providers lists providers and options"
            ) from error
        if name not in options:
            used = ", ".join(names)
            raise CliError(
                USAGE, "UsageError", f"--option {text}.{key}: {name} is not used ({used})", f"add {text} to --providers"
            )
        options[name][key] = value
    for name, given in options.items():
        _check(name, given)
    return options


def _check(name: str, given: Mapping[str, str]) -> None:
    cls = registry.spec(name).options
    known = [field.name for field in dataclasses.fields(cls)]
    unknown = next((key for key in given if key not in known), None)
    if unknown is not None:  # also where onnxruntime's provider ignores it: a typing error should not pass unseen
        text = f"{name} has no option '{unknown}'; it has {', '.join(known) or 'none'}"
        raise CliError(USAGE, "UsageError", text, "onnxplug providers lists the options")
    try:
        parse_options(cls, given)
    except Exception as error:
        raise CliError(USAGE, "UsageError", f"{name}: {error}", "onnxplug providers lists the options") from error


def _is_providers_fault(error: Exception, names: Sequence[str]) -> bool:
    """Whether a provider, rather than the model, kept the session from being made."""
    if isinstance(error, EPFail | InvalidProvider):
        return True
    return isinstance(error, Fail | RuntimeException) and error.text.startswith(
        tuple(f"{name}: create raised" for name in names)
    )
