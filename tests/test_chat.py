"""Chat templates to token ids: turn 0 whole, later turns only what follows the reply."""

from pathlib import Path

import pytest

from speedstudy.chat import conversation_ids, load_tokenizer
from tiny_tokenizer import CHATML, write_tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return load_tokenizer(write_tiny_tokenizer(tmp_path_factory.mktemp("chatml")))


def decode(tokenizer, ids):
    return tokenizer.decode(list(ids), skip_special_tokens=False)


def test_first_turn_is_the_whole_prompt_and_later_turns_follow_the_reply(tokenizer):
    first, second, third = conversation_ids(tokenizer, ["Hi fox", "And 漢字?", "Bye"])
    assert decode(tokenizer, first) == "<|im_start|>user\nHi fox<|im_end|>\n<|im_start|>assistant\n"
    assert decode(tokenizer, second) == (
        "<|im_end|>\n<|im_start|>user\nAnd 漢字?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert second[0] == tokenizer.eos_token_id  # with which a reply may have ended
    assert decode(tokenizer, third) == (
        "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )


def test_ids_with_a_reply_between_are_the_ids_of_the_whole_conversation(tokenizer):
    first, second = conversation_ids(tokenizer, ["Question", "Next"])
    reply = tokenizer("the answer", add_special_tokens=False)["input_ids"]
    whole = tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "Question"},
            {"role": "assistant", "content": "the answer"},
            {"role": "user", "content": "Next"},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    expected = tokenizer(whole, add_special_tokens=False)["input_ids"]
    assert [*first, *reply, *second] == expected


def test_variables_of_the_study_reach_every_turn_of_the_template(tmp_path):
    effort = "{{ '[' + effort + ']' }}" + CHATML
    tokenizer = load_tokenizer(write_tiny_tokenizer(tmp_path, chat_template=effort))
    first, second = conversation_ids(tokenizer, ["one", "two"], {"effort": "low"})
    assert decode(tokenizer, first).startswith("[low]<|im_start|>user\none")
    assert decode(tokenizer, second).startswith("<|im_end|>\n<|im_start|>user\ntwo")


def test_a_turn_that_contains_the_mark_is_no_reply(tokenizer):
    turns = ["ModelReplyGoesHere", "ModelReplyGoesHere0 again"]
    second = conversation_ids(tokenizer, turns)[1]
    assert decode(tokenizer, second).startswith("<|im_end|>\n<|im_start|>user\nModelReplyGoesHere0")


def test_template_that_changes_replies_is_refused_only_with_several_turns(tmp_path):
    template = CHATML.replace(
        "message['content']",
        "(message['content'] if message['role'] == 'user' else message['content'] | upper)",
    )
    tokenizer = load_tokenizer(write_tiny_tokenizer(tmp_path, chat_template=template))
    assert len(conversation_ids(tokenizer, ["one"])) == 1
    with pytest.raises(ValueError, match="earlier replies unchanged"):
        conversation_ids(tokenizer, ["one", "two"])


def test_template_that_raises_says_why(tmp_path):
    template = "{{ raise_exception('only system messages') }}"
    tokenizer = load_tokenizer(write_tiny_tokenizer(tmp_path, chat_template=template))
    with pytest.raises(ValueError, match="refuses the conversation: only system messages"):
        conversation_ids(tokenizer, ["one"])


def test_without_template_turns_are_joined_by_blank_lines(tmp_path):
    tokenizer = load_tokenizer(write_tiny_tokenizer(tmp_path, chat_template=None))
    first, second = conversation_ids(tokenizer, ["one", "two"])
    assert decode(tokenizer, first) == "one"
    assert decode(tokenizer, second) == "\n\ntwo"


def test_no_turns_and_no_tokenizer_are_named(tokenizer, tmp_path):
    with pytest.raises(ValueError, match="at least one turn"):
        conversation_ids(tokenizer, [])
    with pytest.raises(ValueError, match=r"nowhere: no such folder"):
        load_tokenizer(Path("nowhere"))
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_tokenizer(tmp_path)
