"""The OpenVINO server on the real model: the right tokens, one event a step, errors that end."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import orjson
import psutil
import pytest

from speedstudy.client.counters import read_counters
from speedstudy.convert import hf_to_openvino
from speedstudy.dialects.vllm import Vllm
from speedstudy.engines.openvino_protocol import draft_length
from speedstudy.engines.process import free_port

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parent.parent
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = 48
START_TIMEOUT_S = 120
REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=240)
QUESTIONS = {
    "gravity": "What is gravity?",
    "haiku": "Write a haiku about rain.",
    "capital": "What is the capital of France?",
    "recursion": "Explain recursion to a child.",
    "primes": "List three prime numbers above 100.",
    "reverse": "Write a Python function that reverses a string.",
    "translate": "Translate 'good morning' into French.",
    "romeo": "Summarise the plot of Romeo and Juliet.",
    "sql": "Write SQL to count the rows of table users.",
    "hamlet": "Who wrote Hamlet?",
    "pancakes": "Give me a recipe for pancakes.",
    "root-two": "Prove that the square root of two is irrational.",
    "tides": "What causes tides?",
    "yes": "Say the word yes ten times.",
    "planets": "Name the planets in order.",
    "dragon": "Write a short story about a dragon that repeats itself.",
}


@pytest.fixture(scope="module")
def hf_dir(model_folders) -> Path:
    return model_folders["hf"]


@pytest.fixture(scope="module")
def ov_dir(model_folders) -> Path:
    return model_folders["openvino"]


@pytest.fixture(scope="module")
def prompts(hf_dir) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(hf_dir)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True
        )["input_ids"]
        for question in QUESTIONS.values()
    ]


class Server:
    """A started server and what one asks of it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    async def wait_ready(self) -> None:
        async with aiohttp.ClientSession() as session, asyncio.timeout(START_TIMEOUT_S):
            while True:
                assert self.process.poll() is None, "the server ended while starting"
                try:
                    async with session.get(f"{self.url}/health") as answer:
                        assert answer.status == 200
                        return
                except aiohttp.ClientConnectorError:
                    await asyncio.sleep(0.1)

    async def events(self, session: aiohttp.ClientSession, prompt: list[int], **fields) -> list:
        """The decoded events of one streamed reply, without the end mark."""
        body = request_body(prompt, **fields)
        async with session.post(f"{self.url}/v1/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            lines = [line.strip() async for line in answer.content if line.strip()]
        assert lines[-1] == b"data: [DONE]"
        return [orjson.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]

    async def _all(self, prompts: list[list[int]], concurrency: int, fields: dict) -> list[list]:
        slots = asyncio.Semaphore(concurrency)
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session:

            async def one(prompt: list[int]) -> list:
                async with slots:
                    return await self.events(session, prompt, **fields)

            return await asyncio.gather(*(one(prompt) for prompt in prompts))

    def run(self, prompts: list[list[int]], concurrency: int, **fields) -> list[list]:
        return asyncio.run(self._all(prompts, concurrency, fields))

    def counters(self) -> dict:
        async def get() -> str:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self.url}/metrics") as answer,
            ):
                return await answer.text()

        return read_counters(asyncio.run(get()), Vllm.counter_names)


def request_body(prompt: list[int], **fields) -> dict:
    return {
        "model": "m",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
        **fields,
    }


@contextmanager
def serving(ov_dir: Path, *arguments: str) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "speedstudy.engines.openvino_server", "--port", str(port)]
    command += ["--model", str(ov_dir), "--served-model-name", "m", *arguments]
    process = subprocess.Popen(command)
    try:
        server = Server(process, port)
        asyncio.run(server.wait_ready())
        yield server
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def ngram(ov_dir) -> Iterator[Server]:
    with serving(ov_dir, "--method", "ngram", "--num-draft-tokens", "3") as server:
        yield server


HEAD = ROOT / "models" / "smollm2-eagle3"
K = 3  # as the head was trained


@pytest.fixture(scope="module")
def head_dir(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("eagle3") / "openvino"
    return hf_to_openvino(HEAD, out)


@pytest.fixture(scope="module")
def eagle3(ov_dir, head_dir) -> Iterator[Server]:
    arguments = ("--method", "eagle3", "--draft-model", str(head_dir))
    with serving(ov_dir, *arguments, "--num-draft-tokens", str(K)) as server:
        yield server


@pytest.fixture(scope="module")
def plain_ids(ov_dir, prompts) -> list[list[int]]:
    with serving(ov_dir) as server:
        replies = server.run(prompts, 8)
    assert all(reply[-1]["metrics"] is None for reply in replies)
    assert all(size == 1 for reply in replies for size in map(len, steps(reply)))
    return [ids(reply) for reply in replies]


def steps(reply: list) -> list[list[int]]:
    return [choice["token_ids"] for event in reply for choice in event["choices"]]


def ids(reply: list) -> list[int]:
    return [token for step in steps(reply) for token in step]


def test_greedy_tokens_are_those_of_transformers(hf_dir, prompts, plain_ids):
    """Each token is transformers' fp32 argmax after the ones before it: greedy decoding, by
    induction, in one pass a prompt.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(hf_dir, dtype=torch.float32)
    for prompt, seen in list(zip(prompts, plain_ids, strict=True))[:8]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([prompt + seen])).logits[0]
        assert logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist() == seen


def test_prompt_lookup_changes_no_token(ngram, prompts, plain_ids):
    replies = ngram.run(prompts, 1)
    for name, reply, plain in zip(QUESTIONS, replies, plain_ids, strict=True):
        assert ids(reply) == plain, name


def test_one_event_per_verify_step_at_concurrency_8(ngram, prompts, plain_ids):
    replies = ngram.run(prompts, 8)
    assert [ids(reply) for reply in replies] == plain_ids
    for reply in replies:
        sizes = [len(step) for step in steps(reply)]
        metrics = reply[-1]["metrics"]["speculative_decoding"]
        assert reply[-1]["usage"]["completion_tokens"] == sum(sizes) == TOKENS
        assert sizes[0] == 1
        assert max(sizes) <= 4
        assert len(sizes) == 1 + metrics["num_spec_steps"]
        assert metrics["per_step_accepted"] == [size - 1 for size in sizes[1:]]
        assert reply[-2]["choices"][0]["finish_reason"] == "length"
    assert any(len(step) > 1 for reply in replies for step in steps(reply))
    assert [len(steps(reply)) for reply in replies] == [
        len(steps(reply)) for reply in ngram.run(prompts, 1)
    ]


def told(reply: list) -> dict:
    return reply[-1]["metrics"]["speculative_decoding"]


def drafts_of_stream(reply: list) -> list[int]:
    """What the head must have drafted in each verify step, from the sizes of the blocks."""
    sizes = [len(step) for step in steps(reply)]
    assert sizes[0] == 1
    return [draft_length(K, TOKENS, sum(sizes[:index])) for index in range(1, len(sizes))]


@pytest.fixture(scope="module")
def eagle3_replies(eagle3, prompts) -> dict[int, tuple[list[list], dict]]:
    """Replies by concurrency, each with what the server's counters grew by meanwhile."""
    replies = {}
    for concurrency in (1, 4):
        before = eagle3.counters()
        given = eagle3.run(prompts, concurrency)
        after = eagle3.counters()
        totals = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
        grown = {name: after[name] - (before[name] or 0) for name in totals}
        at = "num_accepted_tokens_per_pos"
        grown[at] = [new - old for new, old in zip(after[at], before[at], strict=True)]
        replies[concurrency] = (given, grown)
    return replies


@pytest.mark.parametrize("concurrency", [1, 4])
def test_an_eagle3_head_changes_no_token(eagle3_replies, plain_ids, concurrency):
    replies, _ = eagle3_replies[concurrency]
    for name, reply, plain in zip(QUESTIONS, replies, plain_ids, strict=True):
        assert ids(reply) == plain, name


@pytest.mark.parametrize("concurrency", [1, 4])
def test_stream_replies_and_counters_agree_on_acceptance(eagle3_replies, concurrency):
    replies, counters = eagle3_replies[concurrency]
    for reply in replies:
        drafted = drafts_of_stream(reply)
        accepted = [len(step) - 1 for step in steps(reply)[1:]]
        # Only the step for the very last token drafts nothing, and is not listed.
        listed = [pair for pair in zip(drafted, accepted, strict=True) if pair[0]]
        assert told(reply)["per_step_drafted"] == [length for length, _ in listed]
        assert told(reply)["per_step_accepted"] == [count for _, count in listed]
        assert told(reply)["num_spec_steps"] == len(listed)
    everything = [told(reply) for reply in replies]
    for counter, name in (
        ("num_drafts", "num_spec_steps"),
        ("num_draft_tokens", "num_draft_tokens"),
        ("num_accepted_tokens", "num_accepted_draft_tokens"),
    ):
        assert counters[counter] == sum(reply[name] for reply in everything)
    accepted = [count for reply in everything for count in reply["per_step_accepted"]]
    assert counters["num_accepted_tokens_per_pos"] == [
        sum(count > position for count in accepted) for position in range(K)
    ]


def test_the_head_is_worth_its_place(eagle3_replies):
    """As many tokens a step at either concurrency, and those that vLLM gets with it: 1.3 to 1.6."""
    lengths = []
    for replies, _ in eagle3_replies.values():
        verified = sum(len(steps(reply)) - 1 for reply in replies)
        lengths.append(sum(len(ids(reply)) - 1 for reply in replies) / verified)
    assert lengths[0] == lengths[1]
    assert lengths[0] > 1.3


def test_the_engine_counts_the_drafts_that_we_derive(ov_dir, head_dir, prompts, eagle3_replies):
    """GenAI's own counters, which only ``generate`` gives; they leave out each last step."""
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    exact = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = 64
    head = genai.draft_model(str(head_dir), "CPU", scheduler_config=scheduler, **exact)
    pipeline = genai.ContinuousBatchingPipeline(
        str(ov_dir), scheduler, "CPU", {**exact, "draft_model": head}
    )
    config = genai.GenerationConfig()
    config.max_new_tokens, config.num_assistant_tokens, config.ignore_eos = TOKENS, K, True
    config.eos_token_id, config.stop_token_ids = 49152, {49152}  # none; else it ends drafts
    replies, _ = eagle3_replies[1]
    for prompt, reply in list(zip(prompts, replies, strict=True))[:4]:
        tensor = ov.Tensor(np.array([prompt], dtype=np.int64))
        (result,) = pipeline.generate([tensor], [config])
        counted = result.extended_perf_metrics
        drafted, accepted = drafts_of_stream(reply), [len(step) - 1 for step in steps(reply)[1:]]
        assert counted.get_num_draft_tokens() == sum(drafted[:-1])
        assert counted.get_num_accepted_tokens() == sum(accepted[:-1])


def test_a_reply_that_ends_leaves_the_others_alone(eagle3, prompts, plain_ids):
    """We end such a reply ourselves; what the engine still does for it must disturb nobody."""
    replies = eagle3.run(prompts, 4, ignore_eos=False)
    for reply, plain in zip(replies, plain_ids, strict=True):
        until = plain.index(2) + 1 if 2 in plain else len(plain)
        assert ids(reply) == plain[:until]
        assert reply[-2]["choices"][0]["finish_reason"] == ("stop" if 2 in plain else "length")
        drafted = [length for length in drafts_of_stream(reply) if length]
        assert told(reply)["per_step_drafted"] == drafted
    assert any(2 in plain for plain in plain_ids)


def test_a_drafter_that_is_the_target_is_always_right(ov_dir, prompts, plain_ids):
    """A draft model: every draft is accepted, so the steps follow from k and the length alone."""
    arguments = ("--method", "draft_model", "--draft-model", str(ov_dir))
    with serving(ov_dir, *arguments, "--num-draft-tokens", str(K)) as server:
        replies = server.run(prompts[:4], 4)
        ended = server.run(prompts[:4], 2, ignore_eos=False)
    for reply, plain in zip(replies, plain_ids, strict=False):
        assert ids(reply) == plain
        # 1 from the prefill, then 11 times 3 + 1: 45 of 48. Of the last 3, 2 are drafted.
        assert told(reply)["per_step_drafted"] == [3] * 11 + [2]
        assert told(reply)["per_step_accepted"] == [3] * 11 + [2]
    for reply, plain in zip(ended, plain_ids, strict=False):
        assert ids(reply) == plain[: plain.index(2) + 1 if 2 in plain else len(plain)]


def test_sampling_with_a_head_is_refused(eagle3, prompts):
    async def post() -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{eagle3.url}/v1/completions", json=request_body(prompts[0], temperature=0.8)
            ) as answer,
        ):
            return answer.status, await answer.text()

    status, text = asyncio.run(post())
    assert status == 400
    assert "temperature" in text


def test_the_end_token_stops_and_belongs_to_the_ids(ngram, prompts, plain_ids):
    index = list(QUESTIONS).index("capital")
    (reply,) = ngram.run([prompts[index]], 1, ignore_eos=False)
    plain = plain_ids[index]
    assert ids(reply) == plain[: plain.index(2) + 1]
    assert reply[-2]["choices"][0]["finish_reason"] == "stop"


def test_sampling_with_a_seed_repeats(ngram, prompts):
    first, again, other = (
        ngram.run(prompts[:1], 1, temperature=0.8, seed=seed)[0] for seed in (1, 1, 2)
    )
    assert ids(first) == ids(again) != ids(other)


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"prompt": [60000]}, 400), ({"top_p": 0.5}, 400), ({"model": "other"}, 404)],
)
def test_bad_requests_get_an_error_body(ngram, fields, status):
    async def post() -> tuple[int, dict]:
        body = {**request_body([1, 2, 3]), **fields}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{ngram.url}/v1/completions", json=body) as answer,
        ):
            return answer.status, await answer.json()

    seen, body = asyncio.run(post())
    assert seen == status == body["error"]["code"]


def test_text_without_ids_and_whole_replies(ngram, prompts, hf_dir, plain_ids):
    from transformers import AutoTokenizer

    expected = AutoTokenizer.from_pretrained(hf_dir).decode(plain_ids[0])

    async def whole() -> dict:
        body = request_body(prompts[0], stream=False, stream_options=None)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{ngram.url}/v1/completions", json=body) as answer,
        ):
            return await answer.json()

    body = asyncio.run(whole())
    assert body["choices"][0]["text"] == expected
    assert body["choices"][0]["token_ids"] == plain_ids[0]
    (reply,) = ngram.run(prompts[:1], 1, return_token_ids=False)
    text = "".join(choice["text"] for event in reply for choice in event["choices"])
    assert text == expected


@pytest.mark.parametrize("method", ["ngram", "eagle3"])
def test_requests_that_overfill_the_cache_wait(ov_dir, head_dir, prompts, plain_ids, method):
    """Preemption would fail an assertion of the engine with prompt lookup."""
    arguments = ("--method", method, "--cache-gib", "0.02", "--max-num-seqs", "8")  # 448 tokens
    drafting = ("--draft-model", str(head_dir)) if method == "eagle3" else ()
    with serving(ov_dir, *arguments, *drafting) as server:
        assert [ids(reply) for reply in server.run(prompts, 8)] == plain_ids


@pytest.mark.parametrize("method", ["none", "eagle3"])
def test_a_client_that_leaves_frees_the_slot(ov_dir, head_dir, prompts, method):
    async def leave_then_ask(server: Server) -> list:
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session:
            body = request_body(prompts[0], max_tokens=8000)
            async with session.post(f"{server.url}/v1/completions", json=body) as answer:
                await answer.content.readline()
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session:
            return await server.events(session, prompts[1], max_tokens=2)

    # One slot: 8,000 tokens would take longer than the time limit of the second request.
    drafting = ("--method", "eagle3", "--draft-model", str(head_dir)) if method == "eagle3" else ()
    with serving(ov_dir, "--max-num-seqs", "1", *drafting) as server:
        assert len(ids(asyncio.run(leave_then_ask(server)))) == 2


def test_an_engine_that_dies_ends_the_replies_and_the_health(ov_dir, prompts):
    async def kill_while_streaming(server: Server) -> tuple[bytes, int, int]:
        async with aiohttp.ClientSession(timeout=REQUEST_TIMEOUT) as session:
            body = request_body(prompts[0], max_tokens=8000)
            async with session.post(f"{server.url}/v1/completions", json=body) as answer:
                await answer.content.readline()
                for child in psutil.Process(server.process.pid).children():
                    child.kill()
                rest = await answer.content.read()
            async with session.get(f"{server.url}/health") as answer:
                health = answer.status
            async with session.post(f"{server.url}/v1/completions", json=body) as answer:
                return rest, health, answer.status

    with serving(ov_dir) as server:
        rest, health, status = asyncio.run(kill_while_streaming(server))
    assert b"the OpenVINO engine failed" in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert (health, status) == (500, 500)
