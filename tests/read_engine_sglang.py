"""What SGLang takes and sends, by SGLang itself; ``read_engine_messages.py`` runs this.

Runs in an interpreter that has SGLang and no part of this project. Standard input is a request
body and scripted replies, the last line of standard output is one JSON object: the schema of the
request and, for each reply, the events that the package's tokenizer manager makes of it.

The manager is made without its constructor, which wants a model, a tokenizer and sockets. What it
gets in their place is the package's own: its configuration, its request state, and the batches
that its detokenizer would send. Two values that a clock gives are set to 0.
"""

import asyncio
import json
import sys
from array import array
from types import SimpleNamespace
from typing import Any

import msgspec
import sglang.version
from pydantic import TypeAdapter
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.managers.io_struct import BatchStrOutput, GenerateReqInput
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, FINISH_MATCHED_TOKEN, Req
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.runtime_context import get_context, get_serving
from sglang.srt.sampling.sampling_params import SamplingParams

REQUEST_ID = "1f"
CLOCKS = ("e2e_latency", "response_sent_to_client_ts")


def request_schema() -> dict[str, Any]:
    """The schema of one request; its sampling parameters are those of ``SamplingParams``."""
    schema = TypeAdapter(GenerateReqInput).json_schema()
    fields = msgspec.structs.fields(SamplingParams)
    types, components = msgspec.json.schema_components(
        [field.type for field in fields], ref_template="#/$defs/{name}"
    )
    schema["properties"]["sampling_params"] = {
        "type": "object",
        "properties": {field.name: type_ for field, type_ in zip(fields, types, strict=True)},
    }
    schema["$defs"] |= components
    return schema


def batch_of(reply: dict[str, Any], index: int) -> BatchStrOutput:
    """What the detokenizer sends for one block, with the counts of the request so far."""
    blocks = reply["blocks"]
    tokens = sum(map(len, blocks[: index + 1]))
    accepted = reply["accepted"][:index]  # the prefill gives the first block
    counted = SimpleNamespace(spec_correct_drafts_histogram=[])
    for drafts in accepted:
        Req.update_spec_correct_drafts_histogram(counted, drafts)
    finish = None
    if index == len(blocks) - 1 and reply["finish_reason"] is not None:
        finish = {
            "length": FINISH_LENGTH(tokens),
            "stop": FINISH_MATCHED_TOKEN(blocks[-1][-1]),
        }[reply["finish_reason"]].to_json()
    speculates = reply["draft_tokens"] is not None
    unused = {
        field.name: None for field in msgspec.structs.fields(BatchStrOutput) if field.required
    }
    return BatchStrOutput(
        **unused
        | {
            "rids": [REQUEST_ID],
            "finished_reasons": [finish],
            "output_strs": [reply["texts"][index]],
            "output_ids": [array("q", blocks[index])],
            "prompt_tokens": [reply["prompt_tokens"]],
            "completion_tokens": [tokens],
            "reasoning_tokens": [0],
            "cached_tokens": [reply["cached_tokens"]],
            "retraction_counts": [0],
            "spec_verify_ct": [len(accepted)] if speculates else [],
            "spec_num_correct_drafts": [sum(accepted)] if speculates else [],
            "spec_correct_drafts_histogram": (
                [counted.spec_correct_drafts_histogram] if speculates else []
            ),
        }
    )


async def events_of(reply: dict[str, Any], body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of one reply, each block fetched before the next one comes."""
    configuration = {"incremental_streaming_output": reply["incremental"]}
    if reply["draft_tokens"] is not None:
        configuration |= {
            "speculative_algorithm": "EAGLE3",
            "speculative_num_draft_tokens": reply["draft_tokens"] + 1,
        }
    with get_context().override_server_args(**configuration) as arguments:
        manager = object.__new__(TokenizerManager)
        manager.server_args = arguments
        manager.incremental_streaming_output = get_serving().incremental_streaming_output
        manager.disaggregation_mode = DisaggregationMode.NULL
        manager.enable_metrics = manager.enable_trace = manager.enable_lora = False
        manager.crash_dump_folder = ""
        manager.init_running_status()
        manager.init_request_logging_and_dumping()
        request = TypeAdapter(GenerateReqInput).validate_python(body | {"rid": REQUEST_ID})
        request.normalize_batch_and_arguments()
        manager._init_req_state(request)
        stream = manager._wait_one_response(request)
        events = []
        for index in range(len(reply["blocks"])):
            await manager._handle_batch_output(batch_of(reply, index))
            event = json.loads(json.dumps(await anext(stream)))  # it goes on to change its lists
            event["meta_info"] |= {name: 0.0 for name in CLOCKS if name in event["meta_info"]}
            events.append(event)
    return events


def main() -> None:
    asked = json.load(sys.stdin)
    replies = {
        name: asyncio.run(events_of(reply, asked["body"]))
        for name, reply in asked["replies"].items()
    }
    found = {"version": sglang.version.__version__, "request": request_schema(), "replies": replies}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
