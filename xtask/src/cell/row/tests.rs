//! Rows as the real files have them, both header histories, and bytes that survive.
#![allow(clippy::print_stderr)]

use proptest::prelude::*;

use super::*;

fn row() -> Row {
    Row {
        model: "llama-3.1-8b-4bit".to_owned(),
        model_path: "./models/llama-3.1-8b-4bit".to_owned(),
        measured: Measured {
            prompt_tokens: Some(512),
            generated_tokens: Some(32),
            prefill_ms: Some(155.78),
            prefill_tok_s: Some(3286.67),
            decode_ms: Some(589.27),
            decode_tok_s: Some(54.3),
            decode_kv_tokens: Some(512),
            resolution_ms: None,
        },
        date: "2026-07-03".to_owned(),
        hardware: "NVIDIA_GB10_122GB".to_owned(),
        engine_version: "0.3.3".to_owned(),
        build_type: "release".to_owned(),
        max_tokens: 32,
        prompt: "Hello, how are you today?".to_owned(),
        prompt_target_len: 512,
        classification: None,
    }
}

#[test]
fn a_measured_row_is_as_in_the_history() {
    assert_eq!(
        render_row(&row()),
        "llama-3.1-8b-4bit,./models/llama-3.1-8b-4bit,512,32,155.78,3286.67,589.27,54.30,\
         2026-07-03,NVIDIA_GB10_122GB,0.3.3,release,32,\"Hello, how are you today?\",512\n"
    );
}

#[test]
fn a_skipped_row_has_empty_numbers_and_its_token_last() {
    let skipped = Row {
        measured: Measured::default(),
        classification: Some(Classification::OomBackstop),
        prompt: String::new(),
        prompt_target_len: 32768,
        ..row()
    };
    assert_eq!(
        render_row(&skipped),
        "llama-3.1-8b-4bit,./models/llama-3.1-8b-4bit,,,,,,,2026-07-03,NVIDIA_GB10_122GB,0.3.3,\
         release,32,\"\",32768,SKIP:oom_backstop\n"
    );
}

#[test]
fn the_header_is_as_in_the_history() {
    assert_eq!(
        render_header(),
        "model,model_path,prompt_tokens,generated_tokens,prefill_ms,prefill_tok_s,decode_ms,\
         decode_tok_s,date,hardware,mlx_version,build_type,max_tokens,prompt,prompt_target_len\n"
    );
}

#[test]
fn tokens_are_found_from_the_end_in_both_histories() {
    let table = parse_csv(
        "model,model_path,prompt\na,./a,\"Hi, you\",FAIL:bench\nb,./b,\"SKIP:not this\"\n",
    )
    .unwrap();
    assert_eq!(table.rows()[0].classification_token(), Some("FAIL:bench"));
    assert_eq!(table.value(&table.rows()[0], "prompt"), Some("Hi, you"));
    assert_eq!(table.value(&table.rows()[0], "prompt_target_len"), None);
}

#[test]
fn what_is_no_csv_is_refused_with_its_line() {
    let error = |text: &str| parse_csv(text).unwrap_err().to_string();
    assert_eq!(error("a,b\n\"c,d\n"), "line 2: a quoted field that is never closed");
    assert_eq!(error("a\nb\n\"c\"d\n"), "line 3: text after a closing quote");
    assert_eq!(error("a\nb\"c\n"), "line 2: a quote inside an unquoted field");
}

#[test]
fn every_real_file_survives_reading_and_writing() {
    let folder = std::env::var_os("ARC_SHARED_DATA").map_or_else(
        || std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        Into::into,
    );
    let Ok(entries) = std::fs::read_dir(folder.join("csv")) else {
        eprintln!("skipped: no real files at `{}`", folder.display());
        return;
    };
    let mut seen = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let table = parse_csv(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(table.render(), text, "{}", path.display());
        let columns = table.records[0].fields.len();
        let is_sweep = table.value(&table.records[0], "model_path").is_some();
        for row in table.rows().iter().filter(|_| is_sweep) {
            let with_token = columns + usize::from(row.classification_token().is_some());
            assert_eq!(row.fields.len(), with_token, "{}: {row:?}", path.display());
        }
        seen.push(columns);
    }
    assert!(seen.contains(&14) && seen.contains(&15), "both histories are there: {seen:?}");
}

/// Text with what matters to CSV in it more often than chance would have it.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z,\"\r\n :]{0,12}", any::<String>()]
}

fn any_field() -> impl Strategy<Value = Field> {
    (any_text(), any::<bool>()).prop_map(|(text, quoted)| {
        // What must be quoted is quoted: the reader cannot tell the two apart.
        let must = text.contains([',', '"', '\n', '\r']);
        let quoting = if quoted || must { Quoting::Always } else { Quoting::WhereNeeded };
        Field { text, quoting }
    })
}

proptest! {
    #[test]
    fn any_fields_survive_writing_and_reading(
        records in prop::collection::vec(
            (prop::collection::vec(any_field(), 1..6), any::<bool>()), 0..6),
    ) {
        let records: Vec<Record> = records
            .into_iter()
            .map(|(fields, cr)| Record {
                fields,
                line_end: if cr { LineEnd::CrLf } else { LineEnd::Lf },
            })
            .collect();
        let table = Table { records };
        let text = table.render();
        let read = parse_csv(&text).unwrap();
        prop_assert_eq!(&read, &table);
        prop_assert_eq!(read.render(), text);
    }

    #[test]
    fn any_text_is_read_back_or_refused(text in any_text()) {
        if let Ok(table) = parse_csv(&text) {
            prop_assert_eq!(table.render(), text);
        }
    }

    #[test]
    fn any_row_is_read_back(
        model in any_text(),
        prompt in any_text(),
        class in prop::option::of(prop::sample::select(Classification::ALL.to_vec())),
    ) {
        let row = Row { model, prompt, classification: class, ..row() };
        let text = format!("{}{}", render_header(), render_row(&row));
        let table = parse_csv(&text).unwrap();
        prop_assert_eq!(table.rows().len(), 1);
        let read = &table.rows()[0];
        prop_assert_eq!(table.value(read, "model"), Some(row.model.as_str()));
        prop_assert_eq!(table.value(read, "prompt"), Some(row.prompt.as_str()));
        prop_assert_eq!(table.value(read, "prompt_target_len"), Some("512"));
        prop_assert_eq!(read.classification_token(), class.map(Classification::token));
    }
}
