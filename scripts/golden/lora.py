#!/usr/bin/env python3
"""Makes crates/model/testdata/lora: PEFT's own adapters on our tiny models, with PEFT's numbers.

Each folder NAME-CASE is what `save_pretrained` of PEFT writes for an adapter on testdata/NAME (the base is named
by its path beside the folder), and `golden.safetensors`:
  logits_N       logits of sequence N with the adapter (sequences and weights are those of testdata/NAME)
  grad.TENSOR    gradient of  loss = sum_N sum_t -weights_N[t] * logprob[t]  for every A and B
  merged.TENSOR  a few weights of `merge_and_unload`
with the loss and the versions in its metadata. B is drawn at random, because at zero it would hide A.

  python3 -m venv V && V/bin/pip install torch==2.11.0 transformers==5.3.0 peft==0.21.2
  V/bin/python scripts/golden/lora.py crates/model/testdata
  cargo test -p scalerl-model --test adapter -- --ignored                   writes FOLDER, testdata/lora/ours
  V/bin/python scripts/golden/lora.py crates/model/testdata --read FOLDER   PEFT's logits with an adapter of ours
"""

import json
import pathlib
import sys

import peft
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

SEQUENCES = 4
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES = {
    "llama-all": dict(r=4, lora_alpha=8, target_modules=ALL),
    "qwen3-some": dict(r=2, lora_alpha=3, target_modules=["q_proj", "v_proj", "down_proj"], use_rslora=True),
    "gemma3_text-all": dict(r=3, lora_alpha=3, target_modules="all-linear"),
}


def base_model(data, name):
    return transformers.AutoModelForCausalLM.from_pretrained(
        data / name, dtype=torch.float32, attn_implementation="eager"
    )


def logits_of(model, golden):
    return [model(input_ids=golden[f"ids_{n}"][None]).logits[0] for n in range(SEQUENCES)]


def make(data, case, settings):
    name = case.split("-")[0]
    golden = load_file(data / name / "golden.safetensors")
    torch.manual_seed(7)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **settings)
    model = peft.get_peft_model(base_model(data, name), config)
    for tensor_name, parameter in model.named_parameters():
        if "lora_B" in tensor_name:
            torch.nn.init.normal_(parameter, std=0.2)
    logits = logits_of(model, golden)
    loss = torch.zeros(())
    for n, rows in enumerate(logits):
        ids, weights = golden[f"ids_{n}"], golden[f"weights_{n}"]
        logprob = rows[:-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        loss = loss - (weights * logprob).sum()
    loss.backward()
    out = {f"logits_{n}": rows.detach().contiguous() for n, rows in enumerate(logits)}
    for tensor_name, parameter in model.named_parameters():
        if parameter.requires_grad:
            out["grad." + tensor_name.replace(".default", "")] = parameter.grad.contiguous()
    out["loss"] = loss.detach().reshape(1)
    folder = data / "lora" / case
    model.peft_config["default"].base_model_name_or_path = f"../../{name}"
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    merged = model.merge_and_unload().state_dict()
    for layer in (0, 1):
        for part in ("self_attn.v_proj", "mlp.down_proj"):
            tensor_name = f"model.layers.{layer}.{part}.weight"
            out["merged." + tensor_name] = merged[tensor_name].contiguous()
    versions = {p.__name__: p.__version__ for p in (torch, transformers, peft)}
    save_file(out, folder / "golden.safetensors", metadata={"versions": json.dumps(versions)})
    print(case, float(loss), versions)


def read(data, folder):
    """PEFT's logits with an adapter folder of ours, beside it as peft.safetensors."""
    config = peft.PeftConfig.from_pretrained(folder)
    name = pathlib.Path(config.base_model_name_or_path).name
    golden = load_file(data / name / "golden.safetensors")
    model = peft.PeftModel.from_pretrained(base_model(data, name), folder)
    out = {f"logits_{n}": rows.detach().contiguous() for n, rows in enumerate(logits_of(model, golden))}
    save_file(out, pathlib.Path(folder) / "peft.safetensors")
    ours = pathlib.Path(folder) / "ours.safetensors"
    if ours.is_file():
        with safe_open(ours, "pt") as file:
            worst = max(float((file.get_tensor(key) - out[key]).abs().max()) for key in file.keys())
        print("largest difference to ours", worst)


def main():
    data = pathlib.Path(sys.argv[1]).resolve()
    if len(sys.argv) > 3 and sys.argv[2] == "--read":
        return read(data, sys.argv[3])
    for case, settings in CASES.items():
        make(data, case, settings)


if __name__ == "__main__":
    main()
