//! Whether a sweep can be gone on with: what would make its rows incomparable is refused, what
//! would not is taken over with a note.

use crate::cell::journal::Settings;
use crate::cell::length::render_lengths;
use crate::cell::quiet::SweepQuiet;
use crate::cell::variants::{PLAIN, Variant};

/// What a resumed sweep changes of its earlier start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Rows before and after could not be compared.
    pub(crate) refused: Vec<String>,
    /// Taken over, and said in the journal.
    pub(crate) noted: Vec<String>,
}

/// Holds the settings of now against those of the sweep's last start.
pub(crate) fn compare_settings(then: &Settings, now: &Settings) -> Changes {
    let mut changes = Changes::default();
    let mut refuse = |name: &str, then: String, now: String| {
        if then != now {
            changes.refused.push(format!("{name}: {then} → {now}"));
        }
    };
    refuse("runner", then.runner.clone(), now.runner.clone());
    if !is_same_runner(then, now) {
        refuse("the runner's definition", short(&then.runner_sha256), short(&now.runner_sha256));
    }
    let program = |settings: &Settings| settings.program_sha256.clone().unwrap_or_default();
    refuse("the program", short(&program(then)), short(&program(now)));
    refuse("hardware", then.hardware.clone(), now.hardware.clone());
    refuse("device", format!("{:?}", then.device), format!("{:?}", now.device));
    let lengths = |settings: &Settings| format!("[{}]", render_lengths(&settings.lengths));
    refuse("lengths", lengths(then), lengths(now));
    let streams = |settings: &Settings| settings.concurrency.clone().unwrap_or(vec![1]);
    refuse("concurrency", format!("{:?}", streams(then)), format!("{:?}", streams(now)));
    refuse("max_tokens", then.max_tokens.to_string(), now.max_tokens.to_string());
    let repeats = |settings: &Settings| settings.repeats.unwrap_or(1).to_string();
    let variants = |settings: &Settings| {
        let set = |v: &Variant| {
            v.set.iter().map(|(name, value)| format!("; {name} = {value}")).collect::<String>()
        };
        let of = |v: &Variant| format!("{} ({}{})", v.name, v.args.join(" "), set(v));
        let plain = settings.plain.unwrap_or(true).then(|| PLAIN.to_owned());
        plain.into_iter().chain(settings.variants.iter().map(of)).collect::<Vec<_>>().join(", ")
    };
    refuse("variants", variants(then), variants(now));
    refuse("repeats", repeats(then), repeats(now));
    refuse("warmup_tokens", then.warmup_tokens.to_string(), now.warmup_tokens.to_string());
    refuse("threads", or_unset(then.threads), or_unset(now.threads));
    refuse(
        "cell_memory_limit_mb",
        or_unset(then.cell_memory_limit_mb),
        or_unset(now.cell_memory_limit_mb),
    );
    refuse("faked cells", then.fake_cells.join(", "), now.fake_cells.join(", "));
    refuse("models", render_models(then), render_models(now));
    if now.timeout_s < then.timeout_s {
        refuse("timeout_s", then.timeout_s.to_string(), now.timeout_s.to_string());
    }

    let mut note = |name: &str, then: String, now: String| {
        if then != now {
            changes.noted.push(format!("{name}: {then} → {now}"));
        }
    };
    note("config", then.config.clone(), now.config.clone());
    if now.timeout_s > then.timeout_s {
        note("timeout_s", then.timeout_s.to_string(), now.timeout_s.to_string());
    }
    let quiet = |settings: &Settings| settings.quiet.unwrap_or(SweepQuiet::Off).word().to_owned();
    note("quiet", quiet(then), quiet(now));
    let order = |settings: &Settings| format!("{:?}", settings.order.unwrap_or_default());
    note("order", order(then), order(now));
    note("cooldown_s", then.cooldown_s.to_string(), now.cooldown_s.to_string());
    note("big_cooldown_s", then.big_cooldown_s.to_string(), now.big_cooldown_s.to_string());
    if then.runner_sha256 != now.runner_sha256 && is_same_runner(then, now) {
        note(
            "the runner's definition, in comments or the order of keys",
            short(&then.runner_sha256),
            short(&now.runner_sha256),
        );
    }
    changes
}

/// Whether the runner's definition says the same, by its text or by what it means.
fn is_same_runner(then: &Settings, now: &Settings) -> bool {
    let by_meaning = then.runner_meaning_sha256.is_some()
        && then.runner_meaning_sha256 == now.runner_meaning_sha256;
    then.runner_sha256 == now.runner_sha256 || by_meaning
}

fn or_unset(value: Option<u64>) -> String {
    value.map_or_else(|| "unset".to_owned(), |value| value.to_string())
}

/// The beginning of a hash, as people compare it.
fn short(sha256: &str) -> String {
    sha256.chars().take(12).collect()
}

fn render_models(settings: &Settings) -> String {
    let models = settings.models.iter().map(|model| {
        let bytes = model.weight_bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
        format!("{} ({}{bytes})", model.name, model.path)
    });
    models.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::grid::Order;
    use crate::cell::journal::ModelNote;
    use crate::cell::length::Length;
    use crate::cell::variants::Variant;

    fn settings() -> Settings {
        Settings {
            runner: "decode-bench".to_owned(),
            runner_sha256: "a".repeat(64),
            runner_meaning_sha256: Some("m".repeat(64)),
            program_sha256: Some("p".repeat(64)),
            lengths: [128, 512].map(Length::Prompt).to_vec(),
            max_tokens: 32,
            timeout_s: 60.0,
            models: vec![ModelNote { name: "tiny".to_owned(), ..ModelNote::default() }],
            ..Settings::default()
        }
    }

    fn changes(change: impl FnOnce(&mut Settings)) -> Changes {
        let mut now = settings();
        change(&mut now);
        compare_settings(&settings(), &now)
    }

    #[test]
    fn what_makes_rows_incomparable_is_refused_by_name() {
        let refused: Vec<(&str, Changes)> = vec![
            ("models", changes(|s| s.models.clear())),
            ("models", changes(|s| s.models[0].weight_bytes = Some(1))),
            ("lengths", changes(|s| s.lengths.push(Length::Pair([512, 8])))),
            ("concurrency", changes(|s| s.concurrency = Some(vec![1, 4]))),
            ("runner", changes(|s| s.runner = "other".to_owned())),
            ("the program", changes(|s| s.program_sha256 = None)),
            ("threads", changes(|s| s.threads = Some(1))),
            ("cell_memory_limit_mb", changes(|s| s.cell_memory_limit_mb = Some(1))),
            ("max_tokens", changes(|s| s.max_tokens = 16)),
            ("warmup_tokens", changes(|s| s.warmup_tokens = 1)),
            ("repeats", changes(|s| s.repeats = Some(3))),
            ("variants", changes(|s| s.variants.push(Variant::default()))),
            ("hardware", changes(|s| s.hardware = "other".to_owned())),
            ("timeout_s", changes(|s| s.timeout_s = 59.0)),
            (
                "the runner's definition",
                changes(|s| {
                    s.runner_sha256 = "b".repeat(64);
                    s.runner_meaning_sha256 = Some("n".repeat(64));
                }),
            ),
        ];
        for (name, changes) in refused {
            assert_eq!(changes.refused.len(), 1, "{name}: {changes:?}");
            assert!(changes.refused[0].starts_with(&format!("{name}: ")), "{changes:?}");
            assert!(changes.noted.is_empty(), "{changes:?}");
        }
    }

    #[test]
    fn what_does_not_is_taken_over_with_a_note() {
        let noted: Vec<(&str, Changes)> = vec![
            ("timeout_s: 60 → 90", changes(|s| s.timeout_s = 90.0)),
            ("cooldown_s: 0 → 5", changes(|s| s.cooldown_s = 5.0)),
            ("big_cooldown_s: 0 → 30", changes(|s| s.big_cooldown_s = 30.0)),
            ("quiet: off → repeat", changes(|s| s.quiet = Some(SweepQuiet::Repeat))),
            ("order: ModelMajor → Interleaved", changes(|s| s.order = Some(Order::Interleaved))),
            (
                "the runner's definition, in comments or the order of keys: aaaaaaaaaaaa → \
                 bbbbbbbbbbbb",
                changes(|s| s.runner_sha256 = "b".repeat(64)),
            ),
        ];
        for (note, changes) in noted {
            assert_eq!(changes, Changes { refused: vec![], noted: vec![note.to_owned()] });
        }
        assert_eq!(changes(|_| {}), Changes::default());
    }
}
