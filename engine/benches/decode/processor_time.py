"""Tokens per second of processor time on one thread: Arc, llama.cpp, ik_llama.cpp, in turn.

For machines that are busy: time that a program waits for a processor does not count, and what a run
spends on starting and loading is taken off by running twice, for different numbers of tokens. Memory
is still shared with whoever else uses it.

    python3 engine/benches/decode/processor_time.py --arc target/release/decode-bench \\
        --llama PATH/llama-bench --ik PATH/llama-bench --tests 512,128@,2048@ --rounds 3 MODEL.gguf…

A test `N` is a prefill of N tokens, `N@` is decode at N positions. `--kernels avx2` adds Arc with
these kernels. Prints the median, and the least and the greatest, of the rounds.
"""

import argparse
import os
import statistics
import subprocess

FEW, MANY = 8, 72


def seconds(command, kernels=None):
    """Processor time of a command in user mode."""
    environment = dict(os.environ, **({"ARC_CPU_KERNELS": kernels} if kernels else {}))
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with status {status}")
    return usage.ru_utime


def arc(program, kernels):
    def rate(model, tokens, decode):
        command = [program, "-m", model, "--threads", 1, "--prompt-tokens", tokens]
        if decode:
            few, many = (seconds([*command, "-n", n + 1, "--warmup-tokens", 0], kernels)
                         for n in (FEW, MANY))
            return (MANY - FEW) / (many - few)
        once, twice = (seconds([*command, "-n", 1, "--warmup-tokens", n], kernels) for n in (0, 1))
        return tokens / (twice - once)
    return rate


def llama(program, is_ik):
    def rate(model, tokens, decode):
        command = [program, "-m", model, "-t", 1]
        command += ["-w", 0, "-rtr", 1] if is_ik else ["--no-warmup"]
        if decode:
            depth = (lambda n: ["-n", 0, "-gp", f"{tokens},{n}"]) if is_ik else (
                lambda n: ["-n", n, "-d", tokens])
            few, many = (seconds([*command, "-r", 1, "-p", 0, *depth(n)]) for n in (FEW, MANY))
            return (MANY - FEW) / (many - few)
        once, thrice = (seconds([*command, "-p", tokens, "-n", 0, "-r", r]) for r in (1, 3))
        return 2 * tokens / (thrice - once)
    return rate


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arc", required=True)
    parser.add_argument("--kernels", action="append", default=[])
    parser.add_argument("--llama")
    parser.add_argument("--ik")
    parser.add_argument("--tests", default="512,128@")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    contestants = {"arc": arc(args.arc, None)}
    contestants |= {f"arc {kernels}": arc(args.arc, kernels) for kernels in args.kernels}
    if args.llama:
        contestants["llama.cpp"] = llama(args.llama, False)
    if args.ik:
        contestants["ik_llama.cpp"] = llama(args.ik, True)
    for model in args.models:
        for test in args.tests.split(","):
            tokens, decode = int(test.rstrip("@")), test.endswith("@")
            rates = {name: [] for name in contestants}
            for _ in range(args.rounds):
                for name, rate in contestants.items():
                    rates[name].append(rate(model, tokens, decode))
            shown = "  ".join(
                f"{name} {statistics.median(r):.1f} ({min(r):.1f}-{max(r):.1f})"
                for name, r in rates.items())
            what = f"decode at {tokens}" if decode else f"prefill {tokens}"
            print(f"{os.path.basename(model)} {what}: {shown}", flush=True)


if __name__ == "__main__":
    main()
