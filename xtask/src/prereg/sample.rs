//! The raw samples of a run, one JSON object a line: everything that a report is made of.
//!
//! It owns the record types and their lines. A record holds what was measured, as measured; what
//! follows from it is computed again each time, by `judge`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::hash::sha256_hex;
use crate::cell::classify::Classification;

pub(crate) mod file;

/// One line of `samples.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Record {
    /// The first line: what is being run.
    Run(RunRecord),
    /// A binary was built, or found unchanged.
    Build(BuildRecord),
    Launch(LaunchRecord),
    Command(CommandRecord),
    /// The run went on past its ceiling.
    OverCeiling {
        reason: String,
    },
    Stopped {
        why: String,
    },
    /// Something that the frozen document did not foresee.
    Deviation {
        text: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) entry_sha256: String,
    /// `YYYY-MM-DD`
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) commit: String,
    /// How the run is judged.
    #[serde(skip_serializing_if = "Judging::is_by_value", default)]
    pub(crate) judging: Judging,
}

/// How a run is judged: by what was the rule when it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judging {
    /// By the values of reads alone, the base's failures as those of any rung. Samples have no hashes.
    #[default]
    ByValue,
    /// A base that fails ends the run, and what is no more than noise lands nothing. Each line of the
    /// samples carries the hash of the line before.
    WithNoise,
}

impl Judging {
    fn is_by_value(&self) -> bool {
        *self == Judging::ByValue
    }

    /// How the run with these records is judged; one that has not begun, as runs are now.
    pub(crate) fn of(records: &[Record]) -> Judging {
        run_in(records).map_or(Judging::WithNoise, |run| run.judging)
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildRecord {
    /// Which code and features: what [`super::compose::Configuration::build_key`] gives.
    pub(crate) key: String,
    pub(crate) sha256: String,
    pub(crate) cost_s: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub(crate) enum Slot {
    Oracle {
        /// Which settings and items: what [`super::oracle::Shot::key`] gives.
        shot: String,
    },
    Ladder {
        round: u32,
        /// Id of the rung, [`super::compose::NULL`] for the null rung.
        rung: String,
        repeat: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    #[serde(flatten)]
    pub(crate) slot: Slot,
    pub(crate) items: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<Failure>,
    /// Why it does not count, where the machine was not quiet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) rejected: Option<String>,
    /// What disturbed it, in words; it may count all the same.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) disturbed: Vec<String>,
    pub(crate) series: BTreeMap<String, Series>,
    /// Why a metric has no readings, in words, by its id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) absent: BTreeMap<String, String>,
    /// Hash of the generated tokens, where the runner reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) token_hash: Option<String>,
    /// SHA-256 of the files that `file-equal` oracles compare.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) files: BTreeMap<String, String>,
    /// The effective settings that the runner reported, for the reader.
    #[serde(skip_serializing_if = "serde_json::Value::is_null", default)]
    pub(crate) settings: serde_json::Value,
    pub(crate) cost_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) class: Classification,
    pub(crate) detail: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommandRecord {
    pub(crate) oracle: String,
    /// The item that it judged; `None` for an oracle of a rung.
    pub(crate) item: Option<String>,
    /// Its exit code; `None` where a signal or the time limit ended it.
    pub(crate) exit: Option<i32>,
    pub(crate) detail: String,
    pub(crate) cost_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// The step that each reading belongs to, from 1; empty for a metric that is read once.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) steps: Vec<u64>,
    pub(crate) values: Vec<Reading>,
}

/// A number as measured, NaN and infinities included, which JSON cannot express.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading(pub(crate) f64);

impl PartialEq for Reading {
    fn eq(&self, other: &Reading) -> bool {
        self.0 == other.0 || (self.0.is_nan() && other.0.is_nan())
    }
}

impl Serialize for Reading {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str(&self.0.to_string())
        }
    }
}

impl<'de> Deserialize<'de> for Reading {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reading, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Number(f64),
            Word(String),
        }
        match Raw::deserialize(deserializer)? {
            Raw::Number(value) => Ok(Reading(value)),
            Raw::Word(word) => match word.parse::<f64>() {
                Ok(value) if !value.is_finite() => Ok(Reading(value)),
                _ => Err(serde::de::Error::custom(format!("`{word}` is not a reading"))),
            },
        }
    }
}

impl Record {
    /// The record as a line, line feed included, with the hash of the line before, if it has one.
    pub(crate) fn render(&self, previous: Option<&str>) -> Result<String, serde_json::Error> {
        let line = serde_json::to_string(self)?;
        Ok(match previous {
            Some(hash) => format!("{{\"previous\":\"{hash}\",{}\n", &line[1..]),
            None => line + "\n",
        })
    }

    pub(crate) fn cost_s(&self) -> f64 {
        match self {
            Record::Build(build) => build.cost_s,
            Record::Launch(launch) => launch.cost_s,
            Record::Command(command) => command.cost_s,
            Record::Run(_)
            | Record::OverCeiling { .. }
            | Record::Stopped { .. }
            | Record::Deviation { .. } => 0.0,
        }
    }
}

impl LaunchRecord {
    /// A launch that left nothing and cost nothing.
    pub(crate) fn new(slot: Slot, items: Vec<String>) -> LaunchRecord {
        LaunchRecord {
            slot,
            items,
            failed: None,
            rejected: None,
            disturbed: Vec::new(),
            series: BTreeMap::new(),
            absent: BTreeMap::new(),
            token_hash: None,
            files: BTreeMap::new(),
            settings: serde_json::Value::Null,
            cost_s: 0.0,
        }
    }
}

/// The samples of a file, and what a crash left of a last line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Samples {
    pub(crate) records: Vec<Record>,
    pub(crate) whole_bytes: usize,
    /// What follows after the last line feed: a line that was not finished. Empty but for a crash.
    pub(crate) torn: String,
    /// SHA-256 of the last whole line, without its line feed.
    pub(crate) last_sha256: Option<String>,
    /// The first line whose hash of the line before does not match, in words.
    pub(crate) broken: Option<String>,
}

/// The part of a line that ties it to the one before.
#[derive(Deserialize)]
struct Link {
    previous: Option<String>,
}

/// SHA-256 of a line, without its line feed, in lower-case hex.
pub(crate) fn hash_line(line: &str) -> String {
    sha256_hex(line.trim_end_matches('\n').as_bytes())
}

/// Parses `samples.jsonl`.
///
/// # Errors
/// Names the line that is not a record. A last line without its line feed is torn, which is not an
/// error.
pub(crate) fn parse_samples(text: &str) -> Result<Samples, String> {
    let whole_bytes = text.rfind('\n').map_or(0, |at| at + 1);
    let mut records: Vec<Record> = Vec::new();
    let (mut last_sha256, mut broken) = (None, None);
    for (index, line) in text[..whole_bytes].split_terminator('\n').enumerate() {
        let bad = |error| format!("line {}: {error}", index + 1);
        records.push(serde_json::from_str(line).map_err(bad)?);
        let link: Link = serde_json::from_str(line).map_err(bad)?;
        // Runs that began before lines were tied to each other have no hashes.
        let is_chained = Judging::of(&records) == Judging::WithNoise;
        if is_chained && link.previous != last_sha256 && broken.is_none() {
            broken = Some(format!(
                "line {} does not hold the hash of the line before: a line was changed, added or removed",
                index + 1
            ));
        }
        last_sha256 = Some(hash_line(line));
    }
    Ok(Samples { records, whole_bytes, torn: text[whole_bytes..].to_owned(), last_sha256, broken })
}

/// What was run; `None` where a crash came before the first line.
pub(crate) fn run_in(records: &[Record]) -> Option<&RunRecord> {
    records.iter().find_map(|record| match record {
        Record::Run(run) => Some(run),
        _ => None,
    })
}

/// Every launch, those that do not count included.
pub(crate) fn launches_in(records: &[Record]) -> impl Iterator<Item = &LaunchRecord> {
    records.iter().filter_map(|record| match record {
        Record::Launch(launch) => Some(launch),
        _ => None,
    })
}

pub(crate) fn total_cost_s(records: &[Record]) -> f64 {
    records.iter().map(Record::cost_s).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prereg::fixture;

    fn launch() -> Record {
        let slot = Slot::Ladder { round: 1, rung: "C".to_owned(), repeat: 2 };
        let mut launch = fixture::launch(slot, &["P1"]);
        let detail = "out of memory".to_owned();
        launch.failed = Some(Failure { class: Classification::Oom, detail });
        let readings = fixture::series(&[1.5, f64::NAN, f64::INFINITY]);
        launch.series.insert("loss".to_owned(), readings);
        Record::Launch(launch)
    }

    #[test]
    fn a_record_survives_its_line_even_with_nan_and_infinity() {
        let line = launch().render(None).unwrap();
        assert!(line.contains(r#""values":[1.5,"NaN","inf"]"#), "{line}");
        assert!(
            line.contains(r#""kind":"launch","stage":"ladder","round":1,"rung":"C""#),
            "{line}"
        );
        let samples = parse_samples(&line).unwrap();
        assert_eq!(samples.records, [launch()]);
        assert_eq!(samples.torn, "");
    }

    #[test]
    fn a_torn_last_line_is_kept_apart_and_a_bad_one_is_named() {
        let line = launch().render(None).unwrap();
        let samples = parse_samples(&format!("{line}{{\"kind\":\"lau")).unwrap();
        assert_eq!((samples.records.len(), samples.whole_bytes), (1, line.len()));
        assert_eq!(samples.torn, "{\"kind\":\"lau");
        let error = parse_samples(&format!("{line}{{\"kind\":\"lau\n")).unwrap_err();
        assert!(error.starts_with("line 2: "), "{error}");
    }

    fn run(judging: Judging) -> Record {
        let text = String::new;
        Record::Run(RunRecord {
            name: text(),
            version: 1,
            entry_sha256: text(),
            date: text(),
            machine: text(),
            commit: text(),
            judging,
        })
    }

    #[test]
    fn each_line_holds_the_hash_of_the_one_before() {
        let first = run(Judging::WithNoise).render(None).unwrap();
        let second = launch().render(Some(&hash_line(&first))).unwrap();
        let third = launch().render(Some(&hash_line(&second))).unwrap();
        let whole = format!("{first}{second}{third}");
        let samples = parse_samples(&whole).unwrap();
        assert_eq!(samples.broken, None);
        assert_eq!(samples.records[1], launch());
        assert_eq!(samples.last_sha256, Some(hash_line(&third)));
        for (edited, at) in [
            (whole.replacen("1.5", "1.4", 1), 3),
            (format!("{first}{third}"), 2),
            (format!("{first}{third}{second}"), 2),
            (format!("{first}{}", launch().render(None).unwrap()), 2),
            (format!("{second}{third}"), 1),
        ] {
            let broken = parse_samples(&edited).unwrap().broken.unwrap();
            assert!(broken.starts_with(&format!("line {at} does not hold")), "{at}: {broken}");
        }
        // A run that began before has none.
        let old = [run(Judging::ByValue), launch()].map(|record| record.render(None).unwrap());
        assert!(!old[0].contains("judging"), "{}", old[0]);
        assert_eq!(parse_samples(&old.concat()).unwrap().broken, None);
    }

    #[test]
    fn a_word_is_not_a_reading() {
        assert!(serde_json::from_str::<Reading>("\"3\"").is_err());
        assert!(serde_json::from_str::<Reading>("\"NaN\"").unwrap().0.is_nan());
    }
}
