"""A report as JUnit XML, for the dashboards of a CI: one suite for each level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree import ElementTree

from onnxplug_testkit.levels import LEVELS
from onnxplug_testkit.matrix import Report, facts

_SKIPPED = ("unsupported", "waived", "expected")
_ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold."""


def junit(data: Report) -> str:
    """The report as XML. A run that is not whole, or waivers that do not hold, are errors: they never look green."""
    root = ElementTree.Element("testsuites", name=f"conformance of {data['provider']['name']}")
    for level in LEVELS:
        tests = [t for t in data["tests"] if t["id"].partition(".")[0] == level]
        if tests:
            _suite(root, level, (_case(level, test) for test in tests))
    problems = [("not run", data["not_run"])] if data["not_run"] else []
    not_selected = data["counts"]["not_selected"]
    problems += [("partial", f"{not_selected} tests were not run")] if not_selected else []
    problems += [("waiver", text) for text in data["waiver_problems"]]
    cases = [_case("run", _entry("verdict", "passed"))]
    cases += [_case("run", _entry(name, "error", text)) for name, text in problems]
    if data["verdict"] == "failed":
        ElementTree.SubElement(cases[0], "failure", message="failed")
    suite = _suite(root, "run", cases)
    properties = ElementTree.Element("properties")
    for name, text in facts(data):
        ElementTree.SubElement(properties, "property", name=name, value=_legal(text))
    suite.insert(0, properties)
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(s.get(key, "0")) for s in root)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, name: str, cases: Iterable[ElementTree.Element]) -> ElementTree.Element:
    suite = ElementTree.SubElement(root, "testsuite", name=name)
    suite.extend(cases)
    suite.set("tests", str(len(suite)))
    for key, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(len(suite.findall(f"testcase/{tag}"))))
    return suite


def _entry(name: str, status: str, detail: str = "") -> dict[str, Any]:
    return {"id": f"run.{name}", "status": status, "detail": detail, "seconds": 0}


def _case(level: str, test: Mapping[str, Any]) -> ElementTree.Element:
    name = _legal(test["id"].partition(".")[2])
    case = ElementTree.Element("testcase", classname=f"onnxplug.{level}", name=name, time=f"{test['seconds']:.4f}")
    tag = "skipped" if test["status"] in _SKIPPED else {"failed": "failure", "error": "error"}.get(test["status"])
    if tag is not None:
        detail = _legal(test["detail"])
        first = f"{test['status']}: {detail}" if tag == "skipped" else detail
        ElementTree.SubElement(case, tag, message=first.partition("\n")[0]).text = detail
    return case


def _legal(text: str) -> str:
    return _ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)
