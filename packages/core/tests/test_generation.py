"""Nodes that generate text, as onnxruntime runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
from generation_models import CHANNELS, VOCABULARY, Weights, decoder, encoder, generating, gpt_decoder, tensor

import onnxplug as ort
from onnxplug.contract.errors import Fail, InvalidArgument, InvalidGraph

SCORED = ["sequences", "sequences_scores", "scores"]
TIMES = {
    "eos_token_id": 4, "translate_token_id": 5, "transcribe_token_id": 6, "start_of_lm_token_id": 7,
    "no_timestamps_token_id": 8, "beginning_timestamp_token_id": 9, "no_speech_token_id": 3,
}  # fmt: skip


def number(value: float) -> np.ndarray:
    return np.array([value], np.float32 if isinstance(value, float) else np.int32)


def bits(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.random(shape) < 0.8).astype(np.int32)


def run(runtime: Any, model: bytes, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(feeds))
    return found


def assert_like_onnxruntime(model: bytes, feeds: Mapping[str, np.ndarray]) -> None:
    """Tokens are the same, scores alike; what onnxruntime leaves unset after an early end is not looked at."""
    theirs = run(pytest.importorskip("onnxruntime"), model, feeds)
    ours = run(ort, model, feeds)
    for want, got in zip(theirs, ours, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        made = len(got) if got.ndim < 4 else next((t for t in range(len(got)) if not got[t].any()), len(got))
        np.testing.assert_allclose(got[:made], want[:made], rtol=1e-4, atol=1e-5)


def prompt(rng: np.random.Generator, **more: np.ndarray) -> dict[str, np.ndarray]:
    ids = rng.integers(0, VOCABULARY - 1, size=(int(rng.integers(1, 4)), int(rng.integers(1, 6)))).astype(np.int32)
    return {"input_ids": ids, "max_length": number(ids.shape[1] + int(rng.integers(2, 9))), **more}


def options(rng: np.random.Generator, feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    """Some of the masks and penalties that all operators take."""
    batch = feeds["input_ids"].shape[0]
    for name, make in {
        "min_length": lambda: number(int(feeds["max_length"][0]) - 1),
        "repetition_penalty": lambda: number(float(rng.choice([0.7, 1.5]))),
        "vocab_mask": lambda: bits(rng, VOCABULARY),
        "prefix_vocab_mask": lambda: bits(rng, batch, VOCABULARY),
    }.items():
        if rng.random() < 0.3:
            feeds[name] = make()
    return {"no_repeat_ngram_size": int(rng.integers(1, 4))} if rng.random() < 0.3 else {}


def beams(rng: np.random.Generator) -> dict[str, np.ndarray]:
    count = int(rng.integers(1, 5))
    return {
        "min_length": number(0),
        "num_beams": number(count),
        "num_return_sequences": number(int(rng.integers(1, count + 1))),
        "length_penalty": number(float(rng.choice([0.5, 1.0, 2.0]))),
    }


@pytest.mark.parametrize("seed", range(12))
def test_greedy_search(seed: int) -> None:
    rng, weights = np.random.default_rng(seed), Weights(seed)
    feeds = prompt(rng)
    attributes = {"eos_token_id": VOCABULARY - 1, "pad_token_id": int(feeds["input_ids"][0, 0]), **options(rng, feeds)}
    feeds["vocab_mask"] = np.arange(VOCABULARY) < VOCABULARY - 1  # it never ends
    feeds["vocab_mask"] = feeds["vocab_mask"].astype(np.int32)
    feeds["attention_mask"] = np.sort(bits(rng, *feeds["input_ids"].shape), axis=1)
    feeds["attention_mask"][:, -1] = 1
    graphs = {"decoder": gpt_decoder(weights), "init_decoder": gpt_decoder(weights, "first")}
    if seed % 2:
        del graphs["init_decoder"]
    assert_like_onnxruntime(generating("GreedySearch", graphs, weights, feeds, ["sequences"], **attributes), feeds)


@pytest.mark.parametrize("custom", [0, 1])
@pytest.mark.parametrize("seed", range(8))
def test_tokens_drawn_by_a_seed(seed: int, custom: int) -> None:
    rng, weights = np.random.default_rng(seed), Weights(seed)
    feeds = prompt(rng, seed=number(int(rng.integers(0, 1000))))
    attributes = {
        "eos_token_id": VOCABULARY - 1, "pad_token_id": 0, "custom": custom, "min_tokens_to_keep": seed % 3,
        "top_p": float(rng.choice([0.2, 0.6, 0.95])), "temperature": float(rng.choice([1.0, 3.0])), **options(rng, feeds),
    }  # fmt: skip
    feeds["vocab_mask"] = (np.arange(VOCABULARY) < VOCABULARY - 1).astype(np.int32)
    graphs = {"decoder": gpt_decoder(weights)}
    assert_like_onnxruntime(generating("Sampling", graphs, weights, feeds, ["sequences"], **attributes), feeds)


@pytest.mark.parametrize("seed", range(16))
def test_beams_of_a_decoder(seed: int) -> None:
    rng, weights = np.random.default_rng(seed), Weights(seed)
    feeds = prompt(rng, **beams(rng))
    ends = {"eos_token_id": int(rng.integers(0, VOCABULARY)), "pad_token_id": 3, "early_stopping": 1}
    graphs = {"decoder": gpt_decoder(weights), "init_decoder": gpt_decoder(weights, "first")}
    if seed % 2:
        del graphs["init_decoder"]
    attributes = ends | options(rng, feeds)
    assert_like_onnxruntime(generating("BeamSearch", graphs, weights, feeds, SCORED, **attributes), feeds)


@pytest.mark.parametrize("form", ["hidden", "bare", "whole", "without start"])
@pytest.mark.parametrize("seed", range(5))
def test_beams_of_encoder_and_decoder(seed: int, form: str) -> None:
    rng, weights = np.random.default_rng(seed), Weights(seed)
    feeds = prompt(rng, **beams(rng))
    feeds["max_length"] = number(int(rng.integers(4, 12)))
    ends = {"eos_token_id": 5, "pad_token_id": 3, "early_stopping": 1, "decoder_start_token_id": 2, "model_type": 1}
    attributes = ends | options(rng, feeds)
    if seed % 2:
        feeds["attention_mask"] = np.sort(bits(rng, *feeds["input_ids"].shape), axis=1)
    graphs = {
        "encoder": encoder(weights, starts=form != "without start"),
        "decoder": decoder(weights, hidden=form == "hidden", whole=form == "whole"),
    }
    assert_like_onnxruntime(generating("BeamSearch", graphs, weights, feeds, SCORED, **attributes), feeds)


def whisper(
    rng: np.random.Generator, op_type: str = "WhisperBeamSearch", outputs: list[str] = SCORED, **attributes: Any
) -> tuple[Callable[[Mapping[str, np.ndarray]], bytes], dict[str, np.ndarray]]:
    """What makes a model for feeds, and feeds. Each subgraph has its own weights."""
    feeds = {"input_ids": rng.normal(size=(2, CHANNELS, 7)).astype(np.float32), "max_length": number(11), **beams(rng)}
    feeds["decoder_input_ids"] = rng.integers(0, 5, size=(2, int(rng.integers(1, 4)))).astype(np.int32)
    told = {"pad_token_id": 2, "early_stopping": 1, "decoder_start_token_id": 1, "model_type": 2, **attributes}
    decoding = partial(decoder, crossed=bool(attributes.get("decoder_output_cross_qk", 0)))

    def model(feeds: Mapping[str, np.ndarray]) -> bytes:
        weights, graphs = Weights(7), {"encoder": encoder(Weights(0), True), "decoder": decoder(Weights(0), True)}
        for name, make in (("encoder", encoder), ("decoder", decoding)):
            graphs[name] = make(weights, True)
            graphs[name].initializer.extend(weights.taken())
        return generating(op_type, graphs, weights, feeds, outputs, **told)

    return model, feeds


@pytest.mark.parametrize("timed", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_beams_of_speech(seed: int, timed: int) -> None:
    rng = np.random.default_rng(seed)
    model, feeds = whisper(rng, **TIMES)
    feeds |= {"logits_processor": number(timed)} | ({"temperature": number(0.5)} if seed % 2 else {})
    assert_like_onnxruntime(model(feeds), feeds)


def test_speech_by_the_older_operator() -> None:
    model, feeds = whisper(np.random.default_rng(0), "BeamSearch", eos_token_id=4)
    assert_like_onnxruntime(model(feeds), feeds)


def test_whether_anybody_speaks() -> None:
    """onnxruntime's CPU provider leaves this output unset."""
    rng = np.random.default_rng(1)
    model, feeds = whisper(rng, outputs=["sequences", "scores", "non_speech_probs"], **TIMES)
    _, scores, silence = run(ort, model(feeds), feeds)
    np.testing.assert_allclose(silence, np.exp(scores[0, :, 0, 3]), rtol=1e-5)
    model, feeds = whisper(rng, outputs=["sequences", "non_speech_probs"], eos_token_id=4)
    with pytest.raises(InvalidArgument, match="no_speech_token_id"):
        run(ort, model(feeds), feeds)


def searched(
    feeds: Mapping[str, np.ndarray],
    op_type: str = "BeamSearch",
    outputs: list[str] = SCORED,
    shared: bool = False,
    **more: Any,
) -> list[Any]:
    weights = Weights(99)
    attributes = {"eos_token_id": 3, "pad_token_id": 4, **more}
    graphs = {"decoder": gpt_decoder(weights, shared=shared)}
    return run(ort, generating(op_type, graphs, weights, feeds, outputs, **attributes), feeds)


def beamed(ids: list[list[int]], **more: np.ndarray) -> dict[str, np.ndarray]:
    feeds = {"input_ids": np.array(ids, np.int32), "max_length": number(11), "num_beams": number(3)}
    return feeds | {"num_return_sequences": number(2), **more}


@pytest.mark.parametrize("op_type", ["BeamSearch", "GreedySearch"])
def test_past_and_present_in_one_buffer(op_type: str) -> None:
    """onnxruntime has such attention on GPUs alone."""
    feeds = beamed([[1, 2, 7], [5, 6, 7]])
    if op_type == "GreedySearch":
        feeds = {name: feeds[name] for name in ("input_ids", "max_length")}
    outputs = ["sequences", "sequences_scores"][: 1 + (op_type == "BeamSearch")]
    for want, got in zip(*(searched(feeds, op_type, outputs, shared) for shared in (False, True)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("starts", [True, False])
def test_a_buffer_in_which_beams_have_pasts_of_others(starts: bool) -> None:
    """onnxruntime's CPU provider leaves ``cache_indirection`` unset."""
    feeds = beamed([[1, 2, 7], [5, 6, 7]])
    told = {"eos_token_id": 3, "pad_token_id": 4, "decoder_start_token_id": 2, "model_type": 1}
    found = []
    for shared in (False, True):
        weights = Weights(8)
        graphs = {"encoder": encoder(weights, starts=starts), "decoder": decoder(weights, hidden=starts, shared=shared)}
        found.append(run(ort, generating("BeamSearch", graphs, weights, feeds, SCORED, **told), feeds))
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_prompt_ends_by_its_own_scores() -> None:
    """onnxruntime compares a later prompt's hypotheses with scores of the one before it."""
    prompts = [[12, 9], [8, 16], [16, 10], [1, 2], [7, 7]]
    told = {"length_penalty": number(2.0)}
    together = searched(beamed(prompts, **told))
    for index, one in enumerate(prompts):
        alone = searched(beamed([one], **told))
        np.testing.assert_array_equal(together[0][index], alone[0][0])
        np.testing.assert_allclose(together[1][index], alone[1][0], rtol=1e-5)


def test_what_is_present_scores_less() -> None:
    """onnxruntime's CPU provider takes all of the penalty from one score."""
    feeds = {"input_ids": np.array([[1, 2]], np.int32), "max_length": number(3), "seed": number(1)}
    settings = {"op_type": "Sampling", "outputs": ["sequences", "filtered_logits"], "top_p": 0.01, "custom": 1}
    likeliest = int(searched(feeds, **settings)[0][0, 2])
    present = np.zeros((1, VOCABULARY), np.int32)
    present[0, likeliest] = 1
    sequences, filtered = searched({**feeds, "presence_mask": present}, **settings, presence_penalty=100.0)
    assert sequences[0, 2] != likeliest
    assert np.count_nonzero(filtered > -1e19) == 1


def test_drawing_goes_on_after_the_end_of_one() -> None:
    feeds = {"input_ids": np.array([[1, 2], [5, 6]], np.int32), "max_length": number(9)}
    (plain,) = searched(feeds, "GreedySearch", ["sequences"])
    end = int(plain[0, 3])
    (ended,) = searched(feeds, "GreedySearch", ["sequences"], eos_token_id=end)
    assert ended[0].tolist() == [*plain[0, : plain[0].tolist().index(end, 2)].tolist(), *[4] * 9][:9]


def test_the_core_runs_the_loop_and_providers_what_is_in_it() -> None:
    weights, feeds = Weights(99), beamed([[1, 2, 7]])
    graphs = {"decoder": gpt_decoder(weights)}
    model = generating("BeamSearch", graphs, weights, feeds, ["sequences"], eos_token_id=3, pad_token_id=4)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert set(session.placement().values()) == {"CPUExecutionProvider"}
    assert any("Attention" in name for name in session.placement())
    first = session.run(None, feeds)[0]
    np.testing.assert_array_equal(session.run(None, feeds)[0], first)
    longer = {**feeds, "max_length": number(15)}
    assert session.run(None, longer)[0].shape == (1, 2, 15)
    stopped = ort.RunOptions()
    stopped.terminate = True
    with pytest.raises(Fail, match="terminate"):
        session.run(None, feeds, stopped)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"max_length": number(3)}, "max_length"),
        ({"max_length": number(4097)}, "max_length"),
        ({"min_length": number(11)}, "min_length"),
        ({"num_beams": number(0)}, "num_beams"),
        ({"num_beams": number(1)}, "num_return_sequences"),
        ({"num_beams": np.array([1, 2], np.int32)}, "num_beams"),
        ({"repetition_penalty": number(0.0)}, "repetition_penalty"),
        ({"vocab_mask": np.ones(5, np.int32)}, "vocab_mask"),
        ({"prefix_vocab_mask": np.ones((2, VOCABULARY), np.int32)}, "prefix_vocab_mask"),
        ({"attention_mask": np.ones((1, 2), np.int32)}, "attention_mask"),
        ({"decoder_input_ids": np.ones((1, 1), np.int32)}, "decoder_input_ids"),
        ({"input_ids": np.ones((1, 0), np.int32)}, "to start with"),
        ({"input_ids": np.ones((0, 3), np.int32)}, "input_ids"),
    ],
)
def test_inputs_that_do_not_fit(change: dict[str, np.ndarray], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        searched(beamed([[1, 2, 7]]) | change)


def longer(graph: Any) -> Any:
    graph.input.extend(tensor(name, 1, 1) for name in "ab")
    return graph


def vague(graph: Any) -> Any:
    graph.input[3].type.tensor_type.shape.dim[4].dim_param = "size"
    return graph


@pytest.mark.parametrize(
    ("graphs", "attributes", "error", "why"),
    [
        ({}, {}, InvalidGraph, "decoder"),
        ({"decoder": gpt_decoder}, {"model_type": 3}, Fail, "model_type 3"),
        ({"decoder": gpt_decoder}, {"model_type": 1}, Fail, "needs an encoder"),
        ({"decoder": gpt_decoder}, {"eos_token_id": -1}, Fail, "has eos_token_id -1"),
        ({"decoder": lambda w: longer(gpt_decoder(w))}, {}, Fail, "inputs and"),
        ({"decoder": lambda w: vague(gpt_decoder(w))}, {}, Fail, "heads and their size"),
        ({"decoder": gpt_decoder, "init_decoder": decoder}, {}, Fail, "init_decoder"),
        ({"decoder": decoder, "encoder": lambda w: encoder(w, starts=False)}, {"model_type": 1}, Fail, "asks for what"),
    ],
)
def test_models_that_do_not_fit(graphs: Any, attributes: Any, error: type[Exception], why: str) -> None:
    weights, feeds = Weights(1), beamed([[1, 2, 7]])
    ends = {"eos_token_id": 3, "pad_token_id": 4}
    made = {name: make(weights) for name, make in graphs.items()}
    with pytest.raises(error, match=why):
        run(ort, generating("BeamSearch", made, weights, feeds, ["sequences"], **ends | attributes), feeds)


@pytest.mark.parametrize("seed", range(4))
def test_what_each_token_heard(seed: int) -> None:
    """onnxruntime computes this on GPUs alone: beams are compared with a single one to which their tokens are told."""
    rng = np.random.default_rng(seed)
    made, feeds = whisper(rng, outputs=["sequences", "cross_qk"], **TIMES, decoder_output_cross_qk=1)
    feeds |= {"num_beams": number(3), "num_return_sequences": number(2)}
    start, heads = feeds["decoder_input_ids"].shape[1], np.array([[1, 0], [0, 1], [1, 1]], np.int32)
    sequences, every = run(ort, made(feeds), feeds)
    assert every.shape == (2, 2, 4, every.shape[3], 7) and every.any()
    feeds["cross_qk_layer_head"] = heads
    chosen = run(ort, made(feeds), feeds)[1]
    np.testing.assert_array_equal(chosen, every[:, :, [2, 1, 3]])
    feeds |= {"num_beams": number(1), "num_return_sequences": number(1)}
    for at in range(2):
        told = sequences[:, at, start:]
        ended = np.logical_and.accumulate(told[:, ::-1] == 2, axis=1)[:, ::-1]
        feeds["extra_decoding_ids"] = np.where(ended, -1, told).astype(np.int32)
        again, alone = run(ort, made(feeds), feeds)
        for prompt, count in enumerate((~ended).sum(axis=1)):
            assert again[prompt, 0, start : start + count].tolist() == told[prompt, :count].tolist()
            known = min(count, alone.shape[3], chosen.shape[3])
            np.testing.assert_allclose(chosen[prompt, at, :, :known], alone[prompt, 0, :, :known], rtol=1e-5, atol=1e-5)
            assert not chosen[prompt, at, :, count:].any()


def test_what_does_not_fit_speech() -> None:
    rng = np.random.default_rng(0)
    model, feeds = whisper(rng, outputs=["sequences", "cross_qk"], **TIMES)
    with pytest.raises(Fail, match="decoder_output_cross_qk is 0"):
        run(ort, model(feeds), feeds)
    model, feeds = whisper(rng, outputs=["sequences", "cross_qk"], **TIMES, decoder_output_cross_qk=1)
    for heads, why in (([[2, 0]], "beyond 2 layers of 2"), ([[0]], "expected is")):
        feeds["cross_qk_layer_head"] = np.array(heads, np.int32)
        with pytest.raises(InvalidArgument, match=why):
            run(ort, model(feeds), feeds)
    model, feeds = whisper(rng, outputs=["sequences"], **TIMES)
    for extra, why in (([[1]], "expected is"), ([[1], [99]], "99, which is not among 17 tokens")):
        feeds["extra_decoding_ids"] = np.array(extra, np.int32)
        with pytest.raises(InvalidArgument, match=why):
            run(ort, model(feeds), feeds)
    model, feeds = whisper(rng, outputs=["sequences"], **TIMES | {"beginning_timestamp_token_id": 17})
    feeds["logits_processor"] = number(1)
    with pytest.raises(InvalidArgument, match="beginning_timestamp"):
        run(ort, model(feeds), feeds)
