//! The runner as a user runs it: profile lines, report, determinism, caps, and running out of
//! memory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::model::ModelConfig;
use engine::model::gguf::{Array, Gguf, Value};
use formats::cell_report::CellReport;
use made::Made;
use testkit::{Command, Workspace};

#[path = "forward/made.rs"]
#[allow(dead_code, reason = "these tests need a part of it")]
mod made;

const DECODE_BENCH: &str = env!("CARGO_BIN_EXE_decode-bench");
const TINY: &str = "bench-configs/models/tiny.toml";

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// In the workspace, whose models it needs, with the synthetic ones in the target folder of this build.
fn command(program: &str) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    // Prefill of the longest prompt takes minutes on a busy machine.
    Command::new(program, workspace())
        .env("CARGO_TARGET_DIR", target)
        .limit(Duration::from_secs(1_200))
}

fn decode_bench(args: &[&str]) -> Command {
    command(DECODE_BENCH).args(args)
}

/// Runs `tiny` with these arguments and reads its report, stdout and stderr.
fn report(args: &[&str]) -> (CellReport, String, String) {
    let folder = Workspace::empty(DECODE_BENCH);
    let path = folder.path("cell.json");
    let start = ["-m", TINY, "--report", path.to_str().unwrap()];
    let ran = decode_bench(&[&start, args].concat()).run().exits_with(0);
    (serde_json::from_slice(&folder.read_bytes(path)).unwrap(), ran.stdout, ran.stderr)
}

#[test]
fn a_cell_prints_the_profile_lines_and_reports_what_it_did() {
    let (report, stdout, stderr) =
        report(&["--prompt-tokens", "70", "-n", "6", "--threads", "2", "--prefill-chunk", "32"]);
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..2], ["Prompt tokens: 70", "Generated tokens: 6"]);
    for (line, key) in lines[2..].iter().zip(["Prefill: ", "Decode: "]) {
        let rest = line.strip_prefix(key).unwrap();
        let (ms, rate) = rest.split_once(" ms (").unwrap();
        assert!(ms.parse::<f64>().unwrap() > 0.0);
        assert!(rate.strip_suffix(" tok/s)").unwrap().parse::<f64>().unwrap() > 0.0);
    }
    assert_eq!((lines.len(), stderr.as_str()), (4, ""));
    assert_eq!(report.schema, formats::cell_report::SCHEMA);
    assert_eq!(report.model.architecture.as_deref(), Some("llama"));
    assert_eq!(report.model.path.as_deref(), Some("bench-configs/models/tiny.toml"));
    assert_eq!(report.model.name.as_deref(), Some("tiny"));
    assert_eq!(report.model.quantization.as_deref(), Some("Q8_0"));
    let parameters = report.model.parameters.unwrap();
    assert!((9_000_000..12_000_000).contains(&parameters), "{parameters}");
    assert!(report.model.weight_bytes_per_token < report.model.weight_bytes);
    assert_eq!((report.prompt.target_tokens, report.prompt.tokens), (Some(70), Some(70)));
    assert_eq!((report.settings.threads, report.settings.prefill_chunk), (Some(2), Some(32)));
    assert_eq!(report.output.tokens, Some(6));
    assert_eq!(report.output.token_ids.len(), 6);
    assert_eq!(report.timing.decode_step_ms.len(), 5);
    let sum: f64 = report.timing.decode_step_ms.iter().sum();
    assert!((sum - report.timing.decode_ms.unwrap()).abs() < 1e-9);
    let consulted: Vec<&str> = report.environment.iter().map(|e| e.name.as_str()).collect();
    assert!(consulted.contains(&"RAYON_NUM_THREADS"), "{consulted:?}");
    if cfg!(target_os = "linux") {
        assert!(report.memory.rss_peak_bytes.unwrap() > report.model.weight_bytes.unwrap());
        assert_eq!(report.memory.windows.len(), 1);
    }
}

/// Neither the number of threads nor the prefill chunk nor the warm-up changes a token.
#[test]
fn the_same_prompt_gives_the_same_tokens() {
    let first = report(&["--prompt-tokens", "90", "-n", "12"]).0;
    for args in [
        &["--threads", "1"] as &[&str],
        &["--threads", "2"],
        &["--threads", "3", "--warmup-tokens", "0"],
        &["--prefill-chunk", "17"],
    ] {
        let mut all = vec!["--prompt-tokens", "90", "-n", "12"];
        all.extend(args);
        let again = report(&all).0;
        assert_eq!(again.prompt.token_hash, first.prompt.token_hash);
        assert_eq!(again.output.token_hash, first.output.token_hash, "{args:?}");
    }
    let other = report(&["--prompt-tokens", "91", "-n", "12"]).0;
    assert_ne!(other.prompt.token_hash, first.prompt.token_hash);
}

/// What ran is in the report; a path that is not there is an error before anything is loaded.
#[test]
fn kernels_and_kv_type_are_chosen_and_reported() {
    let (report, stdout, _) =
        report(&["--prompt-tokens", "20", "-n", "4", "--kv-type", "q8_0", "--batch", "3"]);
    let settings = &report.settings;
    assert_eq!((settings.kv_type.as_deref(), settings.batch), (Some("q8_0"), Some(3)));
    assert_eq!(settings.kernels.as_deref(), Some(engine::model::Kernels::detect().name()));
    let last = stdout.lines().last().unwrap();
    assert!(last.starts_with("Batch: 3 sequences, each "), "{stdout}");
    let run = |name: &str| {
        let args = ["-m", "bench-configs/models/tiny.toml", "--prompt-tokens", "20", "-n", "4"];
        let ran = decode_bench(&args).env("ARC_CPU_KERNELS", name).run();
        (ran.code, ran.stderr)
    };
    assert_eq!(run("scalar"), (Some(0), String::new()));
    let (code, stderr) = run("sse9");
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: ARC_CPU_KERNELS=sse9: `sse9` is not a kernel"), "{stderr}");
}

/// Beside the file and the KV cache, a process takes no more than 64 MiB, whatever the type.
#[cfg(target_os = "linux")]
#[test]
fn resident_memory_is_that_of_the_file_and_the_cache() {
    let folder = Workspace::empty(DECODE_BENCH);
    let tiny = std::fs::read_to_string(workspace().join(TINY)).unwrap();
    for quantisation in
        ["f32", "f16", "bf16", "q4_0", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"]
    {
        let name = format!("{quantisation}.toml");
        // Large enough that holding weights twice, or as F32, would show.
        let text = tiny
            .replace("q8_0", quantisation)
            .replace("vocab = 12288", "vocab = 98304")
            .replace("ffn = 1024", "ffn = 4096");
        folder.write(&name, text);
        let (model, report) = (folder.path(&name), folder.path("cell.json"));
        decode_bench(&["-m", model.to_str().unwrap(), "--prompt-tokens", "600", "-n", "4"])
            .args(["--threads", "2", "--report", report.to_str().unwrap()])
            .env("CARGO_TARGET_DIR", folder.root())
            .run()
            .exits_with(0);
        let report: CellReport = serde_json::from_slice(&folder.read_bytes(report)).unwrap();
        let weights = report.model.weight_bytes.unwrap();
        // Four layers, two heads of 64, keys and values of two bytes.
        let kv = 604 * 4 * 2 * 64 * 2 * 2;
        let beside = report.memory.rss_peak_bytes.unwrap().saturating_sub(weights + kv) >> 20;
        assert!(beside <= 64, "{quantisation}: {beside} MiB beside {weights} bytes of weights");
        // What loading freed went back to the system, and what did not is in the report.
        if cfg!(target_env = "gnu") {
            let retained = report.memory.libc_retained_bytes.unwrap() >> 20;
            assert!(retained <= 16, "{quantisation}: the C library keeps {retained} MiB");
        }
    }
}

/// The same over files of one's own, as a table:
/// `ARC_MEMORY_MODELS=FOLDER cargo test -p engine --test decode_bench folder -- --nocapture`.
#[cfg(target_os = "linux")]
#[test]
#[allow(clippy::print_stdout, reason = "tests show what they measured")]
fn files_of_a_folder_take_their_size_and_the_cache() {
    let Some(models) = std::env::var_os("ARC_MEMORY_MODELS") else {
        println!("skipped: ARC_MEMORY_MODELS is not set");
        return;
    };
    let entries = std::fs::read_dir(models).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "gguf")).collect();
    files.sort();
    let folder = Workspace::empty(DECODE_BENCH);
    let path = folder.path("cell.json");
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut above = Vec::new();
    println!("| MiB | file | KV | peak resident | beside both | kept by the C library |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for file in files {
        let args = ["-m", file.to_str().unwrap(), "--prompt-tokens", "512", "-n", "8"];
        decode_bench(&args).args(["--report", path.to_str().unwrap()]).run().exits_with(0);
        let report: CellReport = serde_json::from_slice(&folder.read_bytes(&path)).unwrap();
        let config = ModelConfig::parse(&Gguf::read(&file).unwrap().0).unwrap();
        let row = config.layers * config.kv_heads * config.head_dim * 2 * 2;
        let (size, kv) = (file.metadata().unwrap().len(), (520 * row) as u64);
        let peak = report.memory.rss_peak_bytes.unwrap();
        let beside = peak as f64 - (size + kv) as f64;
        let kept = report.memory.libc_retained_bytes.unwrap_or(0);
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
            mib(size),
            mib(kv),
            mib(peak),
            beside / f64::from(1 << 20),
            mib(kept)
        );
        if beside > f64::from(64 << 20) {
            above.push(name);
        }
    }
    assert!(above.is_empty(), "more than 64 MiB beside file and cache: {above:?}");
}

#[test]
fn a_prompt_beyond_the_context_is_capped_with_a_warning() {
    let folder = Workspace::empty(DECODE_BENCH);
    let tiny = std::fs::read_to_string(workspace().join(TINY)).unwrap();
    folder.write("short.toml", tiny.replace("context = 65536", "context = 64"));
    let (model, report) = (folder.path("short.toml"), folder.path("cell.json"));
    let stderr =
        decode_bench(&["-m", model.to_str().unwrap(), "--prompt-tokens", "100", "-n", "8"])
            .args(["--report".as_ref(), report.as_os_str()])
            .env("CARGO_TARGET_DIR", folder.root())
            .run()
            .exits_with(0)
            .stderr;
    assert!(stderr.starts_with("warning: the model's context is 64 tokens"), "{stderr}");
    let report: CellReport = serde_json::from_slice(&folder.read_bytes(report)).unwrap();
    assert_eq!((report.prompt.target_tokens, report.prompt.tokens), (Some(100), Some(56)));
    assert_eq!(folder.names("synthetic").len(), 1);
}

#[test]
fn what_cannot_be_measured_is_an_error_with_its_cause() {
    let folder = Workspace::empty(DECODE_BENCH);
    let broken = folder.path("broken.gguf");
    folder.write(&broken, b"GGUF\x03\0\0\0rest");
    for (model, expected) in [
        ("no/such/model.gguf", "error: cannot find the model `no/such/model.gguf`"),
        (broken.to_str().unwrap(), "error: cannot load the model"),
        (folder.root().to_str().unwrap(), "error: cannot load the model"),
    ] {
        let ran = decode_bench(&["-m", model]).run().exits_with(1);
        assert!(ran.stderr.starts_with(expected) && ran.stderr.lines().count() == 1, "{ran}");
        assert!(ran.stdout.is_empty(), "{ran}");
    }
    let ran = decode_bench(&["-m", TINY, "-p", "hello"]).run();
    assert!(ran.stderr.starts_with("error: --prompt needs a tokenizer"), "{ran}");
}

/// A small model whose tokenizer is of a kind that is not known.
fn with_tokenizer(folder: &Workspace, pre: &str) -> PathBuf {
    let text = |text: &str| Value::String(text.to_owned());
    let words = (0..320).map(|word| format!("word{word}")).collect();
    let path = folder.path("model.gguf");
    Made::named("qwen2")
        .with("tokenizer.ggml.model", text("gpt2"))
        .with("tokenizer.ggml.pre", text(pre))
        .with("tokenizer.ggml.tokens", Value::Array(Array::String(words)))
        .with("tokenizer.ggml.merges", Value::Array(Array::String(Vec::new())))
        .write(&path);
    path
}

#[test]
fn a_cell_by_length_needs_no_tokenizer() {
    for (pre, warns) in [
        ("tekken", "`tokenizer.ggml.pre`"),
        ("gpt-4o", "`tokenizer.ggml.pre`"),
        ("gpt-2", "`tokenizer.ggml.tokens`"),
    ] {
        let folder = Workspace::empty(DECODE_BENCH);
        let path = with_tokenizer(&folder, pre);
        let model = path.to_str().unwrap();
        let ran = decode_bench(&["-m", model, "--prompt-tokens", "9", "-n", "2"]).run();
        let ran = ran.exits_with(0);
        assert!(ran.stderr.starts_with("warning: the model's tokenizer cannot be used"), "{ran}");
        assert!(ran.stderr.contains(warns) && ran.stdout.contains("Prompt tokens: 9"), "{ran}");
        let ran = decode_bench(&["-m", model, "-p", "hello", "-n", "2"]).run().exits_with(1);
        assert!(ran.stderr.contains(warns), "{ran}");
    }
}

/// Vocabularies are padded to round numbers of rows: those without a token are no error.
#[test]
fn there_may_be_more_rows_than_tokens() {
    let folder = Workspace::empty(DECODE_BENCH);
    let path = folder.path("model.gguf");
    // GPT-2's names of the bytes: printable ones stand for themselves, others for what follows 255.
    let printable = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut next = 256;
    let names = (0..256).map(|byte| {
        let name = if printable(byte) { byte } else { next };
        next += u32::from(!printable(byte));
        char::from_u32(name).unwrap().to_string()
    });
    let names: Vec<String> = names.collect();
    Made::named("qwen2")
        .with("tokenizer.ggml.model", Value::String("gpt2".to_owned()))
        .with("tokenizer.ggml.pre", Value::String("gpt-2".to_owned()))
        .with("tokenizer.ggml.tokens", Value::Array(Array::String(names)))
        .with("tokenizer.ggml.merges", Value::Array(Array::String(Vec::new())))
        .write(&path);
    let report = folder.path("cell.json");
    let model = ["-m", path.to_str().unwrap(), "--report", report.to_str().unwrap(), "--show-text"];
    for prompt in [["-p", "hello"], ["--prompt-ids", "104,101,108,108,319"]] {
        let ran = decode_bench(&[&model[..], &prompt, &["-n", "40"]].concat()).run().exits_with(0);
        assert!(ran.stdout.contains("Prompt tokens: 5"), "{ran}");
        let report: CellReport = serde_json::from_slice(&folder.read_bytes(&report)).unwrap();
        assert!(report.output.token_ids.iter().any(|&id| id >= 256), "{:?}", report.output);
    }
}

/// Names out of a file cannot send control sequences to the terminal.
#[test]
fn control_characters_of_a_file_are_escaped() {
    let folder = Workspace::empty(DECODE_BENCH);
    let path = folder.path("model.gguf");
    Made::named("qwen2").tensor("blk.0.\u{1b}[2J\r", &[4]).write(&path);
    let ran = decode_bench(&["-m", path.to_str().unwrap()]).run().exits_with(1);
    assert!(ran.stderr.contains("`blk.0.\\u{1b}[2J\\r`"), "{ran}");
}

#[test]
fn token_ids_are_a_prompt_and_the_likeliest_tokens_are_reported() {
    let fixture = made::fixture("gemma3");
    let folder = Workspace::empty(DECODE_BENCH);
    let (path, report) = (folder.path("model.gguf"), folder.path("cell.json"));
    Made::of(&fixture).write(&path);
    let ids = fixture["prompt"].as_array().unwrap();
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let ids = ids.join(",");
    let args = ["-m", path.to_str().unwrap(), "--prompt-ids", &ids, "-n", "16", "--kv-type", "f32"];
    decode_bench(&args)
        .args(["--logits-top", "5", "--report", report.to_str().unwrap()])
        .run()
        .exits_with(0);
    let report: CellReport = serde_json::from_slice(&folder.read_bytes(report)).unwrap();
    let tokens: Vec<u64> = report.output.token_ids.iter().map(|&id| id.into()).collect();
    assert_eq!(serde_json::to_value(tokens).unwrap(), fixture["tokens"]);
    assert_eq!(report.output.top.len(), 16);
    for (ours, theirs) in report.output.top.iter().zip(fixture["top"].as_array().unwrap()) {
        assert_eq!(u64::from(ours[0].id), theirs[0][0].as_u64().unwrap());
        let theirs = theirs[0][1].as_f64().unwrap();
        assert!((f64::from(ours[0].log_probability) - theirs).abs() < 2e-3);
    }
    let unknown = ["-m", path.to_str().unwrap(), "--prompt-ids", "1,320"];
    let ran = decode_bench(&unknown).run().exits_with(1);
    assert!(ran.stderr.contains("token 320 is beyond the vocabulary of 320"), "{ran}");
}

#[test]
fn numbers_beyond_any_machine_are_errors_or_capped() {
    let folder = Workspace::empty(DECODE_BENCH);
    let path = folder.path("model.gguf");
    Made::named("qwen2").with("qwen2.context_length", Value::Unsigned(64)).write(&path);
    let model = path.to_str().unwrap();
    let ran = decode_bench(&["-m", model, "-n", "18446744073709551615"]).run().exits_with(0);
    assert!(ran.stdout.contains("Generated tokens: 63"), "{ran}");
    let ran = decode_bench(&["-m", model, "--threads", "100000"]).run().exits_with(2);
    assert!(ran.stderr.contains("must be from 1 to 1024"), "{ran}");
    let ids = vec!["1"; 64].join(",");
    let ran = decode_bench(&["-m", model, "--prompt-ids", &ids]).run().exits_with(1);
    assert!(ran.stderr.contains("the prompt has 64 tokens"), "{ran}");
}

/// With its address space capped, a prompt that needs more ends the process with the allocator's
/// text and an abort, not with a hang or an exit code of its own.
#[cfg(target_os = "linux")]
#[test]
fn running_out_of_memory_aborts_with_the_allocators_text() {
    let ran = command("/bin/sh")
        .args(["-c", "ulimit -v 245760; exec \"$@\"", "sh", DECODE_BENCH, "-m", TINY])
        .args(["--prompt-tokens", "60000", "-n", "2", "--kv-type", "f32"])
        .run();
    assert_eq!(ran.signal, Some(libc::SIGABRT), "{ran}");
    assert!(
        ran.stderr.contains("memory allocation of") && ran.stderr.contains("bytes failed"),
        "{ran}"
    );
}

/// A prompt of 32,768 tokens stays under 2 GiB of resident memory: attention holds a few tiles, not
/// a matrix of chunk × context, and never one of context². Time does grow with context², so builds
/// with debug assertions hold a quarter of the prompt to a quarter of the memory;
/// `cargo test --release -p engine --test decode_bench` runs the whole.
#[test]
fn a_prompt_of_32768_tokens_stays_under_two_gibibytes() {
    let part = if cfg!(debug_assertions) { 4 } else { 1 };
    let tokens = (32768 / part).to_string();
    let args = ["--prompt-tokens", &tokens, "-n", "4", "--warmup-tokens", "0"];
    let (report, _, _) = report(&args);
    assert_eq!(report.prompt.tokens, Some(32768 / part));
    if let Some(peak) = report.memory.rss_peak_bytes {
        assert!(peak < (2 << 30) / part, "{peak} bytes at the peak");
    }
}
