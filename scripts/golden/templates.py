#!/usr/bin/env python3
"""Makes crates/model/testdata/templates.json: chat templates with transformers' renderings of them.

  templates.py OUT.json MODEL_FOLDER...      folders with a chat_template.jinja
  templates.py OUT.json OUT.json             the templates that the file has, rendered anew
"""

import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

CHATS = [
    [{"role": "user", "content": "Hi there"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " 2+2?\n"}, {"role": "assistant", "content": "4"},
     {"role": "user", "content": "Sure?"}],
    [{"role": "user", "content": "{\"a\": <b>}"}, {"role": "assistant", "content": "é ünïcode"}],
]  # fmt: skip
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds <two> numbers", "parameters":
    {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}}}  # fmt: skip
CALL = {"type": "function", "id": "call_0", "function": {"name": "add", "arguments": {"a": 1.5, "b": [2, "é"], "c": None}}}
TOOL_CHATS = [
    [{"role": "user", "content": "1.5 + 2?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1.5 + 2?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "content": "3.5", "tool_call_id": "call_0"}],
    [{"role": "user", "content": "Twice."}, {"role": "assistant", "content": "Twice, then.", "tool_calls": [CALL, CALL]},
     {"role": "tool", "content": "3.5"}, {"role": "tool", "content": "3.5"}, {"role": "assistant", "content": "3.5"}, {"role": "user", "content": "Sure?"}],
]  # fmt: skip
TOKENS = dict(bos_token="<|endoftext|>", eos_token="<|im_end|>")


def templates(path):
    if path.is_dir():
        return [(path.name, (path / "chat_template.jinja").read_text())]
    return [(case["model"], case["template"]) for case in json.loads(path.read_text())["cases"]]


def render(chat, template, **options):
    """None where the template refuses the chat, as Llama 3's refuses two calls in one message."""
    try:
        return render_jinja_template([chat], chat_template=template, **options, **TOKENS)[0][0]
    except jinja2.TemplateError:
        return None


def main():
    cases = []
    for name, template in [pair for path in map(pathlib.Path, sys.argv[2:]) for pair in templates(path)]:
        renderings = []
        for chat in CHATS:
            for is_open in (False, True):
                text = render(chat, template, add_generation_prompt=is_open)
                renderings.append(dict(messages=chat, is_open=is_open, text=text))
        for chat in TOOL_CHATS if "tools" in template else []:
            for is_open in (False, True):
                text = render(chat, template, tools=[TOOL], add_generation_prompt=is_open)
                renderings.append(dict(messages=chat, tools=[TOOL], is_open=is_open, text=text))
        cases.append(dict(model=name, template=template, renderings=renderings))
    out = dict(transformers=transformers.__version__, tokens=TOKENS, cases=cases)
    pathlib.Path(sys.argv[1]).write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


main()
