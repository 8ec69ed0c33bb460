"""Measures one cell with mistral.rs and prints the four lines of `result = "profile-text"`.

The prompt is text of random words, cut by the engine's own tokenizer to the length that is asked for; the
engine's prefix cache is off. Times and counts are those that the engine reports of a request.
"""

import argparse
import pathlib
import random

from mistralrs import CompletionRequest, Runner, Which

WORDS = "time people way day man thing woman life child world school state family student group".split()


def make_prompt(runner, tokens):
    """Text of exactly so many tokens, as the engine counts them when it is asked to complete."""
    words = [random.choice(WORDS) for _ in range(tokens + 8)]
    count = len(words)
    for _ in range(20):
        text = " ".join(words[:count])
        got = len(runner.tokenize_text(text, True, None))
        if got == tokens:
            return text
        count = max(1, min(len(words), count + tokens - got))
    raise SystemExit(f"error: no text of {tokens} tokens was found")


def ask(runner, prompt, max_tokens):
    request = CompletionRequest(prompt, "default", max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    return runner.send_completion_request(request).usage


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-tokens", type=int, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--warmup-tokens", type=int, default=4)
    args = parser.parse_args()
    path = pathlib.Path(args.model).resolve()
    which = Which.GGUF(quantized_model_id=str(path.parent), quantized_filename=path.name)
    runner = Runner(which=which, prefix_cache_n=0, max_seqs=1)
    ask(runner, make_prompt(runner, args.prompt_tokens), max(args.warmup_tokens, 2))
    usage = ask(runner, make_prompt(runner, args.prompt_tokens), args.max_tokens)
    prefill_s, decode_s = usage.total_prompt_time_sec, usage.total_completion_time_sec
    print(f"Prompt tokens: {usage.prompt_tokens}")
    print(f"Generated tokens: {usage.completion_tokens}")
    print(f"Prefill: {prefill_s * 1e3:.2f} ms ({usage.prompt_tokens / prefill_s:.2f} tok/s)")
    print(f"Decode: {decode_s * 1e3:.2f} ms ({(usage.completion_tokens - 1) / decode_s:.2f} tok/s)")


if __name__ == "__main__":
    main()
