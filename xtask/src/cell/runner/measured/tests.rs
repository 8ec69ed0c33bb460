//! Tests of reading results.

use std::path::Path;

use proptest::prelude::*;

use super::*;

#[test]
fn the_four_lines_are_found_among_others() {
    let output = "loading\nPrompt tokens: 9\nPrefill: 1 ms (9 tok/s)\nDecode: 1.0 ms (1 tok/s)\n\
                  [info] Prompt tokens: 512\n  Generated tokens: 32 (stopped)\r\n\
                  profile | Prefill: 165.40 ms (3095.56 tok/s)\nDecode:  590.58ms ( 54.18 tok/s )\n";
    assert_eq!(
        parse_profile_text(output).0,
        Measured {
            prompt_tokens: Some(512),
            generated_tokens: Some(32),
            prefill_ms: Some(165.40),
            prefill_tok_s: Some(3095.56),
            decode_ms: Some(590.58),
            decode_tok_s: Some(54.18),
            decode_kv_tokens: Some(512),
            resolution_ms: Some(0.01),
        }
    );
}

#[test]
fn what_is_missing_stays_missing() {
    assert_eq!(parse_profile_text(""), (Measured::default(), Vec::new()));
    assert!(parse_profile_text("Prompt tokens: 5\nGenerated tokens: 1\n").0.is_empty());
    let other = parse_profile_text("NotPrefill: 1 ms (1 tok/s)\n");
    assert_eq!(other, (Measured::default(), Vec::new()));
}

#[test]
fn what_is_no_number_stays_missing_and_is_noted() {
    let (measured, notes) = parse_profile_text(
        "Prefill: 3.00 ms\nDecode: 0.00 ms (inf tok/s)\nPrompt tokens: -3\n\
         Generated tokens: many\n",
    );
    let (prefill_ms, decode_ms, resolution_ms) = (Some(3.0), Some(0.0), Some(0.01));
    let expected = Measured { prefill_ms, decode_ms, resolution_ms, ..Measured::default() };
    assert_eq!(measured, expected);
    assert_eq!(
        notes,
        [
            "`Prompt tokens: -3` cannot be read whole",
            "`Generated tokens: many` cannot be read whole",
            "`Prefill: 3.00 ms` cannot be read whole",
            "`Decode: 0.00 ms (inf tok/s)` cannot be read whole",
        ]
    );
    let (measured, _) = parse_profile_text("Decode: NaN ms (2 tok/s)\nPrefill: 1e400 ms (3 tok/s)");
    assert_eq!(measured, Measured::default());
    let (measured, notes) = parse_profile_text("Decode: 5 ms (NaN tok/s)");
    let (decode_ms, resolution_ms) = (Some(5.0), Some(1.0));
    assert_eq!(measured, Measured { decode_ms, resolution_ms, ..Measured::default() });
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn thousands_may_be_grouped() {
    let (measured, notes) = parse_profile_text(
        "Prompt tokens: 32,768\nGenerated tokens: 1_024\nPrefill: 12,345.67 ms (2,654.3 tok/s)\n\
         Decode: 10'240.00 ms (100.00 tok/s)\n",
    );
    assert_eq!(notes, [""; 0]);
    assert_eq!((measured.prompt_tokens, measured.generated_tokens), (Some(32768), Some(1024)));
    assert_eq!((measured.prefill_ms, measured.prefill_tok_s), (Some(12_345.67), Some(2654.3)));
    assert_eq!(measured.decode_ms, Some(10_240.0));
    // A comma before two digits separates no thousands.
    assert_eq!(parse_profile_text("Prompt tokens: 12,34").1.len(), 1);
}

#[test]
fn a_report_gives_speeds_over_the_steps_that_were_timed() {
    let mut report = CellReport::default();
    assert_eq!(measured_from_report(&report), Measured::default());
    report.prompt.tokens = Some(500);
    report.output.tokens = Some(33);
    report.timing.prefill_ms = Some(250.0);
    report.timing.decode_ms = Some(640.0);
    let measured = measured_from_report(&report);
    assert_eq!(measured.prefill_tok_s, Some(2000.0));
    // 33 tokens, the first of them out of prefill: 32 steps in 0.64 s.
    assert_eq!(measured.decode_tok_s, Some(50.0));
    report.timing.decode_step_ms = vec![20.0; 16];
    assert_eq!(measured_from_report(&report).decode_tok_s, Some(25.0));
    report.timing.decode_ms = Some(0.0);
    report.timing.prefill_ms = Some(f64::NAN);
    let measured = measured_from_report(&report);
    assert_eq!((measured.decode_ms, measured.decode_tok_s), (Some(0.0), None));
    assert_eq!((measured.prefill_ms, measured.prefill_tok_s), (None, None));
    assert_eq!(measured.generated_tokens, Some(33));
}

#[test]
fn a_report_with_one_token_has_no_decode_speed() {
    let mut report = CellReport::default();
    report.output.tokens = Some(1);
    report.timing.decode_ms = Some(0.01);
    assert_eq!(measured_from_report(&report).decode_tok_s, None);
}

fn test_of(n_prompt: u64, n_gen: u64, n_depth: u64, avg_ns: u64, avg_ts: f64) -> String {
    format!(
        r#"{{"n_prompt":{n_prompt},"n_gen":{n_gen},"n_depth":{n_depth},"avg_ns":{avg_ns},"avg_ts":{avg_ts}}}"#
    )
}

#[test]
fn the_longest_prompt_and_the_deepest_generation_are_read() {
    let tests = [
        test_of(128, 0, 0, 1_000_000, 1.0),
        test_of(512, 0, 0, 2_000_000, 2.0),
        test_of(512, 0, 512, 3_000_000, 3.0),
        test_of(512, 32, 0, 4_000_000, 4.0),
        test_of(0, 32, 512, 5_000_000, 5.0),
        test_of(0, 32, 0, 6_000_000, 6.0),
    ];
    let expected = Measured {
        prompt_tokens: Some(512),
        generated_tokens: Some(32),
        prefill_ms: Some(2.0),
        prefill_tok_s: Some(2.0),
        decode_ms: Some(5.0),
        decode_tok_s: Some(5.0),
        decode_kv_tokens: Some(512),
        resolution_ms: None,
    };
    assert_eq!(parse_llama_bench_json(&format!("[{}]", tests.join(","))), expected);
    assert_eq!(parse_llama_bench_json(&tests.join("\n")), expected);
    let noisy = format!("[warning] slow\n{{not json}}\n{}\n[end", tests.join("\n{ }\n"));
    assert_eq!(parse_llama_bench_json(&noisy), expected);
}

#[test]
fn a_torn_entry_is_not_read() {
    let whole =
        format!("[\n  {},\n  {}\n]", test_of(512, 0, 0, 1, 1.0), test_of(0, 32, 512, 2, 2.0));
    assert_eq!(parse_llama_bench_json(&whole).decode_tok_s, Some(2.0));
    let torn = parse_llama_bench_json(&whole[..whole.len() - 3]);
    assert_eq!((torn.prefill_tok_s, torn.decode_tok_s), (Some(1.0), None));
    assert!(parse_llama_bench_json(&test_of(512, 0, 0, 1, 1.0)[1..]).is_empty());
}

#[test]
fn entries_before_depths_and_without_speeds_are_tolerated() {
    let old = r#"{"n_prompt":0,"n_gen":16,"avg_ns":2e9,"avg_ts":8.0,"later":[1]}"#;
    let measured = parse_llama_bench_json(old);
    assert_eq!((measured.decode_tok_s, measured.decode_kv_tokens), (Some(8.0), Some(0)));
    assert_eq!(measured.prompt_tokens, None);
    let zero = r#"{"n_prompt":0,"n_gen":16,"n_depth":4,"avg_ns":0,"avg_ts":null}"#;
    let measured = parse_llama_bench_json(zero);
    assert!(measured.is_empty());
    assert_eq!(measured.decode_ms, None);
}

/// Reads a file of the real test data, which is not part of the project; `None`, with a line that says
/// so, where it is absent.
#[allow(clippy::print_stderr)]
fn read_shared(path: &str) -> Option<String> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let dir = std::env::var_os("ARC_SHARED_DATA").map_or(default, Into::into);
    let read = std::fs::read_to_string(dir.join(path));
    if read.is_err() {
        eprintln!("skipped: no `{path}` in `{}` (ARC_SHARED_DATA)", dir.display());
    }
    read.ok()
}

#[test]
fn recorded_outputs_of_a_real_llama_bench_are_read() {
    if let Some(json) = read_shared("llama-bench/pp128-pp512-tg32.json") {
        let measured = parse_llama_bench_json(&json);
        assert_eq!(measured.prompt_tokens, Some(512));
        assert_eq!(measured.generated_tokens, Some(32));
        assert_eq!(measured.prefill_ms, Some(1026.370926));
        assert_eq!(measured.prefill_tok_s, Some(498.848738));
        assert_eq!(measured.decode_ms, Some(195.107291));
        assert_eq!(measured.decode_tok_s, Some(164.121768));
        assert_eq!(measured.decode_kv_tokens, Some(0));
    }
    if let Some(jsonl) = read_shared("llama-bench/tg32-d128-d512.jsonl") {
        let measured = parse_llama_bench_json(&jsonl);
        assert_eq!(measured.prompt_tokens, Some(512));
        assert_eq!(measured.decode_kv_tokens, Some(512));
        assert_eq!(measured.decode_tok_s, Some(125.381227));
        assert_eq!((measured.prefill_ms, measured.prefill_tok_s), (None, None));
        let first = jsonl.lines().next().unwrap();
        assert_eq!(parse_llama_bench_json(first).decode_tok_s, Some(147.263558));
    }
}

proptest! {
    #[test]
    fn no_output_breaks_a_reader(
        pieces in proptest::collection::vec(
            prop_oneof![
                any::<String>(),
                "(Prompt tokens|Generated tokens|Prefill|Decode):[ 0-9.emsNaif()tok/-]{0,20}",
                "[\\[{}\\]\",:a-z0-9 \n]{0,20}",
                Just(test_of(1, 0, 0, 1, 1.0)),
            ],
            0..8,
        ),
    ) {
        let output = pieces.join("\n");
        for measured in [parse_profile_text(&output).0, parse_llama_bench_json(&output)] {
            for value in [
                measured.prefill_ms, measured.prefill_tok_s, measured.decode_ms, measured.decode_tok_s,
            ].into_iter().flatten() {
                prop_assert!(value.is_finite() && value >= 0.0);
            }
        }
    }

    #[test]
    fn lines_of_any_numbers_are_read_back(
        prompt in any::<u64>(), ms in 1u32..u32::MAX, speed in 1u32..u32::MAX,
    ) {
        let (ms, speed) = (f64::from(ms) / 100.0, f64::from(speed) / 100.0);
        let (measured, _) = parse_profile_text(&format!(
            "Prompt tokens: {prompt}\nPrefill: {ms:.2} ms ({speed:.2} tok/s)\n"
        ));
        prop_assert_eq!(measured.prompt_tokens, Some(prompt));
        prop_assert_eq!((measured.prefill_ms, measured.prefill_tok_s), (Some(ms), Some(speed)));
    }
}
