#!/usr/bin/env python3
"""Our logits against transformers', for whole folders: the tiny models of the tests, and real ones.

  compare.py LOGITS_BINARY FOLDER...

For every folder: our logits of some tokens, transformers' logits of the same folder, and transformers' logits of the
folder that we wrote. Fails when either differs by more than 1e-4 of the largest logit (float32 sums in another order).
"""

import pathlib
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers
from safetensors.torch import load_file

TOLERANCE = 1e-4


def transformers_logits(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model.eval()(torch.tensor([tokens]), use_cache=False).logits[0]


def tokens_of(folder):
    if (folder / "tokenizer.json").is_file():
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        return tokenizer.encode("The quick brown fox jumps over the lazy dog. 12 + 30 = 42, isn't it?").ids
    return [5, 17, 3, 40, 22, 9, 61, 8, 33, 2, 14, 50, 7]


def main():
    binary, failed = sys.argv[1], False
    for folder in map(pathlib.Path, sys.argv[2:]):
        tokens = tokens_of(folder)
        with tempfile.TemporaryDirectory() as temporary:
            out, saved = f"{temporary}/logits.safetensors", f"{temporary}/saved"
            subprocess.run([binary, folder, out, ",".join(map(str, tokens)), saved], check=True)
            ours = load_file(out)["logits"]
            theirs, reloaded = transformers_logits(folder, tokens), transformers_logits(saved, tokens)
        scale = theirs.abs().max().item()
        differences = [(ours - theirs).abs().max().item(), (reloaded - theirs).abs().max().item()]
        fine = all(difference <= TOLERANCE * scale for difference in differences)
        failed |= not fine
        print(
            f"{'ok  ' if fine else 'FAIL'} {folder.name}: {len(tokens)} tokens, ours {differences[0]:.1e}, "
            f"saved and loaded {differences[1]:.1e}, largest logit {scale:.1f} (transformers {transformers.__version__})"
        )
    sys.exit(failed)


main()
