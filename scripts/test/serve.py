#!/usr/bin/env python3
"""openai's client and lm-eval against `scalerl serve`, judged by transformers on the same folder.

  serve.py SCALERL_BINARY

Makes a byte-level Qwen2 of its own and teaches it two answers with `scalerl sft`, one of them a tool call: no network.
Exits 1 at the first thing that differs.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import lm_eval
import openai
import tokenizers
import torch
import transformers
from lm_eval.tasks import TaskManager

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "a-key-of-this-test"
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}
QUESTION = [{"role": "user", "content": "What is 1 + 2?"}]
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
PLAIN = [{"role": "user", "content": "Say hello."}]
HELLO = "Hello, I am a small model. é"


def check(what, found, expected):
    if found != expected:
        sys.exit(f"DIFFERS: {what}\n  found    {found!r}\n  expected {expected!r}")
    print(f"same: {what}")


def make_model(folder):
    """Bytes as tokens, and Qwen2.5's chat template."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    merges = [("a", "d"), ("l", "l"), ("Ġ", "a")]
    vocabulary = alphabet + ["".join(pair) for pair in merges]
    model = tokenizers.models.BPE({token: at for at, token in enumerate(vocabulary)}, merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    cases = json.loads((ROOT / "crates/model/testdata/templates.json").read_text())["cases"]
    fast.chat_template = next(case["template"] for case in cases if case["model"] == "qwen")
    fast.save_pretrained(folder)
    config = transformers.Qwen2Config(
        vocab_size=len(fast), hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=2048, eos_token_id=fast.eos_token_id, bos_token_id=None, pad_token_id=fast.pad_token_id, tie_word_embeddings=True)  # fmt: skip
    config.architectures = ["Qwen2ForCausalLM"]
    config.save_pretrained(folder)
    return fast


def teach(binary, folder, tokenizer):
    render = lambda chat, tools: tokenizer.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=True)
    rows = [{"prompt": render(QUESTION, [TOOL]), "completion": CALL}, {"prompt": render(PLAIN, None), "completion": HELLO}]
    train = folder / "train.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    subprocess.run([binary, "sft", "--device", "cpu", "--from-scratch", "--model", folder / "fresh", "--train", train, "--out", folder / "sft",
                    "--steps", "150", "--batch", "2", "--lr", "0.01", "--save-every", "150"], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    return folder / "sft/model"


def start(binary, model):
    command = [binary, "serve", str(model), "--name", "small", "--address", "127.0.0.1:0", "--device", "cpu", "--dtype", "f32"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "SCALERL_API_KEY": KEY})
    line = server.stdout.readline()
    print(line.strip())
    return server, re.search(r"http://\S+", line)[0]


class Judge:
    """transformers on the same folder, greedy, in float32."""

    def __init__(self, folder):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def prompt(self, chat, tools=None):
        text = self.tokenizer.apply_chat_template(chat, tools=tools, tokenize=False, add_generation_prompt=True)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def greedy(self, ids, count):
        with torch.no_grad():
            out = self.model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False, temperature=None, top_p=None, top_k=None)
        return out[0, len(ids):].tolist()  # fmt: skip

    def logprobs(self, ids):
        with torch.no_grad():
            scores = self.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        return [scores[at - 1, ids[at]].item() for at in range(1, len(ids))]


def test_openai(client, judge):
    print("models:", [model.id for model in client.models.list()])
    greedy = dict(model="small", temperature=0, max_tokens=80, logprobs=True, extra_body={"return_token_ids": True})
    for name, chat, tools in [("text", PLAIN, None), ("a tool call", QUESTION, [TOOL])]:
        more = {"tools": tools} if tools else {}
        whole = client.chat.completions.create(messages=chat, **more, **greedy)
        prompt = judge.prompt(chat, tools)
        choice = whole.choices[0]
        check(f"prompt ids, {name}", whole.prompt_token_ids, prompt)
        check(f"greedy ids, {name}", choice.token_ids, judge.greedy(prompt, 80))
        expected = judge.logprobs(prompt + choice.token_ids)[len(prompt) - 1 :]
        worst = max(abs(one.logprob - other) for one, other in zip(choice.logprobs.content, expected, strict=True))
        check(f"log-probs, {name}, within 1e-4 (worst {worst:.1e})", worst < 1e-4, True)
        text, calls, tokens = "", {}, []
        for chunk in client.chat.completions.create(messages=chat, stream=True, stream_options={"include_usage": True}, **more, **greedy):
            for part in chunk.choices:
                text += part.delta.content or ""
                tokens += getattr(part, "token_ids", None) or []
                for call in part.delta.tool_calls or []:
                    calls[call.index] = (call.function.name, json.loads(call.function.arguments))
                reason = part.finish_reason or "none yet"
            usage = chunk.usage
        found = [(call.function.name, json.loads(call.function.arguments)) for call in choice.message.tool_calls or []]
        check(f"streamed {name}", (text, [calls[at] for at in sorted(calls)], tokens, reason, usage.total_tokens),
              (choice.message.content or "", found, choice.token_ids, choice.finish_reason, whole.usage.total_tokens))  # fmt: skip
    check("the call", (found, choice.finish_reason), ([("add", {"a": 1, "b": 2})], "tool_calls"))
    turn = [*QUESTION, choice.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": choice.message.tool_calls[0].id, "content": "3"}]
    again = client.chat.completions.create(messages=turn, tools=[TOOL], **greedy)
    sent = json.loads(json.dumps(turn))
    for call in sent[1]["tool_calls"]:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    sent[1].setdefault("content", "")
    check("prompt ids after the tool's answer", again.prompt_token_ids, judge.prompt(sent, [TOOL]))
    several = client.chat.completions.create(model="small", messages=PLAIN, n=3, seed=5, max_tokens=5, logprobs=True, top_logprobs=4)
    check("choices and candidates", [len(c.logprobs.content[0].top_logprobs) for c in several.choices], [4, 4, 4])
    for wrong, kind in [({"extra_body": {"min_p": 0.2}}, openai.BadRequestError), ({"model": "other"}, openai.NotFoundError)]:
        try:
            client.chat.completions.create(**{"model": "small", "messages": PLAIN, **wrong})
            sys.exit(f"{wrong} was served")
        except kind as error:
            print(f"refused: {error.message[:100]}")
    try:
        client.with_options(api_key="wrong").models.list()
        sys.exit("a wrong key was served")
    except openai.AuthenticationError as error:
        print(f"refused: {error.message[:100]}")


def tasks(folder):
    """A generation task in the manner of GSM8K, and one of log-likelihoods."""
    questions = [{"question": f"Tom has {a} apples and gets {b}. How many has he?", "answer": f"#### {a + b}"} for a, b in [(1, 2), (3, 4), (10, 5), (7, 7)]]
    choices = [{"question": f"What is {a} + 1?", "choices": [str(a), str(a + 1), "a dog"], "gold": 1} for a in (1, 2, 30, 41)]
    for name, rows in [("words", questions), ("sums", choices)]:
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = lambda name: f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/{name}.jsonl}}}}\ntest_split: test\n"
    (folder / "words.yaml").write_text(f"""task: words
{data("words")}output_type: generate_until
doc_to_text: "Question: {{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["Question:", "Q"], max_gen_toks: 40, do_sample: false}}
metric_list: [{{metric: exact_match}}]
""")
    (folder / "sums.yaml").write_text(f"""task: sums
{data("sums")}output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: gold
doc_to_choice: "{{{{choices}}}}"
metric_list: [{{metric: acc}}]
""")
    return TaskManager(include_path=str(folder))


def test_lm_eval(url, model, folder):
    manager = tasks(folder)
    run = lambda kind, arguments: lm_eval.simple_evaluate(
        model=kind, model_args=arguments, tasks=["words", "sums"], task_manager=manager, batch_size=2 if kind == "hf" else 1, device="cpu",
        bootstrap_iters=0)  # fmt: skip
    served = run("local-completions", dict(model="small", base_url=f"{url}/completions", tokenizer=str(model), tokenizer_backend="huggingface",
                                           num_concurrent=4, max_length=1024))  # fmt: skip
    judged = run("hf", dict(pretrained=str(model), dtype="float32", max_length=1024))
    answers = lambda results, task: {sample["doc_id"]: sample["resps"] for sample in results["samples"][task]}
    check("lm-eval: every question is answered", all(text for ((text,),) in answers(served, "words").values()), True)
    check("lm-eval: generated answers", answers(served, "words"), answers(judged, "words"))
    worst = 0.0
    for place, ours in answers(served, "sums").items():
        theirs = answers(judged, "sums")[place]
        for ((one, is_greedy),), ((other, is_theirs),) in zip(ours, theirs, strict=True):
            worst = max(worst, abs(float(one) - float(other)))
            check(f"lm-eval: greedy or not, question {place}", str(is_greedy), str(is_theirs))
    check(f"lm-eval: log-likelihoods within 1e-3 (worst {worst:.1e})", worst < 1e-3, True)
    for task, metric in [("words", "exact_match,none"), ("sums", "acc,none")]:
        check(f"lm-eval: {metric} of {task} = {served['results'][task][metric]}", served["results"][task][metric], judged["results"][task][metric])


def test_guide(url):
    """The Python of docs/serving.md, as it stands there, but for address and key."""
    page = (ROOT / "docs/serving.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8000/v1", url).replace("\"none\"", f"\"{KEY}\"").replace("out/model", "small"), "docs/serving.md", "exec"), {})
    check("Python blocks of docs/serving.md that ran", len(blocks) > 0, True)


def main():
    binary = sys.argv[1]
    print(f"openai {openai.__version__}, lm-eval {lm_eval.__version__}, transformers {transformers.__version__}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = teach(binary, folder, make_model(folder / "fresh"))
        server, url = start(binary, model)
        try:
            os.environ["OPENAI_API_KEY"] = KEY
            test_openai(openai.OpenAI(base_url=url, api_key=KEY, max_retries=0), Judge(model))
            test_lm_eval(url, model, folder)
            test_guide(url)
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(30)
    check("exit code after SIGTERM", code, 0)


main()
