#!/usr/bin/env python3
"""A model folder that needs no network: the shape of Qwen2.5-0.5B, random weights in bf16, a tokenizer of the same 151,936 tokens.

  random_model.py FOLDER [--layers 24 --dim 896 --heads 14 --kv-heads 2 --ffn 4864 --vocab 151936]

Random weights take the time of real ones. The tokenizer is made so that a text says how many tokens it was drawn as: every token but the
256 bytes is a space and letters, and the shorter words are the beginnings of the longer ones. No token ends an answer.
"""

import argparse
import itertools
import json
import pathlib
import string

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tokenizer_of(vocabulary):
    """Bytes, then words in order of length, so that a beginning is merged before what it begins."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    space = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str(" ")[0][0]
    words = ("".join(letters) for length in itertools.count(1) for letters in itertools.product(string.ascii_letters, repeat=length))
    room = vocabulary - len(tokens) - len(SPECIAL)
    if room < 0:
        raise SystemExit(f"--vocab {vocabulary}: at least {vocabulary - room} tokens are needed")
    words = [space + word for word in itertools.islice(words, room)]
    vocab = {token: number for number, token in enumerate(tokens + words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[(word[:-1], word[-1]) for word in words]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    assert tokenizer.get_vocab_size() == vocabulary
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, size in {"layers": 24, "dim": 896, "heads": 14, "kv-heads": 2, "ffn": 4864, "vocab": 151936}.items():
        parser.add_argument("--" + name, type=int, default=size)
    args = parser.parse_args()
    if args.folder.exists() and any(args.folder.iterdir()):
        parser.error(f"{args.folder} is not empty: name a new folder")
    args.folder.mkdir(parents=True, exist_ok=True)
    config = Qwen2Config(
        hidden_size=args.dim, intermediate_size=args.ffn, num_hidden_layers=args.layers, num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads, vocab_size=args.vocab, max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1e6,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None, dtype="bfloat16",
    )  # fmt: skip
    torch.manual_seed(1)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.generation_config = GenerationConfig()
    model.save_pretrained(args.folder)
    tokenizer_of(args.vocab).save(str(args.folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768, "pad_token": SPECIAL[0], "chat_template": TEMPLATE}
    (args.folder / "tokenizer_config.json").write_text(json.dumps(about, indent=2) + "\n")
    print(f"{args.folder}: {sum(parameter.numel() for parameter in model.parameters()) / 1e6:.0f} million parameters")


if __name__ == "__main__":
    main()
