"""Greedy tokens of Arc and of llama.cpp on the same file: how many agree, and how near the tie is
where they part.

    python3 engine/benches/decode/greedy_tokens.py --arc target/release/decode-bench \\
        --llama-server PATH/llama-server MODEL.gguf…

Each prompt goes to both as text, so the tokenizers are compared too; llama-server listens on loopback
alone. Prints a Markdown table: prompt, its tokens for both, how many of 32 tokens agree, and how far
apart, in Arc's log-probabilities, the two candidates are where the first differs.
"""

import argparse
import json
import pathlib
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

TOKENS = 32
PROMPTS = [
    "The capital of France is",
    "one, two, three, four, five,",
    "Monday, Tuesday, Wednesday,",
    "def add(a, b):\n    return",
    "Water boils at a temperature of",
    "  two  spaces\n\tand é, 日本 2026!",
]


def post(port, path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
        {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def serve(program, model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [program, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", "2", "-c", "512",
         "-np", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return server, port
        except (urllib.error.URLError, OSError):
            if server.poll() is not None:
                break
            time.sleep(0.2)
    server.kill()
    raise SystemExit(f"{program} does not answer for {model}")


def theirs(port, prompt):
    ids = post(port, "/tokenize", {"content": prompt, "add_special": True})["tokens"]
    answer = post(port, "/completion", {
        "prompt": ids, "n_predict": TOKENS, "temperature": 0, "samplers": ["temperature"],
        "ignore_eos": True, "cache_prompt": False, "return_tokens": True})
    return ids, answer["tokens"]


def arc(program, model, prompt, length):
    """A report; `prompt` is a text, or token ids, after which stop tokens do not end decoding."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "cell.json")
        given = ["-p", prompt] if isinstance(prompt, str) else [
            "--prompt-ids", ",".join(map(str, prompt))]
        subprocess.run(
            [program, "-m", model, *given, "-n", str(length), "--warmup-tokens", "0",
             "--logits-top", "1000", "--report", report],
            check=True, stdout=subprocess.DEVNULL)
        return json.loads(report.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arc", required=True)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    print("| model | prompt | prompt tokens: Arc, llama.cpp | tokens that agree | apart |")
    print("| --- | --- | --- | --- | --- |")
    for model in args.models:
        server, port = serve(args.llama_server, model)
        try:
            for prompt in PROMPTS:
                ids, expected = theirs(port, prompt)
                tokenized = arc(args.arc, model, prompt, 1)["prompt"]
                report = arc(args.arc, model, ids, TOKENS)
                same = tokenized["token_hash"] == report["prompt"]["token_hash"]
                output = report["output"]
                pairs = list(zip(output["token_ids"], expected))
                agree = next((at for at, (a, b) in enumerate(pairs) if a != b), len(pairs))
                apart = ""
                if agree < len(pairs):
                    top = {each["id"]: each["log_probability"] for each in output["top"][agree]}
                    other = top.get(expected[agree])
                    first = top[output["token_ids"][agree]]
                    apart = "beyond 1,000" if other is None else f"{first - other:.3f}"
                counts = f"{tokenized['tokens']}, {len(ids)}" + ("" if same else ", and they differ")
                name = pathlib.Path(model).stem
                print(f"| {name} | {json.dumps(prompt, ensure_ascii=False)} | {counts} | "
                      f"{agree} of {len(pairs)} | {apart} |", flush=True)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
