"""``conformance.toml``: a provider's settings and waivers.

::

    [provider]
    ep = "AcmeExecutionProvider"
    level = "kernels"
    profile = "cnn"                     # several: "cnn, transformer"
    limit_option = "arena_limit"        # the option that bounds its memory, when it has an unusual name

    [provider.options]
    device_id = "0"

    [[waiver]]
    test = "kernels.trial[Cast-13-T1:float+T2:string-cast_FLOAT_to_STRING]"
    kind = "expected_failure"           # or "unsupported": the subject cannot, and says so; a test that ends otherwise fails
    reason = "prints one digit too many"
    link = "https://example.org/acme/issues/12"
    expires = 2027-01-31                # the last day on which it holds
    contract = "0.1"
"""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxplug.contract import CONTRACT_VERSION

_FINDS = {"unsupported": "unsupported", "expected_failure": "failed"}
"""What a test is found to be, by the kind of its waiver."""
WAIVED = {"unsupported": "waived", "expected_failure": "expected"}
"""The status that such a test gets."""
FILE = "conformance.toml"
_FIELDS = ("test", "kind", "reason", "link", "expires", "contract")


class SettingsError(ValueError):
    """conformance.toml says something the kit cannot use."""


@dataclass(frozen=True)
class Waiver:
    """One test that may fail. All fields are required; ``contract`` is the contract version it was written for."""

    test: str
    kind: str
    reason: str
    link: str
    expires: datetime.date
    contract: str

    @property
    def found(self) -> str:
        """The status of a test that it is for."""
        return _FINDS[self.kind]

    def misfit(self, status: str, detail: str) -> str:
        """What is wrong with it on a test that is found to be of another status."""
        waived = f"although it is waived as {self.kind}"
        if status == "passed":
            return f"passes {waived}: drop the waiver"
        if status == "unsupported":
            return (
                f"is unsupported and does not fail {waived}: make its kind unsupported, or drop the waiver ({detail})"
            )
        return f"fails {waived}: {detail}"

    def refusal(self, today: datetime.date) -> str | None:
        """Why it does not hold any more."""
        if self.expires < today:
            return f"the waiver of {self.test} expired on {self.expires}"
        current = ".".join(map(str, CONTRACT_VERSION))
        if self.contract != current:
            return f"the waiver of {self.test} is for contract {self.contract}, this is {current}"
        return None


@dataclass(frozen=True)
class Settings:
    """What a conformance.toml says; command line options win over it."""

    ep: str = ""
    level: str = ""
    profile: str = ""
    limit_option: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    waivers: Mapping[str, Waiver] = field(default_factory=dict)


def read(path: Path | None) -> Settings:
    """The settings of a file, none for None. SettingsError names what is wrong."""
    if path is None:
        return Settings()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error
    unknown = sorted(set(data) - {"provider", "waiver"})
    if unknown:
        raise SettingsError(f"{path}: unknown table {unknown[0]}; there are provider and waiver")
    provider = dict(data.get("provider", {}))
    options = {str(k): str(v) for k, v in dict(provider.pop("options", {})).items()}
    strange = sorted(set(provider) - {"ep", "level", "profile", "limit_option"})
    if strange:
        raise SettingsError(f"{path}: unknown setting provider.{strange[0]}")
    waivers = [_waiver(path, entry) for entry in data.get("waiver", ())]
    by_test = {w.test: w for w in waivers}
    if len(by_test) != len(waivers):
        raise SettingsError(f"{path}: a test is waived twice")
    return Settings(**{k: str(v) for k, v in provider.items()}, options=options, waivers=by_test)


def _waiver(path: Path, entry: Mapping[str, Any]) -> Waiver:
    for name in _FIELDS:
        if not entry.get(name):
            raise SettingsError(f"{path}: waiver of {entry.get('test', '?')} has no {name}")
        if name != "expires" and not isinstance(entry[name], str):
            raise SettingsError(f"{path}: waiver of {entry['test']}: {name} is no text in quotes")
    strange = sorted(set(entry) - set(_FIELDS))
    if strange:
        raise SettingsError(f"{path}: waiver of {entry['test']} has an unknown field {strange[0]}")
    if entry["kind"] not in WAIVED:
        raise SettingsError(
            f"{path}: waiver of {entry['test']}: kind {entry['kind']!r} is not one of {', '.join(WAIVED)}"
        )
    if type(entry["expires"]) is not datetime.date:
        raise SettingsError(f"{path}: waiver of {entry['test']}: expires is not a date (2027-01-31, without quotes)")
    if any(mark in entry["test"] for mark in "*?"):
        raise SettingsError(f"{path}: waiver of {entry['test']}: a waiver names one test exactly, without wildcards")
    return Waiver(**{name: entry[name] for name in _FIELDS})
