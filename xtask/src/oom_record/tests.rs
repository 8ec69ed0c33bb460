//! Tests of the OOM record.

use proptest::prelude::*;

use super::*;

fn entry(model: &str, len: u64) -> OomEntry {
    OomEntry {
        model: model.to_owned(),
        prompt_target_len: len,
        date: "2026-07-06".to_owned(),
        commit: "8f14e45".to_owned(),
        peak_bytes: None,
        source_csv: "benchmarks/cuda_gb10_longprompt_2026-07-06.csv".to_owned(),
        found_by: None,
    }
}

#[test]
fn an_entry_is_rendered_as_the_contract_says() {
    assert_eq!(
        render_entry(&entry("gemma-4-31b", 32768)),
        "gemma-4-31b,32768,2026-07-06,8f14e45,,benchmarks/cuda_gb10_longprompt_2026-07-06.csv\n"
    );
    let known = OomEntry { peak_bytes: Some(123), ..entry("a", 1) };
    assert!(render_entry(&known).contains(",8f14e45,123,"));
}

#[test]
fn an_empty_record_blocks_nothing() {
    let record = parse_record("");
    assert_eq!(record, OomRecord::default());
    assert_eq!(record.blocking("tiny", u64::MAX), None);
    assert!(record.warnings().is_empty());
}

#[test]
fn a_cell_is_blocked_at_the_recorded_length_and_beyond() {
    let text = render_entry(&entry("tiny", 2048));
    let record = parse_record(&text);
    assert_eq!(record.blocking("tiny", 2047), None);
    assert_eq!(record.blocking("tiny", 2048).unwrap().1, text.trim_end());
    assert_eq!(record.blocking("tiny", 8192).unwrap().0.prompt_target_len, 2048);
}

#[test]
fn the_shortest_recorded_length_is_the_one_shown() {
    let text = [8192, 512, 2048].map(|len| render_entry(&entry("tiny", len))).concat();
    let record = parse_record(&text);
    assert_eq!(record.blocking("tiny", 100_000).unwrap().0.prompt_target_len, 512);
    assert_eq!(record.blocking("tiny", 511), None);
}

#[test]
fn a_name_that_begins_another_does_not_block_it() {
    let record = parse_record(&render_entry(&entry("llama", 512)));
    assert_eq!(record.blocking("llama-8b", 512), None);
    let record = parse_record(&render_entry(&entry("llama-8b", 512)));
    assert_eq!(record.blocking("llama", 512), None);
}

#[test]
fn each_malformed_line_is_kept_and_warned_of_once() {
    let good = "tiny,512,2026-07-06,unknown,,b.csv";
    let text = format!(
        "tiny,512,2026-07-06\n{good}\n\n,512,2026-07-06,unknown,,b.csv\ntiny,many,2026-07-06,\
         unknown,,b.csv\r\n\"torn,512,2026"
    );
    let record = parse_record(&text);
    assert_eq!(
        record.warnings(),
        [
            "OOM record, line 1: skipped because it has 3 of 6 fields: `tiny,512,2026-07-06`",
            "OOM record, line 4: skipped because the model is empty: `,512,2026-07-06,unknown,,b.csv`",
            "OOM record, line 5: skipped because the length is not a number: \
             `tiny,many,2026-07-06,unknown,,b.csv`",
            "OOM record, line 6: skipped because it has 1 of 6 fields: `\\\"torn,512,2026`",
        ]
    );
    assert_eq!(record.lines().len(), 5);
    assert_eq!(record.blocking("tiny", 512).unwrap().1, good);
}

#[test]
fn a_torn_quote_swallows_no_later_line() {
    let record = parse_record("\"torn,512\ntiny,512,2026-07-06,unknown,,b.csv\n");
    assert!(record.blocking("tiny", 512).is_some());
}

#[test]
fn more_fields_than_six_and_a_strange_peak_are_tolerated() {
    let record = parse_record("tiny, 512 ,2026-07-06,unknown,115 GiB,b.csv,later\n");
    let (entry, _) = record.blocking("tiny", 512).unwrap();
    assert_eq!(entry.peak_bytes, None);
    assert!(record.warnings().is_empty());
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_model() {
    assert!(parse_record("\u{feff}tiny,1,d,c,,s\n").blocking("tiny", 1).is_some());
}

#[test]
fn the_prune_command_can_be_pasted_into_a_shell() {
    let command =
        |model| render_prune_command(model).split_off("cargo xtask oom-record prune ".len());
    assert_eq!(command("llama-3.1-8b"), "--model llama-3.1-8b");
    assert_eq!(command("a b"), "--model 'a b'");
    assert_eq!(command("it's"), r"--model 'it'\''s'");
    assert_eq!(command("$(x)"), "--model '$(x)'");
    assert_eq!(command(""), "--model ''");
}

fn any_field() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9.,:\"' /-]{0,12}",
        "[a-z,\"\n\r\t\u{0}]{0,12}",
        proptest::collection::vec(any::<char>(), 0..12).prop_map(String::from_iter),
    ]
}

proptest! {
    #[test]
    fn what_was_rendered_blocks_its_model_and_survives(
        model in any_field().prop_filter("a name", |name| !name.trim().is_empty()),
        len in any::<u64>(),
        peak in any::<Option<u64>>(),
        source in any_field(),
    ) {
        let entry = OomEntry { peak_bytes: peak, source_csv: source, ..entry(&model, len) };
        let text = render_entry(&entry);
        prop_assert_eq!(text.matches('\n').count(), 1);
        // A byte-order mark is dropped at the start of the file alone.
        let record = parse_record(&format!("first,1,d,c,,s\n{text}"));
        let (found, raw) = record.blocking(&model, len).expect("the cell is blocked");
        prop_assert_eq!(found.prompt_target_len, len);
        prop_assert_eq!(found.peak_bytes, peak);
        prop_assert_eq!(raw, text.strip_suffix('\n').unwrap());
        prop_assert_eq!(render_entry(found), text.clone());
    }

    #[test]
    fn no_text_breaks_the_parser(
        lines in proptest::collection::vec(any_field(), 0..12), len in any::<u64>(),
    ) {
        let text = lines.join("\n");
        let record = parse_record(&text);
        prop_assert_eq!(
            record.lines().len(),
            record.entries().count() + record.warnings().len()
        );
        prop_assert!(record.blocking("tiny", len).is_none_or(|(entry, _)| entry.model == "tiny"));
    }
}
