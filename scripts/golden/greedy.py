#!/usr/bin/env python3
"""Greedy continuations of five prompts: scalerl against transformers, token for token, in float32 on the CPU.

  greedy.py SCALERL_BINARY MODEL_FOLDER [TOKENS]

Exits 1 at the first prompt whose tokens differ, and says where.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

binary, folder = sys.argv[1], sys.argv[2]
count = int(sys.argv[3]) if len(sys.argv) > 3 else 64
questions = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain in two sentences why the sky is blue.",
    "List three prime numbers above 100.",
    "Translate to German: The weather is nice today.",
]
if (pathlib.Path(folder) / "tokenizer_config.json").is_file():
    tokenizer = AutoTokenizer.from_pretrained(folder)
else:
    # Without it transformers guesses a class by the model's type, wrongly for SmolLM2.
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
    tokenizer.chat_template = (pathlib.Path(folder) / "chat_template.jinja").read_text()
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    for question in questions:
        file.write(json.dumps({"messages": [{"role": "user", "content": question}]}) + "\n")
    file.flush()
    command = [binary, "generate", "--model", folder, "--prompts", file.name, "--temperature", "0", "--max-tokens", str(count)]
    lines = subprocess.run([*command, "--device", "cpu", "--dtype", "f32", "--json"], check=True, capture_output=True, text=True).stdout
ours = [json.loads(line) for line in lines.splitlines()]
failed = False
for question, found in zip(questions, ours, strict=True):
    text = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        # The folder may ask for sampling; greedy is asked for here.
        out = model.generate(**prompt, max_new_tokens=count, do_sample=False, temperature=None, top_p=None, top_k=None)
    expected = out[0, prompt["input_ids"].shape[1] :].tolist()
    is_same = expected == found["tokens"]
    at = next((i for i, pair in enumerate(zip(expected, found["tokens"])) if pair[0] != pair[1]), min(len(expected), len(found["tokens"])))
    print(f"{'same' if is_same else f'DIFFERS at token {at}'}: {len(expected)} tokens, {question!r} -> {found['text'][:60]!r}")
    failed |= not is_same
sys.exit(1 if failed else 0)
