//! What `oom-record confirm` launches and what it concludes. Pure.

use std::collections::BTreeSet;

use anyhow::bail;

use super::args::ConfirmArgs;
use crate::base::diagnostic::HintExt as _;
use crate::cell::classify::Classification;
use crate::cell::journal::Settings;
use crate::cell::journal::request::Device;
use crate::cell::length::split_generate;
use crate::cell::variants::{Variant, parse_streams, split_streams};
use crate::oom_record::OomRecord;
use crate::oom_record::prune::PrunePlan;

/// How the cell is run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Manner {
    pub(super) runner: String,
    pub(super) device: Device,
    pub(super) max_tokens: u64,
    pub(super) warmup_tokens: u64,
    pub(super) threads: Option<u64>,
    pub(super) timeout_s: f64,
    pub(super) cell_memory_limit_mb: Option<u64>,
    /// Where the model lay, if the sweep says so.
    pub(super) model_path: Option<String>,
}

/// How the cell is run: as the sweep ran it, or as a sweep without a definition would, but for what
/// the arguments say.
///
/// # Errors
/// When a limit makes no sense.
pub(super) fn choose_manner(
    settings: Option<&Settings>,
    args: &ConfirmArgs,
) -> anyhow::Result<Manner> {
    let manner = match settings {
        Some(settings) => Manner {
            runner: settings.runner.clone(),
            device: settings.device,
            max_tokens: settings.max_tokens,
            warmup_tokens: settings.warmup_tokens,
            threads: settings.threads,
            timeout_s: settings.timeout_s,
            cell_memory_limit_mb: settings.cell_memory_limit_mb,
            model_path: settings
                .models
                .iter()
                .find(|model| model.name == args.model)
                .map(|model| model.path.clone()),
        },
        None => Manner {
            runner: "decode-bench".to_owned(),
            device: Device::Auto,
            max_tokens: 32,
            warmup_tokens: 4,
            threads: None,
            timeout_s: 300.0,
            cell_memory_limit_mb: None,
            model_path: None,
        },
    };
    let timeout_s = args.timeout.unwrap_or(manner.timeout_s);
    if !(timeout_s.is_finite() && timeout_s > 0.0 && timeout_s < 1e9) {
        bail!("--timeout: {timeout_s} is not a number of seconds above 0");
    }
    Ok(Manner {
        runner: args.runner.clone().unwrap_or(manner.runner),
        cell_memory_limit_mb: args.cell_memory_limit_mb.or(manner.cell_memory_limit_mb),
        timeout_s,
        ..manner
    })
}

/// What is changed of a model's run, by the end of a recorded name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suffix<'v> {
    pub(super) change: Option<&'v Variant>,
    pub(super) max_tokens: Option<u64>,
    pub(super) concurrency: u64,
}

/// Reads `VARIANT`, `g64`, `c4`, or those with a plus in between, in this order.
///
/// # Errors
/// The variant is none of those that the sweep had.
pub(super) fn read_suffix<'v>(
    suffix: Option<&str>,
    variants: &'v [Variant],
) -> anyhow::Result<Suffix<'v>> {
    let (before, streams) = suffix.map_or((None, None), split_streams);
    let (name, max_tokens) = before.map_or((None, None), split_generate);
    let concurrency = streams.and_then(parse_streams).unwrap_or(1);
    let Some(name) = name else { return Ok(Suffix { change: None, max_tokens, concurrency }) };
    let Some(change) = variants.iter().find(|variant| variant.name == name) else {
        return Err(anyhow::anyhow!("no journal says what the variant `{name}` is")).hint(
            "the variant of a comparison or a ladder is launched there alone: use --ignore-oom-record",
        );
    };
    Ok(Suffix { change: Some(change), max_tokens, concurrency })
}

/// What the launch says of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conclusion {
    /// It ran: they are false, or a change has fixed it.
    Drop,
    /// It ran out of memory again.
    Confirmed,
    /// Neither.
    Nothing,
}

pub(super) fn conclude(classification: Option<Classification>) -> Conclusion {
    match classification {
        None => Conclusion::Drop,
        Some(class) if class.is_true_oom() => Conclusion::Confirmed,
        Some(_) => Conclusion::Nothing,
    }
}

/// Drops a model's events at this length, and says what stays.
pub(super) fn plan_drop(record: &OomRecord, model: &str, len: u64) -> PrunePlan {
    // The shortest event is the one that blocks every length.
    let Some((shortest, _)) = record.blocking(model, u64::MAX) else { return PrunePlan::default() };
    let name = shortest.model.clone();
    let of_model = || record.entries().filter(|(entry, _)| entry.model == name);
    let dropped: BTreeSet<usize> = of_model()
        .filter(|(entry, _)| entry.prompt_target_len == len)
        .map(|(_, line)| line.number)
        .collect();
    let longer = of_model().map(|(entry, _)| entry.prompt_target_len).filter(|&other| other > len);
    let notes = longer.min().map(|next| {
        format!("the event at {next} tokens stays; `confirm` again would launch that length")
    });
    PrunePlan { dropped, notes: notes.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::journal::ModelNote;
    use crate::oom_record::parse_record;

    fn args() -> ConfirmArgs {
        ConfirmArgs {
            model: "tiny".to_owned(),
            runner: None,
            cell_memory_limit_mb: None,
            timeout: None,
        }
    }

    #[test]
    fn a_cell_is_run_as_its_sweep_ran_it_but_for_the_arguments() {
        let settings = Settings {
            runner: "llama-bench".to_owned(),
            max_tokens: 8,
            threads: Some(2),
            timeout_s: 60.0,
            cell_memory_limit_mb: Some(512),
            models: vec![ModelNote {
                name: "tiny".to_owned(),
                path: "models/t.gguf".to_owned(),
                weight_bytes: None,
            }],
            ..Settings::default()
        };
        let manner = choose_manner(Some(&settings), &args()).unwrap();
        assert_eq!((manner.runner.as_str(), manner.max_tokens), ("llama-bench", 8));
        assert_eq!((manner.threads, manner.cell_memory_limit_mb), (Some(2), Some(512)));
        assert_eq!(manner.model_path.as_deref(), Some("models/t.gguf"));
        let own = ConfirmArgs {
            runner: Some("other".to_owned()),
            cell_memory_limit_mb: Some(64),
            timeout: Some(5.0),
            ..args()
        };
        let manner = choose_manner(Some(&settings), &own).unwrap();
        assert_eq!((manner.runner.as_str(), manner.timeout_s), ("other", 5.0));
        assert_eq!(manner.cell_memory_limit_mb, Some(64));
        assert_eq!(choose_manner(None, &args()).unwrap().runner, "decode-bench");
        for timeout in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                choose_manner(None, &ConfirmArgs { timeout: Some(timeout), ..args() }).is_err()
            );
        }
    }

    #[test]
    fn the_end_of_a_name_says_what_is_changed() {
        let variants = [Variant { name: "q8".to_owned(), ..Variant::default() }];
        for (suffix, change, max_tokens, concurrency) in [
            (None, None, None, 1),
            (Some("c4"), None, None, 4),
            (Some("g64"), None, Some(64), 1),
            (Some("q8"), Some("q8"), None, 1),
            (Some("q8+g64+c4"), Some("q8"), Some(64), 4),
        ] {
            let read = read_suffix(suffix, &variants).unwrap();
            let name = read.change.map(|variant| variant.name.as_str());
            assert_eq!(
                (name, read.max_tokens, read.concurrency),
                (change, max_tokens, concurrency)
            );
        }
        let error = read_suffix(Some("killed"), &variants).unwrap_err().to_string();
        assert_eq!(error, "no journal says what the variant `killed` is");
    }

    #[test]
    fn only_the_length_that_ran_is_dropped() {
        let record = parse_record(
            "tiny,512,d,c,,a.csv\ntiny,8192,d,c,,a.csv\nbig,512,d,c,,a.csv\ntiny,512,d,c,,b.csv\n",
        );
        let plan = plan_drop(&record, "tiny", 512);
        assert_eq!(plan.dropped, BTreeSet::from([1, 4]));
        assert_eq!(
            plan.notes,
            ["the event at 8192 tokens stays; `confirm` again would launch that length"]
        );
        assert_eq!(plan_drop(&record, "none", 512), PrunePlan::default());
    }

    #[test]
    fn only_numbers_drop_and_only_a_true_oom_confirms() {
        assert_eq!(conclude(None), Conclusion::Drop);
        for class in Classification::ALL {
            let expected = match class {
                Classification::Oom => Conclusion::Confirmed,
                _ => Conclusion::Nothing,
            };
            assert_eq!(conclude(Some(class)), expected, "{class}");
        }
    }
}
