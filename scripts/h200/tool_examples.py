"""Writes a warm-up for examples/gsm8k-python.toml: episodes with one call of the Python tool, out of GSM8K's own solutions.

The calculations that a solution marks (`<<48/2=24>>`) become a program; running it gives what the tool would say. Solutions
whose program does not print the right answer are left out. The text is what Qwen2.5's chat template writes.
    python3 tool_examples.py train.jsonl OUT COUNT SYSTEM
"""
import json
import re
import subprocess
import sys

TOOL = {"type": "function", "function": {
    "name": "python",
    "description": "Runs a Python program and answers with what it prints.",
    "parameters": {
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The whole program."}},
        "required": ["code"],
    },
}}


def prompt(system, question):
    return (
        f"<|im_start|>system\n{system}\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n" + json.dumps(TOOL) +
        "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n'
        f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )


def completion(code, printed, answer):
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    return (
        f"<tool_call>\n{call}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n{printed}\n</tool_response><|im_end|>\n"
        f"<|im_start|>assistant\n\\boxed{{{answer}}}"
    )


def program(solution):
    steps = [step.split("=")[0] for step in re.findall(r"<<([^<>]*=[^<>]*)>>", solution)]
    steps = [step for step in steps if re.fullmatch(r"[-+*/(). 0-9]+", step)]
    return "\n".join(f"print({step})" for step in steps)


def main():
    path, out, count, system = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    written = 0
    with open(path) as rows, open(out, "w") as lines:
        for row in map(json.loads, rows):
            code, answer = program(row["answer"]), row["answer"].split("####")[-1].strip().replace(",", "")
            run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=10)
            printed = run.stdout.strip()
            try:
                is_right = bool(printed) and float(printed.splitlines()[-1]) == float(answer)
            except ValueError:
                is_right = False
            if is_right:
                lines.write(json.dumps({"prompt": prompt(system, row["question"]),
                                        "completion": completion(code, printed, answer)}) + "\n")
                written += 1
            if written == count:
                break
    print(f"{written} examples")


main()
