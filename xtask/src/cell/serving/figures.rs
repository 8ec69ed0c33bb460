//! From what the client saw to what a row and a journal say. Pure.
//!
//! A row shows real requests, not mixtures: prefill is that of the request with the median time to the
//! first text, decode that of the request with the median speed. The journal has them all.

use formats::cell_report::{CellReport, SCHEMA};
use serde::Serialize;

use super::{RequestSample, Served};
use crate::cell::result::CellNumbers;
use crate::cell::runner::Measured;
use crate::cell::work::is_near;
use crate::stats::location::sorted;

/// Percentiles of some times, in milliseconds: each is one of the times (nearest rank).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
struct Percentiles {
    count: usize,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

/// What the journal has of a served cell beside the fields of a cell report.
#[derive(Debug, Serialize)]
struct ServingNote<'a> {
    #[serde(flatten)]
    served: &'a Served,
    /// Time to the first text; `None` where no request was measured.
    first_ms: Option<Percentiles>,
    between_ms: Option<Percentiles>,
    /// Generated tokens of all streams over the time from the first request to the end of the last.
    total_tok_s: Option<f64>,
    notes: Vec<String>,
}

/// The numbers of a cell that was served.
///
/// # Errors
/// What the server does not say, without which there is no number, in words.
pub(crate) fn numbers_of(
    served: &Served,
    target: u64,
    max_tokens: u64,
) -> Result<CellNumbers, String> {
    let requests = &served.requests;
    if requests.iter().any(|sample| sample.prompt_tokens.is_none()) {
        return Err("the server does not report the tokens of its prompts (`usage`)".to_owned());
    }
    // A request that did other work than it was asked for must not hide behind the median.
    let odd = requests.iter().find(|sample| {
        !sample.prompt_tokens.is_some_and(|tokens| is_near(tokens, target))
            || sample.generated_tokens.is_some_and(|tokens| {
                tokens > max_tokens || (tokens < max_tokens && !stopped_by_itself(sample))
            })
    });
    let by_first = |sample: &RequestSample| Some(sample.first_ms);
    let prefill = odd.or_else(|| median_request(requests, by_first));
    let decode = odd.or_else(|| median_request(requests, decode_tok_s)).or(prefill);
    let notes = find_notes(served);
    let cached = requests.iter().any(took_from_cache);
    let prefill_ms = prefill.map(|sample| sample.first_ms).filter(|_| !cached);
    let prompt_tokens = prefill.and_then(|sample| sample.prompt_tokens);
    // Of several tokens a piece the first ones were there before the time began, so it is not that of
    // the tokens after the first.
    let decode_ms =
        decode.filter(|sample| is_token_by_token(sample)).map(decode_ms).filter(|ms| *ms > 0.0);
    let generated_tokens = decode.and_then(|sample| sample.generated_tokens);
    let measured = Measured {
        prompt_tokens,
        generated_tokens,
        prefill_ms,
        prefill_tok_s: prompt_tokens.zip(prefill_ms).map(|(tokens, ms)| tokens as f64 * 1e3 / ms),
        decode_ms,
        decode_tok_s: decode.and_then(decode_tok_s),
        decode_kv_tokens: prompt_tokens,
        resolution_ms: None,
    };
    if measured.is_empty() {
        return Err("the answers hold no speed: too few pieces of text, or no counts".to_owned());
    }
    let mut report = CellReport { schema: SCHEMA, ..CellReport::default() };
    report.prompt.target_tokens = Some(target);
    report.prompt.tokens = prompt_tokens;
    report.settings.max_tokens = Some(max_tokens);
    report.timing.load_ms = Some(served.ready_ms);
    report.timing.prefill_ms = prefill_ms;
    report.timing.decode_ms = decode_ms;
    report.timing.decode_step_ms = decode.map(|sample| sample.gap_ms.clone()).unwrap_or_default();
    report.output.tokens = generated_tokens;
    let note = ServingNote {
        served,
        first_ms: percentiles(requests.iter().map(|sample| sample.first_ms)),
        between_ms: percentiles(requests.iter().flat_map(|sample| sample.gap_ms.iter().copied())),
        total_tok_s: total_tok_s(served),
        notes: notes.clone(),
    };
    let mut json = serde_json::to_value(&report).map_err(|error| error.to_string())?;
    let note = serde_json::to_value(&note).map_err(|error| error.to_string())?;
    json.as_object_mut().expect("a report is an object").insert("serving".to_owned(), note);
    Ok(CellNumbers { measured, report: Some(report), report_json: Some(json), notes })
}

/// Whether the model ended the answer, rather than the limit.
fn stopped_by_itself(sample: &RequestSample) -> bool {
    sample.finish_reason.as_deref() == Some("stop")
}

/// Whether the pieces are tokens, so that the time from the first to the last is that of the tokens
/// after the first.
fn is_token_by_token(sample: &RequestSample) -> bool {
    let pieces = sample.gap_ms.len() as f64 + 1.0;
    sample.generated_tokens.is_none_or(|tokens| {
        let (tokens, after_first) = (tokens as f64, tokens as f64 - 1.0);
        (tokens * (pieces - 1.0) / pieces - after_first).abs() <= 0.01 * after_first
    })
}

/// Time from the first text to the last.
fn decode_ms(sample: &RequestSample) -> f64 {
    sample.gap_ms.iter().sum()
}

/// Tokens over time from the first text to the last.
///
/// `t` tokens in `e` pieces: the first piece holds `t / e` of them on average and was there when the
/// time began. Where each token is a piece of its own, that leaves `t − 1`.
fn decode_tok_s(sample: &RequestSample) -> Option<f64> {
    let (gaps, ms) = (sample.gap_ms.len() as f64, decode_ms(sample));
    let tokens = sample.generated_tokens? as f64;
    (ms > 0.0).then(|| tokens * gaps / (gaps + 1.0) / ms * 1e3)
}

/// The request in the middle; of an even count the lower one.
fn median_request(
    requests: &[RequestSample],
    by: impl Fn(&RequestSample) -> Option<f64>,
) -> Option<&RequestSample> {
    let mut known: Vec<(f64, &RequestSample)> =
        requests.iter().filter_map(|sample| Some((by(sample)?, sample))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    known.get(known.len().saturating_sub(1) / 2).map(|(_, sample)| *sample)
}

fn took_from_cache(sample: &RequestSample) -> bool {
    sample.cached_tokens.zip(sample.prompt_tokens).is_some_and(|(cached, all)| cached > all / 10)
}

fn find_notes(served: &Served) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(sample) = served.requests.iter().find(|sample| took_from_cache(sample)) {
        notes.push(format!(
            "the server took {} of {} prompt tokens from a cache, so prefill was not measured",
            sample.cached_tokens.unwrap_or(0),
            sample.prompt_tokens.unwrap_or(0)
        ));
    }
    let several = served.requests.iter().find(|sample| !is_token_by_token(sample));
    if let Some(sample) = several {
        notes.push(format!(
            "{} tokens came in {} pieces, so the times between are those between pieces",
            sample.generated_tokens.unwrap_or(0),
            sample.gap_ms.len() + 1
        ));
    }
    notes
}

fn total_tok_s(served: &Served) -> Option<f64> {
    let tokens: Option<u64> = served.requests.iter().map(|sample| sample.generated_tokens).sum();
    (served.wall_ms > 0.0).then_some(tokens? as f64 * 1e3 / served.wall_ms)
}

fn percentiles(times: impl Iterator<Item = f64>) -> Option<Percentiles> {
    let times = sorted(&times.collect::<Vec<f64>>());
    // The smallest rank that covers the share; ranks begin at 1.
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).max(1) - 1];
    let max = *times.last()?;
    Some(Percentiles { count: times.len(), p50: at(50), p90: at(90), p99: at(99), max })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(first_ms: f64, gap_ms: &[f64]) -> RequestSample {
        RequestSample {
            first_ms,
            gap_ms: gap_ms.to_vec(),
            prompt_tokens: Some(100),
            cached_tokens: None,
            generated_tokens: Some(gap_ms.len() as u64 + 1),
            finish_reason: Some("length".to_owned()),
        }
    }

    fn served(requests: Vec<RequestSample>) -> Served {
        Served { concurrency: 1, ready_ms: 5.0, wall_ms: 1000.0, requests, ..Served::default() }
    }

    fn numbers(requests: Vec<RequestSample>) -> CellNumbers {
        numbers_of(&served(requests), 100, 3).unwrap()
    }

    #[test]
    fn a_row_shows_the_requests_in_the_middle() {
        let numbers = numbers(vec![
            sample(30.0, &[1.0, 1.0]),
            sample(10.0, &[4.0, 4.0]),
            sample(20.0, &[2.0, 2.0]),
        ]);
        let measured = numbers.measured;
        assert_eq!((measured.prefill_ms, measured.prefill_tok_s), (Some(20.0), Some(5000.0)));
        assert_eq!((measured.decode_ms, measured.decode_tok_s), (Some(4.0), Some(500.0)));
        assert_eq!((measured.prompt_tokens, measured.generated_tokens), (Some(100), Some(3)));
        let json = numbers.report_json.unwrap();
        assert_eq!(json["timing"]["decode_step_ms"], serde_json::json!([2.0, 2.0]));
        let serving = &json["serving"];
        assert_eq!(serving["first_ms"]["p50"], 20.0);
        assert_eq!(serving["first_ms"]["p99"], 30.0);
        // Sorted: 1 1 2 2 4 4.
        assert_eq!(
            (&serving["between_ms"]["p50"], &serving["between_ms"]["p90"]),
            (&2.0.into(), &4.0.into())
        );
        assert_eq!(serving["total_tok_s"], 9.0);
        assert_eq!(serving["requests"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let hundred = percentiles((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!((hundred.p50, hundred.p90, hundred.p99, hundred.max), (50.0, 90.0, 99.0, 100.0));
        let one = percentiles(std::iter::once(7.0)).unwrap();
        assert_eq!((one.count, one.p50, one.p99), (1, 7.0, 7.0));
        assert_eq!(percentiles(std::iter::empty()), None);
    }

    #[test]
    fn several_tokens_a_piece_are_no_faster_for_it() {
        // Eight tokens in four pieces, 10 ms apart: six tokens in 30 ms.
        let double = RequestSample { generated_tokens: Some(8), ..sample(1.0, &[10.0; 3]) };
        let numbers = numbers_of(&served(vec![double]), 100, 8).unwrap();
        assert_eq!(
            (numbers.measured.decode_ms, numbers.measured.decode_tok_s),
            (None, Some(200.0))
        );
        let notes = &numbers.report_json.unwrap()["serving"]["notes"];
        assert_eq!(numbers.notes.len(), 1);
        assert_eq!(
            notes[0],
            "8 tokens came in 4 pieces, so the times between are those between pieces"
        );
    }

    #[test]
    fn other_work_than_was_asked_for_does_not_hide_behind_the_median() {
        let short = RequestSample { prompt_tokens: Some(17), ..sample(20.0, &[2.0, 2.0]) };
        let numbers = numbers(vec![sample(20.0, &[2.0, 2.0]), short, sample(20.0, &[2.0, 2.0])]);
        assert_eq!(numbers.measured.prompt_tokens, Some(17));
        let cut = RequestSample { generated_tokens: Some(2), ..sample(20.0, &[2.0]) };
        let whole = || sample(20.0, &[2.0, 2.0]);
        let shown = |cut: &RequestSample| {
            self::numbers(vec![whole(), cut.clone(), whole()]).measured.generated_tokens
        };
        assert_eq!(shown(&cut), Some(2));
        // A model may end its answer.
        let ended =
            RequestSample { finish_reason: Some("stop".to_owned()), gap_ms: vec![3.0], ..cut };
        assert_eq!(shown(&ended), Some(3));
    }

    #[test]
    fn what_came_from_a_cache_is_no_prefill() {
        let cached = RequestSample { cached_tokens: Some(90), ..sample(2.0, &[2.0, 2.0]) };
        let numbers = numbers(vec![sample(20.0, &[2.0, 2.0]), cached]);
        assert_eq!((numbers.measured.prefill_ms, numbers.measured.prefill_tok_s), (None, None));
        assert_eq!(numbers.measured.decode_tok_s, Some(500.0));
        let notes = numbers.report_json.unwrap()["serving"]["notes"][0].to_string();
        assert!(notes.contains("90 of 100 prompt tokens from a cache"), "{notes}");
        // A template that every prompt begins with is no cache to speak of.
        let little = RequestSample { cached_tokens: Some(4), ..sample(20.0, &[2.0, 2.0]) };
        assert_eq!(self::numbers(vec![little]).measured.prefill_ms, Some(20.0));
    }

    #[test]
    fn without_counts_there_are_no_numbers() {
        let uncounted = RequestSample { prompt_tokens: None, ..sample(1.0, &[1.0]) };
        let error = numbers_of(&served(vec![uncounted]), 100, 2).unwrap_err();
        assert!(error.contains("does not report the tokens"), "{error}");
        let single = RequestSample { gap_ms: Vec::new(), ..sample(1.0, &[]) };
        assert_eq!(self::numbers(vec![single]).measured.decode_tok_s, None);
    }
}
