//! What a runner measured, read from the formats that it may come in. A value that is not there, or
//! is not a finite number, is `None`, never 0.

use std::borrow::Cow;

use formats::cell_report::CellReport;
use serde::{Deserialize, Serialize};

/// Characters of a line that a note about it holds.
const NOTE_CHARS: usize = 80;

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Measured {
    /// Tokens that the prompt really had.
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) generated_tokens: Option<u64>,
    pub(crate) prefill_ms: Option<f64>,
    pub(crate) prefill_tok_s: Option<f64>,
    pub(crate) decode_ms: Option<f64>,
    pub(crate) decode_tok_s: Option<f64>,
    /// Tokens in the KV cache when decode began, where the runner says so.
    pub(crate) decode_kv_tokens: Option<u64>,
    /// What the last digit of its times stands for, in milliseconds, where they were written as text.
    #[serde(skip)]
    pub(crate) resolution_ms: Option<f64>,
}

impl Measured {
    /// Whether it holds no speed at all, so that the cell counts as one without output.
    pub(crate) fn is_empty(&self) -> bool {
        self.prefill_tok_s.is_none() && self.decode_tok_s.is_none()
    }
}

/// Reads the numbers out of a cell report.
///
/// Decode's speed is the number of decode steps over their time. The first token comes out of prefill,
/// so there is a step less than tokens.
pub(crate) fn measured_from_report(report: &CellReport) -> Measured {
    let timing = &report.timing;
    let steps = match timing.decode_step_ms.len() {
        0 => report.output.tokens.map(|tokens| tokens.saturating_sub(1)),
        steps => u64::try_from(steps).ok(),
    };
    // No time for some work is kept: it says that the result cannot be true.
    let time_of = |ms: Option<f64>, tokens: Option<u64>| {
        ms.filter(|ms| is_duration(ms) || (*ms == 0.0 && tokens.is_some_and(|tokens| tokens > 0)))
    };
    let prefill_ms = time_of(timing.prefill_ms, report.prompt.tokens);
    let decode_ms = time_of(timing.decode_ms, steps);
    Measured {
        prompt_tokens: report.prompt.tokens,
        generated_tokens: report.output.tokens,
        prefill_ms,
        prefill_tok_s: per_second(report.prompt.tokens, prefill_ms),
        decode_ms,
        decode_tok_s: per_second(steps, decode_ms),
        decode_kv_tokens: report.prompt.tokens,
        resolution_ms: None,
    }
}

/// Reads the four lines `Prompt tokens: N`, `Generated tokens: N`, `Prefill: X ms (Y tok/s)` and
/// `Decode: X ms (Y tok/s)`, wherever they stand within the output; and notes of what stands behind
/// these words and cannot be read.
///
/// What precedes them on their line does not matter; of several the last one counts, since a warm-up
/// pass comes first. The output is to be given as a terminal shows it.
pub(crate) fn parse_profile_text(output: &str) -> (Measured, Vec<String>) {
    let mut measured = Measured::default();
    let (mut prefill_resolution_ms, mut decode_resolution_ms) = (None, None);
    for line in output.lines() {
        if let Some(text) = after_label(line, "Prompt tokens:") {
            measured.prompt_tokens = parse_count(text).or(measured.prompt_tokens);
        }
        if let Some(text) = after_label(line, "Generated tokens:") {
            measured.generated_tokens = parse_count(text).or(measured.generated_tokens);
        }
        if let Some((ms, tok_s, resolution)) = after_label(line, "Prefill:").and_then(parse_phase) {
            (measured.prefill_ms, measured.prefill_tok_s) = (Some(ms), tok_s);
            prefill_resolution_ms = Some(resolution);
        }
        if let Some((ms, tok_s, resolution)) = after_label(line, "Decode:").and_then(parse_phase) {
            (measured.decode_ms, measured.decode_tok_s) = (Some(ms), tok_s);
            decode_resolution_ms = Some(resolution);
        }
    }
    let resolutions = prefill_resolution_ms.into_iter().chain(decode_resolution_ms);
    measured.resolution_ms = resolutions.reduce(f64::max);
    measured.decode_kv_tokens = measured.prompt_tokens;
    let unread = [
        ("Prompt tokens:", measured.prompt_tokens.is_none()),
        ("Generated tokens:", measured.generated_tokens.is_none()),
        ("Prefill:", measured.prefill_tok_s.is_none()),
        ("Decode:", measured.decode_tok_s.is_none()),
    ];
    let notes = unread.into_iter().filter(|(_, missing)| *missing).filter_map(|(label, _)| {
        let text = output.lines().rev().find_map(|line| after_label(line, label))?;
        let text: String = text.chars().take(NOTE_CHARS).collect();
        Some(format!("`{label} {text}` cannot be read whole"))
    });
    let notes = notes.collect();
    (measured, notes)
}

/// Reads what `llama-bench -o json` or `-o jsonl` prints, with anything else around it ignored.
///
/// Each entry is one test. Prefill comes from the test of prompt processing alone into an empty cache,
/// of several the longest prompt; decode from the test of generation alone with the deepest cache.
/// Times are the averages over the repetitions.
pub(crate) fn parse_llama_bench_json(output: &str) -> Measured {
    let entries = parse_entries(output);
    let prefill = entries
        .iter()
        .filter(|entry| entry.n_prompt > 0 && entry.n_gen == 0 && entry.n_depth == 0)
        .max_by_key(|entry| entry.n_prompt);
    let decode = entries
        .iter()
        .filter(|entry| entry.n_prompt == 0 && entry.n_gen > 0)
        .max_by_key(|entry| entry.n_depth);
    let ms = |entry: &LlamaBenchEntry| entry.avg_ns.map(|ns| ns / 1e6).filter(is_duration);
    let tok_s = |entry: &LlamaBenchEntry| entry.avg_ts.filter(is_duration);
    let depth = decode.map(|entry| entry.n_depth);
    Measured {
        prompt_tokens: prefill.map(|entry| entry.n_prompt).or(depth.filter(|depth| *depth > 0)),
        generated_tokens: decode.map(|entry| entry.n_gen),
        prefill_ms: prefill.and_then(ms),
        prefill_tok_s: prefill.and_then(tok_s),
        decode_ms: decode.and_then(ms),
        decode_tok_s: decode.and_then(tok_s),
        decode_kv_tokens: depth,
        resolution_ms: None,
    }
}

/// One test of `llama-bench`: the fields that are read. Versions before depths have no `n_depth`.
#[derive(Debug, Deserialize)]
struct LlamaBenchEntry {
    n_prompt: u64,
    n_gen: u64,
    #[serde(default)]
    n_depth: u64,
    avg_ns: Option<f64>,
    avg_ts: Option<f64>,
}

/// The entries of every JSON value that begins a line: an array, or an object for each line. Logs may
/// stand between them. Of an array that was cut off the whole entries are tests that were finished, so
/// they are read; a torn entry is not.
fn parse_entries(output: &str) -> Vec<LlamaBenchEntry> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Document {
        Array(Vec<LlamaBenchEntry>),
        Entry(LlamaBenchEntry),
    }

    let mut entries = Vec::new();
    let mut rest = output;
    while !rest.is_empty() {
        if rest.trim_start().starts_with(['[', '{']) {
            let mut documents = serde_json::Deserializer::from_str(rest).into_iter::<Document>();
            if let Some(Ok(document)) = documents.next() {
                rest = &rest[documents.byte_offset()..];
                match document {
                    Document::Array(array) => entries.extend(array),
                    Document::Entry(entry) => entries.push(entry),
                }
                continue;
            }
        }
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
    }
    entries
}

/// What follows the label in the line, unless the label is the end of a longer word.
fn after_label<'a>(line: &'a str, label: &str) -> Option<&'a str> {
    let at = line.rfind(label)?;
    let within_a_word = line[..at].chars().next_back().is_some_and(char::is_alphanumeric);
    (!within_a_word).then(|| line[at + label.len()..].trim())
}

fn parse_count(text: &str) -> Option<u64> {
    without_separators(text.split_whitespace().next()?).parse().ok()
}

fn parse_number(text: &str) -> Option<f64> {
    without_separators(text.trim()).parse().ok()
}

/// A number without what groups its thousands: a comma, an underscore, or an apostrophe before every
/// three digits. Where the groups have other sizes it is left as it is, and is then no number.
fn without_separators(text: &str) -> Cow<'_, str> {
    let (whole, fraction) = text.find('.').map_or((text, ""), |dot| text.split_at(dot));
    let Some(separator) = whole.chars().find(|c| matches!(c, ',' | '_' | '\'')) else {
        return Cow::Borrowed(text);
    };
    let groups: Vec<&str> = whole.split(separator).collect();
    let is_grouped = (1..=3).contains(&groups[0].len())
        && groups[1..].iter().all(|group| group.len() == 3)
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_digit()));
    if is_grouped { Cow::Owned(groups.concat() + fraction) } else { Cow::Borrowed(text) }
}

/// Reads `X ms (Y tok/s)`: the time, which may be 0 as it is printed, the speed if it is a number, and what
/// the last digit of the time stands for.
fn parse_phase(text: &str) -> Option<(f64, Option<f64>, f64)> {
    let (ms, rest) = text.split_once("ms")?;
    let decimals = ms.trim().split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let resolution_ms = 10_f64.powi(-i32::try_from(decimals).ok()?);
    let ms = parse_number(ms).filter(|ms| is_duration(ms) || *ms == 0.0)?;
    let tok_s = rest.trim().strip_prefix('(').and_then(|rest| rest.split_once("tok/s"));
    let tok_s = tok_s.and_then(|(tok_s, _)| parse_number(tok_s)).filter(is_duration);
    Some((ms, tok_s, resolution_ms))
}

fn per_second(count: Option<u64>, ms: Option<f64>) -> Option<f64> {
    // Counts of tokens are far below 2^53, so nothing is lost.
    let per_second = count? as f64 * 1000.0 / ms?;
    Some(per_second).filter(is_duration)
}

/// Whether this can be a time or a speed that was measured.
fn is_duration(value: &f64) -> bool {
    value.is_finite() && *value > 0.0
}

#[cfg(test)]
mod tests;
