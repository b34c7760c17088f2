"""``onnxplug explain``."""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_models import ACME, CPU, FLOAT, Cli, Fusing, as_json, error_of, write
from onnx import helper

from onnxplug.contract import (
    ExecutionProvider,
    Unavailable,
)


def test_explain_json(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    offer()
    code, document = as_json(cli("explain", model, "--providers", "acme,cpu", "--json"))
    assert code == 0
    assert document["summary"] == {
        "nodes": 2, "shapes": 0, "share": {ACME: 0.5, CPU: 0.5}, "share_but_shapes": {ACME: 0.5, CPU: 0.5},
        "copies": 0, "edges": 0, "removed": 0, "inlined": 0, "regions": 0,
    }  # fmt: skip
    assert [(p["name"], p["nodes"]) for p in document["providers"]] == [(ACME, 1), (CPU, 1)]
    plus, positive = document["nodes"]
    assert (plus["name"], plus["op_type"], plus["provider"]) == ("plus", "Add", CPU)
    assert plus["reasons"][ACME] == "Acme cannot add"
    assert positive["provider"] == ACME
    assert CPU in positive["reasons"]


def test_explain_text(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    offer()
    code, out, _ = cli("explain", model, "--providers", "acme,cpu")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert out.startswith(f"{model}\n2 nodes\n")
    assert "#" * 30 + "=" * 30 in out
    assert ["1", "Relu-14", ACME] in lines
    assert ["1", "Add-14", CPU, f"{ACME}:", "Acme", "cannot", "add"] in lines
    assert "which has priority" not in out
    full = cli("explain", model, "--providers", "acme,cpu", "--all")[1]
    assert "plus" in full
    assert "which has priority" in full


def test_explain_groups_alike_nodes(cli: Cli, tmp_path: Path) -> None:
    names = ["x", *(f"v{i}" for i in range(40)), "y"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in itertools.pairwise(names)]
    model = write(tmp_path / "chain.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    out = cli("explain", model, "--providers", "cpu")[1]
    assert ["41", "Neg-13", CPU] in [line.split() for line in out.splitlines()]
    assert len(out.splitlines()) < 15


def test_explain_shows_copies_and_who_was_not_named(cli: Cli, model: str) -> None:
    code, out, _ = cli("explain", model, "--providers", "reference", "--option", "reference.float64=1")
    assert code == 0
    assert "2 copies at inputs and outputs" in out
    assert "float64=1" in out
    assert "not named" in out
    lines = [line.split() for line in cli("explain", model, "--providers", "reference", "--all")[1].splitlines()]
    assert ["cpu:0", "sim:0", "x"] in lines


def test_explain_nested_graphs(cli: Cli, nested: str) -> None:
    document = as_json(cli("explain", nested, "--providers", "cpu", "--json"))[1]
    assert {node["op_type"] for node in document["nodes"]} == {"Abs", "Neg"}
    assert "Abs-13" in cli("explain", nested)[1]


def test_explain_shows_regions(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    offer(create=lambda options, context: Fusing())
    code, document = as_json(cli("explain", model, "--providers", "acme", "--json"))
    assert code == 0
    assert document["summary"]["regions"] == 1
    (region,) = document["regions"]
    assert region["nodes"] == ["plus", "positive"]
    assert {node["region"] for node in document["nodes"]} == {region["name"]}
    out = cli("explain", model, "--providers", "acme")[1]
    assert "1 fused region" in out
    assert ["1", ACME, "Add-14,", "Relu-14"] in [line.split() for line in out.splitlines()]
    full = cli("explain", model, "--providers", "acme", "--all")[1]
    assert [region["name"], ACME, "2"] in [line.split() for line in full.splitlines()]


def test_explain_draws_the_placement(cli: Cli, tmp_path: Path, offer: Callable[..., None]) -> None:
    offer()
    nodes = [
        helper.make_node("Add", ["x", "x"], ["s"], '<!--TITLE--> "plus" <b>'),
        helper.make_node("Relu", ["s"], ["y"], "positive"),
    ]
    model = write(tmp_path / "model.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    page = tmp_path / "placement.html"
    code, out, _ = cli("explain", model, "--providers", "acme,cpu", "--html", str(page))
    text = page.read_text(encoding="utf-8")
    squares = re.findall(r'<i class="(.*?)" title="(.*?)">', text, re.DOTALL)
    assert (code, out.splitlines()[-1]) == (0, f"written to {page}")
    assert [tone for tone, _ in squares] == ["p1", "p0"]
    assert html.unescape(squares[0][1]) == f'<!--TITLE--> "plus" <b> (Add-14)\n{CPU}\nnot {ACME}: Acme cannot add'
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|<!--", text)


def test_explain_draws_regions_together(cli: Cli, tmp_path: Path, model: str, offer: Callable[..., None]) -> None:
    offer(create=lambda options, context: Fusing())
    page = tmp_path / "placement.html"
    assert as_json(cli("explain", model, "--providers", "acme", "--html", str(page), "--json"))[0] == 0
    assert re.search(r"<span class=region>(<i [^>]*></i>){2}</span>", page.read_text(encoding="utf-8"))


def test_a_page_that_cannot_be_written(cli: Cli, tmp_path: Path, model: str) -> None:
    code, error = error_of(cli("explain", model, "--html", str(tmp_path / "no" / "page.html"), "--json"))
    assert code == 1
    assert error["message"].startswith("--html ")


def test_explain_names_what_the_optimizer_removed(cli: Cli, tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"], "noop"), helper.make_node("Neg", ["same"], ["y"], "neg")]
    model = write(tmp_path / "noop.onnx", nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    assert "Removed by the optimizer" in cli("explain", model)[1]
    assert "noop" in cli("explain", model, "--all")[1]


@pytest.mark.parametrize("command", ["explain", "run"])
def test_a_named_provider_that_cannot_be_used(cli: Cli, model: str, offer: Callable[..., None], command: str) -> None:
    offer(check=lambda: Unavailable("no Acme card", "buy one"))
    code, error = error_of(cli(command, model, "--providers", "acme,cpu", "--json"))
    assert (code, error["type"], error["hint"]) == (3, "ProviderLookupError", "buy one")
    assert "no Acme card" in error["message"]
    code, error = error_of(cli(command, model, "--providers", "azure", "--json"))
    assert code == 3
    assert "AzureExecutionProvider is not installed" in error["message"]
    assert error_of(cli(command, model, "--providers", "nonsense", "--json"))[0] == 3


def test_a_named_provider_that_cannot_be_created(cli: Cli, model: str, offer: Callable[..., None]) -> None:
    def create(options: Any, context: Any) -> ExecutionProvider:
        raise OSError("the card is on fire")

    offer(create=create)
    code, error = error_of(cli("run", model, "--providers", "acme", "--json"))
    assert code == 3
    assert "the card is on fire" in error["message"]


@pytest.mark.parametrize("option", ["cpu.nothing=1", "reference.float64=maybe", "acme.x=1", "cuda.device_id=0"])
def test_options_are_checked(cli: Cli, model: str, option: str) -> None:
    code, error = error_of(cli("run", model, "--providers", "cpu,reference", "--option", option, "--json"))
    assert (code, error["type"]) == (2, "UsageError")


def test_a_provider_named_twice(cli: Cli, model: str) -> None:
    assert error_of(cli("run", model, "--providers", "cpu,CPUExecutionProvider", "--json"))[0] == 2


def test_models_that_cannot_be_loaded(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "noise.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    assert error_of(cli("explain", "noise.onnx", "--json"))[1]["type"] == "InvalidProtobuf"
    unknown = write(
        tmp_path / "unknown.onnx",
        [helper.make_node("Frobnicate", ["x"], ["y"])],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [1])],
    )
    code, error = error_of(cli("explain", unknown, "--json"))
    assert code == 1
    assert "Frobnicate" in error["message"]
