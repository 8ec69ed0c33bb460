//! From what a runner wrote to readings, and from readings to one figure.
//!
//! It owns the fields of the cell report as paths, the tolerant reading of JSON lines (NaN included),
//! and the statistic over a series.

use std::collections::{BTreeMap, BTreeSet};

use formats::cell_report::{
    AllocCounters, AllocatorReport, AllocatorSettings, CellReport, MemoryWindow,
};
use serde_json::Value;

use super::document::{Document, Metric, Source, Statistic};
use super::sample::{Reading, Series};
use crate::base::nearest::nearest;
use crate::stats::expr::Number;
use crate::stats::location::{median, sorted};

/// What a runner's JSON lines hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Log {
    /// The records, one a step or log window.
    pub(crate) records: Vec<serde_json::Map<String, Value>>,
    /// The first line that is not a record, by its number. The lines after it were still read.
    pub(crate) problem: Option<String>,
}

/// Parses JSON lines as programs write them: a bare `NaN`, `Infinity` or `-Infinity` is a number.
pub(crate) fn parse_log(text: &str) -> Log {
    let mut log = Log::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(&quote_bare_words(line)) {
            Ok(Value::Object(record)) => log.records.push(record),
            _ => {
                log.problem
                    .get_or_insert_with(|| format!("line {} is not a JSON object", index + 1));
            }
        }
    }
    log
}

/// The line with each bare `NaN`, `Infinity` and `-Infinity` in quotes.
fn quote_bare_words(line: &str) -> String {
    if !["NaN", "Infinity"].iter().any(|word| line.contains(word)) {
        return line.to_owned();
    }
    let mut text = String::new();
    let mut rest = line;
    let (mut in_string, mut escaped) = (false, false);
    while let Some(c) = rest.chars().next() {
        let word = ["NaN", "-Infinity", "Infinity"].iter().find(|word| rest.starts_with(**word));
        if let (false, Some(word)) = (in_string, word) {
            text.push_str(&format!("\"{word}\""));
            rest = &rest[word.len()..];
            continue;
        }
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
        text.push(c);
        rest = &rest[c.len_utf8()..];
    }
    text
}

/// A number of a report or a log; a quoted NaN or infinity is one as well.
fn reading(value: &Value) -> Option<Reading> {
    match value {
        Value::Number(number) => number.as_f64().map(Reading),
        Value::String(word) => {
            let value: f64 = word.parse().ok()?;
            (!value.is_finite()).then_some(Reading(value))
        }
        _ => None,
    }
}

/// The readings of every metric of the document that the launch yielded.
pub(crate) fn read_series(
    document: &Document,
    report: Option<&CellReport>,
    log: &Log,
) -> BTreeMap<String, Series> {
    let report = report.and_then(|report| serde_json::to_value(report).ok());
    let series = |metric: &Metric| match metric.source {
        Source::Report => report_series(report.as_ref()?, &metric.field),
        Source::Log => log_series(log, &metric.field),
    };
    document
        .metrics
        .iter()
        .filter_map(|metric| Some((metric.id.clone(), series(metric)?)))
        .collect()
}

/// Why a metric of the document has no readings among `series`, in words, by its id.
pub(crate) fn explain_absent(
    document: &Document,
    series: &BTreeMap<String, Series>,
    log: &Log,
) -> BTreeMap<String, String> {
    let fields: BTreeSet<&str> =
        log.records.iter().flat_map(|record| record.keys().map(String::as_str)).collect();
    let explain = |metric: &Metric| match metric.source {
        Source::Report => format!("its report has no number at `{}`", metric.field),
        Source::Log if fields.is_empty() => "it wrote no log".to_owned(),
        Source::Log if fields.contains(metric.field.as_str()) => {
            format!("`{}` in its log is no number", metric.field)
        }
        Source::Log => {
            let list: Vec<&str> = fields.iter().copied().collect();
            let what = match nearest(&metric.field, fields.iter().copied()) {
                Some(other) => format!("did you mean `{other}`?"),
                None => format!("its fields are {}", list.join(", ")),
            };
            format!("its log has no `{}`; {what}", metric.field)
        }
    };
    (document.metrics.iter())
        .filter(|metric| !series.contains_key(&metric.id))
        .map(|metric| (metric.id.clone(), explain(metric)))
        .collect()
}

/// The readings at a path such as `timing.decode_step_ms` or `memory.windows.total_peak_bytes`.
fn report_series(report: &Value, path: &str) -> Option<Series> {
    let (head, rest) = match path.split_once('.') {
        Some((head, rest)) => (head, rest),
        None => (path, ""),
    };
    let value = report.get(head)?;
    match value {
        Value::Array(values) if rest.is_empty() => {
            let values: Vec<Reading> = values.iter().map(reading).collect::<Option<_>>()?;
            let steps = (1..=values.len() as u64).collect();
            (!values.is_empty()).then_some(Series { steps, values })
        }
        Value::Array(entries) => {
            let mut series = Series::default();
            for (index, entry) in entries.iter().enumerate() {
                let first = entry.get("first_step").and_then(Value::as_u64);
                series.steps.push(first.unwrap_or(index as u64) + 1);
                series.values.push(report_series(entry, rest)?.values.pop()?);
            }
            (!series.values.is_empty()).then_some(series)
        }
        Value::Object(_) if !rest.is_empty() => report_series(value, rest),
        _ if rest.is_empty() => Some(Series { steps: Vec::new(), values: vec![reading(value)?] }),
        _ => None,
    }
}

/// The readings of a field, with the record's own `step` where it has one.
fn log_series(log: &Log, field: &str) -> Option<Series> {
    let mut series = Series::default();
    for (index, record) in log.records.iter().enumerate() {
        if let Some(value) = record.get(field).and_then(reading) {
            let step = record.get("step").and_then(Value::as_u64);
            series.steps.push(step.unwrap_or(index as u64 + 1));
            series.values.push(value);
        }
    }
    (!series.values.is_empty()).then_some(series)
}

/// What the launch cost by the log's own word, in seconds: the last value of the field.
pub(crate) fn log_cost_s(log: &Log, field: &str) -> Option<f64> {
    let mut values = log.records.iter().filter_map(|record| record.get(field)?.as_f64());
    values.rfind(|seconds| seconds.is_finite() && *seconds >= 0.0)
}

/// The paths of the cell report that hold numbers.
pub(crate) fn report_fields() -> BTreeSet<String> {
    let mut report = CellReport::default();
    report.settings.allocator = Some(AllocatorSettings::default());
    report.timing.decode_step_ms = vec![0.0];
    report.memory.windows = vec![MemoryWindow::default()];
    let counters = AllocCounters::default();
    report.allocator =
        Some(AllocatorReport { totals: counters.clone(), decode_steps: vec![counters] });
    let mut fields = BTreeSet::new();
    if let Ok(value) = serde_json::to_value(&report) {
        collect_fields(&value, String::new(), &mut fields);
    }
    fields
}

fn collect_fields(value: &Value, path: String, fields: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_fields(inner, path, fields);
            }
        }
        Value::Array(entries) => {
            for inner in entries {
                collect_fields(inner, path.clone(), fields);
            }
        }
        // A field that is null by default may hold a number or a text; its name does not tell.
        Value::Number(_) | Value::Null => {
            fields.insert(path);
        }
        Value::Bool(_) | Value::String(_) => {}
    }
}

/// The first reading that is not a finite number, in words: `NaN at step 37`.
pub(crate) fn find_non_finite(series: &Series) -> Option<String> {
    let at = series.values.iter().position(|value| !value.0.is_finite())?;
    let value = series.values[at].0;
    Some(match series.steps.get(at) {
        Some(step) => format!("{value} at step {step}"),
        None => value.to_string(),
    })
}

/// One figure out of a series, its leading steps left out.
pub(crate) fn figure(series: &Series, discard_steps: u64, statistic: Statistic) -> Number {
    let kept: Vec<f64> = series
        .values
        .iter()
        .enumerate()
        .filter(|(at, _)| series.steps.get(*at).is_none_or(|step| *step > discard_steps))
        .map(|(_, value)| value.0)
        .collect();
    if kept.is_empty() {
        return Number::Missing(format!("no reading after the first {discard_steps} steps"));
    }
    if let Some(bad) = kept.iter().find(|value| !value.is_finite()) {
        return Number::Void(format!("a reading is {bad}"));
    }
    Number::Known(summarize(&kept, statistic))
}

/// The statistic of at least one finite value.
pub(crate) fn summarize(values: &[f64], statistic: Statistic) -> f64 {
    match statistic {
        Statistic::Median => median(values).unwrap_or(f64::NAN),
        Statistic::Mean => values.iter().sum::<f64>() / values.len() as f64,
        Statistic::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
        Statistic::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Statistic::Last => values.last().copied().unwrap_or(f64::NAN),
        Statistic::P90 => nearest_rank(values, 0.90),
        Statistic::P99 => nearest_rank(values, 0.99),
    }
}

/// The smallest value that at least this share of all values does not exceed.
fn nearest_rank(values: &[f64], share: f64) -> f64 {
    let rank = (share * values.len() as f64).ceil() as usize;
    sorted(values).get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_with_its_nans_and_its_garbage_is_named() {
        let log = parse_log(
            "{\"step\": 20, \"loss\": 1.5, \"note\": \"a NaN \\\" here\"}\n\n{\"step\": 40, \
             \"loss\": NaN, \"g\": -Infinity}\noops\n{\"step\": 60, \"loss\": 2}\n",
        );
        assert_eq!(log.records.len(), 3);
        assert_eq!(log.records[0]["note"], "a NaN \" here");
        assert_eq!(log.problem.as_deref(), Some("line 4 is not a JSON object"));
        let loss = log_series(&log, "loss").unwrap();
        assert_eq!(loss.steps, [20, 40, 60]);
        assert_eq!(find_non_finite(&loss).unwrap(), "NaN at step 40");
        assert_eq!(log_series(&log, "g").unwrap().values, [Reading(f64::NEG_INFINITY)]);
        assert_eq!(log_series(&log, "absent"), None);
    }

    #[test]
    fn leading_steps_are_left_out_by_their_number_not_their_place() {
        let series = Series {
            steps: vec![20, 40, 60, 80, 100, 120],
            values: [9.0, 9.0, 9.0, 9.0, 2.0, 4.0].map(Reading).to_vec(),
        };
        assert_eq!(figure(&series, 80, Statistic::Median), Number::Known(3.0));
        assert_eq!(figure(&series, 80, Statistic::Max), Number::Known(4.0));
        assert_eq!(figure(&series, 80, Statistic::Last), Number::Known(4.0));
        assert!(matches!(figure(&series, 120, Statistic::Median), Number::Missing(_)));
    }

    #[test]
    fn a_high_percentile_is_a_reading_by_its_rank() {
        let ten: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        assert_eq!(summarize(&ten, Statistic::P90), 9.0);
        assert_eq!(summarize(&ten, Statistic::P99), 10.0);
        assert_eq!(summarize(&ten[..1], Statistic::P90), 10.0);
        let eleven: Vec<f64> = (1..=11).map(f64::from).collect();
        assert_eq!(summarize(&eleven, Statistic::P90), 10.0);
    }

    #[test]
    fn a_figure_over_nan_does_not_exist() {
        let series = Series { steps: vec![1, 2], values: [1.0, f64::NAN].map(Reading).to_vec() };
        assert!(matches!(figure(&series, 0, Statistic::Median), Number::Void(_)));
        assert_eq!(
            figure(&series, 0, Statistic::Last),
            Number::Void("a reading is NaN".to_owned())
        );
    }

    #[test]
    fn a_report_is_read_by_path() {
        let mut report = CellReport::default();
        report.timing.decode_step_ms = vec![5.0, 1.0, 3.0];
        report.memory.total_peak_bytes = Some(7);
        for first_step in [0, 8] {
            let total_peak_bytes = Some(first_step + 1);
            report.memory.windows.push(MemoryWindow {
                first_step,
                steps: 8,
                total_peak_bytes,
                ..MemoryWindow::default()
            });
        }
        let value = serde_json::to_value(&report).unwrap();
        let series = report_series(&value, "timing.decode_step_ms").unwrap();
        assert_eq!(figure(&series, 1, Statistic::Median), Number::Known(2.0));
        let series = report_series(&value, "memory.windows.total_peak_bytes").unwrap();
        assert_eq!(series.steps, [1, 9]);
        assert_eq!(figure(&series, 8, Statistic::Max), Number::Known(9.0));
        let series = report_series(&value, "memory.total_peak_bytes").unwrap();
        assert_eq!((series.steps.len(), series.values[0]), (0, Reading(7.0)));
        // What was not measured is absent, not zero.
        assert_eq!(report_series(&value, "memory.rss_peak_bytes"), None);
        assert_eq!(report_series(&value, "memory.windows.idle_peak_bytes"), None);
        assert_eq!(report_series(&value, "timing"), None);
    }

    #[test]
    fn the_reports_fields_are_known_by_path() {
        let fields = report_fields();
        for field in [
            "timing.decode_step_ms",
            "memory.total_peak_bytes",
            "memory.windows.total_peak_bytes",
            "allocator.decode_steps.driver_allocs",
        ] {
            assert!(fields.contains(field), "{field}");
        }
        assert!(!fields.contains("memory.vram_peak"));
    }
}
