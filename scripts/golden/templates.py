#!/usr/bin/env python3
"""Makes crates/model/testdata/templates.json: chat templates with transformers' renderings of them.

  templates.py OUT.json MODEL_FOLDER...      folders with a chat_template.jinja
"""

import json
import pathlib
import sys

import transformers
from transformers.utils.chat_template_utils import render_jinja_template

CHATS = [
    [{"role": "user", "content": "Hi there"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " 2+2?\n"}, {"role": "assistant", "content": "4"},
     {"role": "user", "content": "Sure?"}],
    [{"role": "user", "content": "{\"a\": <b>}"}, {"role": "assistant", "content": "é ünïcode"}],
]  # fmt: skip
TOKENS = dict(bos_token="<|endoftext|>", eos_token="<|im_end|>")


def main():
    cases = []
    for folder in map(pathlib.Path, sys.argv[2:]):
        template = (folder / "chat_template.jinja").read_text()
        renderings = []
        for chat in CHATS:
            for is_open in (False, True):
                text = render_jinja_template([chat], chat_template=template, add_generation_prompt=is_open, **TOKENS)[0][0]
                renderings.append(dict(messages=chat, is_open=is_open, text=text))
        cases.append(dict(model=folder.name, template=template, renderings=renderings))
    out = dict(transformers=transformers.__version__, tokens=TOKENS, cases=cases)
    pathlib.Path(sys.argv[1]).write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


main()
