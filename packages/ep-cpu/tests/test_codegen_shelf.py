"""Programs that are kept on disk: a later session runs what the first one lowered, bit by bit, and lowers what is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug as ort
from onnxplug.contract.cache import DiskCache
from onnxplug.graph.sources import Stored
from onnxplug.load.origin import FileOrigin
from onnxplug.session import pipeline, recall
from onnxplug_ep_cpu.codegen import claimed, lowering, shelf
from onnxplug_ep_cpu.codegen.compiler import compiler
from onnxplug_ep_cpu.codegen.lower.unsupported import Unsupported
from onnxplug_ep_cpu.codegen.target import host_target

HEAD = '<ir_version: 9, opset_import: ["": 21]>\n'
RNG = np.random.default_rng(3)
NET = """net (float[N, 3, 16, 16] x) => (float[N, 5] y, float[N, 8, 1, 1] g) {
  c = Conv <pads = [1, 1, 1, 1]> (x, w, b)
  r = Relu (c)
  g = GlobalAveragePool (r)
  f = Flatten (g)
  y = Gemm (f, v, d)
}"""
IMAGES = "net (float[1, 64, H, W] x) => (float[1, 64, H, W] y) { c = Conv <pads = [1, 1, 1, 1]> (x, w) y = Relu (c) }"
WEIGHTS = {"w": (8, 3, 3, 3), "b": (8,), "v": (8, 5), "d": (5,)}
BRANCHES = """net (float[1, 64] x) => (float[1, 64] y, float[1, 64] z) {
  m = MatMul (x, w)
  y = Tanh (m)
  n = MatMul (x, v)
  z = Tanh (n)
}"""
LOOP = """net (float[4] x, int64 trips, bool go) => (float[4] y, float[T, 4] all) {
  y, all = Loop (trips, go, x) <body = step (int64 i, bool c, float[4] h) => (bool c2, float[4] h2, float[4] e) {
    c2 = Identity (c)
    t = Tanh (h)
    h2 = Mul (t, k)
    e = Exp (h2)
  }>
}"""


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders of this test's own, and graphs that are known again."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pipeline, "shelf", recall.shelf)
    claimed.cache.cache_clear()
    yield
    claimed.cache.cache_clear()


def model(text: str, weights: dict[str, tuple[int, ...]]) -> bytes:
    made = onnx.parser.parse_model(HEAD + text)
    for name, shape in weights.items():
        array = RNG.standard_normal(shape, np.float32)
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    content: bytes = made.SerializeToString()
    return content


def session(content: bytes, config: dict[str, str] | None = None, **options: Any) -> ort.InferenceSession:
    settings = ort.SessionOptions()
    for name, value in options.items():
        setattr(settings, name, value)
    for name, value in (config or {}).items():
        settings.add_session_config_entry(name, value)
    return ort.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of regions that are lowered from here on."""
    names: list[str] = []
    real = lowering.lowered

    def noting(prepared: Any, *rest: Any) -> Any:
        names.append(prepared.region.name)
        return real(prepared, *rest)

    monkeypatch.setattr(lowering, "lowered", noting)
    return names


def feed(count: int) -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal((count, 3, 16, 16), np.float32)}


@pytest.mark.parametrize("threads", [1, 2])
def test_the_second_session_runs_the_first_ones_program(lowered: list[str], threads: int) -> None:
    content, x = model(NET, WEIGHTS), feed(2)
    first = session(content, intra_op_num_threads=threads)
    wanted = first.run(None, x)
    assert len(lowered) == 1
    second = session(content, intra_op_num_threads=threads)
    for got, want in zip(second.run(None, x), wanted, strict=True):
        assert got.tobytes() == want.tobytes()
    assert len(lowered) == 1
    assert second.explain().regions == first.explain().regions
    assert second.placement() == first.placement()


def test_programs_for_several_shapes_share_the_file_of_their_constants(
    tmp_path: Path, lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "net (float[N, 64] x) => (float[N, 64] y) { m = MatMul (x, w) t = Tanh (m) y = MatMul (t, v) }"
    content = model(text, {"w": (64, 64), "v": (64, 64)})
    batches = [{"x": RNG.standard_normal((n, 64), np.float32)} for n in (2, 3, 4)]
    first = session(content)
    wanted = [first.run(None, x) for x in batches]
    assert len(list(tmp_path.rglob(f"*{shelf._CONSTANTS}*"))) == 1
    lowered.clear()
    read: list[str] = []
    arrays = DiskCache.get_arrays
    monkeypatch.setattr(DiskCache, "get_arrays", lambda self, name, *a: (read.append(name), arrays(self, name, *a))[1])
    second = session(content)
    for x, want in zip(batches, wanted, strict=True):
        assert [y.tobytes() for y in second.run(None, x)] == [y.tobytes() for y in want]
    assert not lowered and len(read) == 1


def test_weights_are_written_once_for_images_of_several_sizes(tmp_path: Path, lowered: list[str]) -> None:
    content = model(IMAGES, {"w": (64, 64, 3, 3)})
    pictures = [{"x": RNG.standard_normal((1, 64, n, n + 1), np.float32)} for n in (20, 24, 29)]
    first = session(content)
    wanted = [first.run(None, x) for x in pictures]
    files = sorted(path.stat().st_size for path in tmp_path.rglob(f"*{shelf._CONSTANTS}*"))
    assert len(files) == 3 and sum(files[:-1]) < 64 * 64 * 9 * 4 < files[-1]
    lowered.clear()
    for order in (pictures, pictures[::-1]):
        second = session(content)
        found = {x["x"].shape: second.run(None, x)[0].tobytes() for x in order}
        assert [found[y.shape] for (y,) in wanted] == [y.tobytes() for (y,) in wanted]
    assert not lowered


def test_processes_that_begin_with_other_signatures_do_not_spoil_each_others_files(
    tmp_path: Path, lowered: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    content = model(IMAGES, {"w": (64, 64, 3, 3)})
    pictures = [{"x": RNG.standard_normal((1, 64, n, n + 1), np.float32)} for n in (20, 24)]
    one, other = session(content), session(content)
    for x, z in zip(pictures, pictures[::-1], strict=True):
        one.run(None, x)
        other.run(None, z)
    lowered.clear()
    third = session(content)
    for x in pictures:
        third.run(None, x)
    assert not lowered and "damaged" not in caplog.text


def test_other_shapes_are_lowered(lowered: list[str]) -> None:
    content = model(NET, WEIGHTS)
    batches = [feed(n) for n in (1, 2, 3, 5)]
    first = session(content, {"ep.cpu.codegen": "0"})
    session(content).run(None, batches[0])
    lowered.clear()
    second = session(content)
    for x in batches:
        for got, want in zip(second.run(None, x), first.run(None, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert lowered


@pytest.mark.parametrize(
    "other",
    [{"config": {"ep.cpu.winograd": "0"}}, {"config": {"ep.cpu.target": "generic"}}, {"intra_op_num_threads": 3}],
)
def test_another_way_to_compute_is_another_program(lowered: list[str], other: dict[str, Any]) -> None:
    content, x = model(NET, WEIGHTS), feed(1)
    session(content).run(None, x)
    session(content, **other).run(None, x)
    assert len(lowered) == 2


@pytest.mark.parametrize("entry", [("ep.cpu.tune", "1"), ("ep.cpu.winograd_memory", "8")])
def test_what_depends_on_more_than_the_region_is_not_kept(lowered: list[str], entry: tuple[str, str]) -> None:
    content, x = model(NET, WEIGHTS), feed(1)
    for _ in range(2):
        session(content, dict([entry])).run(None, x)
    assert len(lowered) == 2


def test_regions_of_one_form_have_programs_of_their_own(lowered: list[str]) -> None:
    """Constants as large as these do not count in a region's name."""
    content = model(BRANCHES, {"w": (64, 64), "v": (64, 64)})
    x = {"x": RNG.standard_normal((1, 64), np.float32)}
    wanted = session(content).run(None, x)
    lowered.clear()
    got = session(content).run(None, x)
    assert not lowered
    assert [g.tobytes() for g in got] == [w.tobytes() for w in wanted]
    assert np.abs(got[0] - got[1]).max() > 0.01


def test_weights_are_not_read_beside_the_program(
    lowered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "_SETTLED", 0)
    (tmp_path / "m.onnx").write_bytes(model(BRANCHES.replace("64", "256"), {"w": (256, 256), "v": (256, 256)}))
    read, reads = FileOrigin.read, list[int]()
    monkeypatch.setattr(FileOrigin, "read", lambda self, at, nbytes: reads.append(nbytes) or read(self, at, nbytes))
    for _ in range(2):
        made = ort.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    assert len(lowered) == 2 and not reads
    weights = [v for n in made._engine.built.graph.nodes for v in n.inputs if v is not None and v.is_constant]
    assert len(weights) == 2 and all(value.was_released for value in weights)
    x = {"x": RNG.standard_normal((1, 256), np.float32)}
    for got, w in zip(made.run(None, x), weights, strict=True):
        np.testing.assert_allclose(got, np.tanh(x["x"] @ w.constant), rtol=1e-4, atol=1e-4)


def test_bodies_of_loops_are_known_again(lowered: list[str]) -> None:
    content = model(LOOP, {"k": (4,)})
    x = {"x": RNG.standard_normal(4, np.float32), "trips": np.array(5), "go": np.array(True)}
    wanted = session(content).run(None, x)
    assert lowered
    lowered.clear()
    got = session(content).run(None, x)
    assert not lowered
    assert [g.tobytes() for g in got] == [w.tobytes() for w in wanted]


SPELLED = """net (string[N, 2] x, float[N, 2] z) => (string[N, 2] y, float[N, 6] h, float[N, 2] e) {
  y = ai.onnx.ml.LabelEncoder <keys_floats = [0.0, 1.0, 2.0], values_strings = ["none", "one", "blü"], default_string = "many"> (z)
  a = ai.onnx.ml.LabelEncoder <keys_strings = ["red", "green"], values_floats = [1.5, 2.5], default_float = -1.0> (x)
  e = Neg (a)
  o = ai.onnx.ml.OneHotEncoder <cats_strings = ["green", "", "blü"]> (x)
  s = Constant <value_ints = [-1, 6]> ()
  f = Reshape (o, s)
  h = Neg (f)
}"""


def test_programs_that_read_and_make_strings_are_kept(lowered: list[str]) -> None:
    content = onnx.parser.parse_model(HEAD.replace("]", ', "ai.onnx.ml": 4]') + SPELLED).SerializeToString()
    feeds = [
        {"x": np.array(rows, object), "z": np.arange(2.0 * len(rows), dtype=np.float32).reshape(-1, 2)}
        for rows in ([["green", "red"]], [["blü", "other"], ["", "green"]])
    ]
    wanted = [session(content, {"ep.cpu.codegen": "0"}).run(None, feed) for feed in feeds]
    lowered.clear()
    for feed, want in zip(feeds, wanted, strict=True):
        for _ in range(2):
            for got, expected in zip(session(content).run(None, feed), want, strict=True):
                np.testing.assert_array_equal(got, expected, strict=True)
        assert lowered
        lowered.clear()
        session(content).run(None, feed)
        assert not lowered


def test_a_missing_kernel_is_made_again(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ONNXPLUG_CPU_TARGET", raising=False)
    content, x = model(NET, WEIGHTS), feed(1)
    wanted = session(content).run(None, x)
    made = compiler(host_target())
    monkeypatch.setattr(made, "_reached", {})
    monkeypatch.setattr(made, "_cache", DiskCache(Path("nowhere"), ".o", 1))
    got = session(content).run(None, x)
    assert len(lowered) == 2
    assert [g.tobytes() for g in got] == [w.tobytes() for w in wanted]


def test_a_program_of_many_constants_is_not_kept(lowered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "LARGEST", 64)
    content, x = model(NET, WEIGHTS), feed(1)
    for _ in range(2):
        session(content).run(None, x)
    assert len(lowered) == 2


WIDE = "net (float[N, 144] x) => (float[N, 96] y) { m = MatMul (x, w) t = Tanh (m) y = MatMul (t, v) }"
MATRICES = {"w": (144, 144), "v": (144, 96)}  # one that stays in memory in any case, and one that does not


def wide_feed(count: int) -> dict[str, np.ndarray]:
    return {"x": RNG.standard_normal((count, 144), np.float32)}


@pytest.mark.parametrize("threads", [1, 2])
def test_a_later_session_packs_many_weights_while_it_is_created(
    lowered: list[str], monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """For the signature that the earlier one began with; others give what they gave before, too."""
    monkeypatch.setattr(shelf, "LARGEST", 64)
    content, feeds = model(WIDE, MATRICES), [wide_feed(n) for n in (5, 1, 40, 5)]
    first = session(content, intra_op_num_threads=threads)
    assert not lowered
    wanted = [first.run(None, x) for x in feeds]
    lowered.clear()
    second = session(content, intra_op_num_threads=threads)
    assert len(lowered) == 1
    got = [second.run(None, feeds[0])]
    assert len(lowered) == 1
    got += [second.run(None, x) for x in feeds[1:]]
    assert [y.tobytes() for (y,) in got] == [y.tobytes() for (y,) in wanted]
    assert second.explain().regions == first.explain().regions


def test_the_latest_session_says_with_which_signature_the_next_one_begins(
    lowered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "LARGEST", 64)
    content = model(WIDE, MATRICES)
    for count in (2, 3):
        session(content).run(None, wide_feed(count))
    lowered.clear()
    last = session(content)
    last.run(None, wide_feed(3))
    assert len(lowered) == 1
    last.run(None, wide_feed(2))
    assert len(lowered) == 2


def test_a_signature_whose_program_is_no_longer_to_be_made_is_told_of_by_its_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shelf, "LARGEST", 64)
    content, x = model(WIDE, MATRICES), wide_feed(3)
    wanted = session(content).run(None, x)

    def refused(*_: Any) -> Any:
        raise Unsupported("a reason")

    monkeypatch.setattr(lowering, "lowered", refused)
    (got,) = session(content).run(None, x)
    np.testing.assert_allclose(got, wanted[0], rtol=1e-4, atol=1e-4)


def test_weights_that_are_packed_by_creation_are_looked_at_where_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall, "_SETTLED", 0)
    monkeypatch.setattr(shelf, "LARGEST", 64)
    path, read = tmp_path / "m.onnx", list[int]()
    path.write_bytes(model(WIDE, MATRICES))
    whole = Stored.read
    monkeypatch.setattr(Stored, "read", lambda self: (read.append(self.offset), whole(self))[1])
    made = [ort.InferenceSession(path, providers=["CPUExecutionProvider"]) for _ in range(2)]
    x = wide_feed(3)
    wanted = made[1].run(None, x)
    assert read  # nobody knew then what to pack them for
    read.clear()
    last = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    path.unlink()
    assert len(read) <= 1 and last.run(None, x)[0].tobytes() == wanted[0].tobytes()


def test_a_process_keeps_few_programs_of_a_region(tmp_path: Path) -> None:
    running = session(model(NET, WEIGHTS))
    for count in range(1, shelf.MOST + 4):
        running.run(None, feed(count))
    kept = [path.name.partition(".")[0] for path in (tmp_path / "regions").glob("*.region")]
    constants = [name for name in kept if name.endswith("-constants")]
    assert len(constants) <= shelf.MOST and len(kept) - len(constants) == shelf.MOST + 1  # and what is claimed


def test_a_program_whose_constants_are_damaged_is_made_again(
    lowered: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content, x = model(NET, WEIGHTS), feed(1)
    wanted = session(content).run(None, x)
    (path,) = (tmp_path / "regions").glob("*-constants.*")
    whole = path.read_bytes()
    for number, damaged in enumerate((whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]), 2):
        path.write_bytes(damaged)
        got = session(content).run(None, x)
        assert len(lowered) == number and "damaged" in caplog.text
        assert [g.tobytes() for g in got] == [w.tobytes() for w in wanted]
        caplog.clear()
    session(content).run(None, x)
    assert len(lowered) == number, "what was damaged is whole again"


def test_the_profile_names_the_same_nodes(tmp_path: Path) -> None:
    content, x = model(NET, WEIGHTS), feed(1)

    def kernels() -> list[Any]:
        made = session(content, enable_profiling=True, profile_file_prefix=str(tmp_path / "p"))
        made.run(None, x)
        events = json.loads(Path(made.end_profiling()).read_text(encoding="utf-8"))
        return [(e["args"]["op_name"], e["args"]["nodes"]) for e in events if e["cat"] == "Kernel"]

    first = kernels()
    assert first
    assert kernels() == first
