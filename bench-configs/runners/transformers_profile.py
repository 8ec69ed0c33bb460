"""Measures one cell with transformers and prints the four lines of `result = "profile-text"`.

The prompt is drawn at random and has exactly the length that is asked for. Every token is chosen as the
likeliest one; an end-of-sequence token does not end it, so that the work is always the same.
"""

import argparse
import pathlib
import time

import torch
from transformers import AutoModelForCausalLM


def load(path):
    path = pathlib.Path(path)
    if path.is_file():
        return AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name)
    return AutoModelForCausalLM.from_pretrained(path)


@torch.inference_mode()
def run(model, prompt_tokens, max_tokens):
    """Returns the times of prefill and of decode, in seconds."""
    ids = torch.randint(1000, min(30000, model.config.vocab_size), (1, prompt_tokens))
    ids = ids.to(model.device)
    start = time.perf_counter()
    out = model(ids, use_cache=True)
    token = out.logits[:, -1:].argmax(-1)
    token.item()  # waits for the device
    first = time.perf_counter()
    for _ in range(max_tokens - 1):
        out = model(token, past_key_values=out.past_key_values, use_cache=True)
        token = out.logits[:, -1:].argmax(-1)
        token.item()
    return first - start, time.perf_counter() - first


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--warmup-tokens", type=int, default=4)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    model = load(args.model).to(args.device).eval()
    run(model, args.prompt_tokens, max(args.warmup_tokens, 2))
    prefill_s, decode_s = run(model, args.prompt_tokens, args.max_tokens)
    steps = args.max_tokens - 1
    print(f"Prompt tokens: {args.prompt_tokens}")
    print(f"Generated tokens: {args.max_tokens}")
    print(f"Prefill: {prefill_s * 1e3:.2f} ms ({args.prompt_tokens / prefill_s:.2f} tok/s)")
    if steps > 0:
        print(f"Decode: {decode_s * 1e3:.2f} ms ({steps / decode_s:.2f} tok/s)")


if __name__ == "__main__":
    main()
