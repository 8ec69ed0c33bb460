//! The result of one cell, out of what its process left: a report, or text on stdout.
//!
//! Pure. A result that cannot be read, or that belongs to another cell, is a reason in words and
//! never a number.

use formats::cell_report::CellReport;

use crate::base::shown::as_shown;
use crate::cell::runner::{
    Measured, ResultFormat, measured_from_report, parse_llama_bench_json, parse_profile_text,
};

/// What a process left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leavings {
    /// What it wrote to stdout, as far as it was kept.
    pub(crate) stdout: String,
    pub(crate) stdout_omitted_bytes: u64,
    /// What it wrote to stderr, as far as it was kept.
    pub(crate) stderr: String,
    /// The file at the report's path; `None` where there is none.
    pub(crate) report: Option<String>,
}

/// A result that holds numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CellNumbers {
    pub(crate) measured: Measured,
    /// The cell report, where the runner writes one.
    pub(crate) report: Option<CellReport>,
    /// The same as it was written, with what this version does not know.
    pub(crate) report_json: Option<serde_json::Value>,
    /// What of the result could not be read, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// Reads the result of a cell at a prompt length.
///
/// # Errors
/// Why there are no numbers, in words.
pub(crate) fn parse_result(
    format: ResultFormat,
    prompt_target_len: u64,
    leavings: &Leavings,
) -> Result<CellNumbers, String> {
    let plain = |measured, notes| CellNumbers { measured, report: None, report_json: None, notes };
    let numbers = match format {
        ResultFormat::Report => parse_report(prompt_target_len, leavings.report.as_deref())?,
        ResultFormat::ProfileText => {
            let shown = as_shown(&format!("{}\n{}", leavings.stdout, leavings.stderr));
            let (measured, notes) = parse_profile_text(&shown);
            plain(measured, notes)
        }
        ResultFormat::LlamaBenchJson if leavings.stdout_omitted_bytes > 0 => {
            return Err(format!(
                "stdout is too long to be a result: {} bytes were not kept",
                leavings.stdout_omitted_bytes
            ));
        }
        ResultFormat::Log => return Err("its log is read by ladders alone".to_owned()),
        ResultFormat::OpenaiStream => return Err("no client asked the server".to_owned()),
        ResultFormat::LlamaBenchJson => plain(parse_llama_bench_json(&leavings.stdout), Vec::new()),
    };
    if numbers.measured.is_empty() {
        return Err(match numbers.notes.is_empty() {
            true => "the result has no speed".to_owned(),
            false => format!("the result has no speed: {}", numbers.notes.join("; ")),
        });
    }
    Ok(numbers)
}

fn parse_report(prompt_target_len: u64, text: Option<&str>) -> Result<CellNumbers, String> {
    let text = text.ok_or("no cell report was written")?;
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| format!("the cell report is not valid JSON: {error}"))?;
    if !json.is_object() {
        return Err("the cell report is not a JSON object".to_owned());
    }
    let report: CellReport = serde_json::from_value(json.clone())
        .map_err(|error| format!("the cell report is invalid: {error}"))?;
    match report.prompt.target_tokens {
        Some(target) if target != prompt_target_len => Err(format!(
            "the cell report is for another cell: {target} prompt tokens instead of \
             {prompt_target_len}"
        )),
        _ => Ok(CellNumbers {
            measured: measured_from_report(&report),
            report: Some(report),
            report_json: Some(json),
            notes: Vec::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Result<CellNumbers, String> {
        let leavings = Leavings { report: Some(text.to_owned()), ..Leavings::default() };
        parse_result(ResultFormat::Report, 512, &leavings)
    }

    const WHOLE: &str = r#"{"prompt":{"target_tokens":512,"tokens":510},
        "timing":{"prefill_ms":100.0,"decode_ms":50.0},"output":{"tokens":11},"later":1}"#;

    #[test]
    fn a_whole_report_gives_numbers_and_keeps_what_is_unknown() {
        let numbers = report(WHOLE).unwrap();
        assert_eq!(numbers.measured.prompt_tokens, Some(510));
        assert_eq!(numbers.measured.decode_tok_s, Some(200.0));
        assert_eq!(numbers.report_json.unwrap()["later"], 1);
    }

    #[test]
    fn what_is_no_result_of_this_cell_is_a_reason() {
        let torn = report(&WHOLE[..40]).unwrap_err();
        assert!(torn.starts_with("the cell report is not valid JSON: "), "{torn}");
        assert_eq!(report("{}").unwrap_err(), "the result has no speed");
        assert_eq!(report("[1]").unwrap_err(), "the cell report is not a JSON object");
        assert_eq!(
            report(&WHOLE.replace("512", "256")).unwrap_err(),
            "the cell report is for another cell: 256 prompt tokens instead of 512"
        );
        let none = parse_result(ResultFormat::Report, 512, &Leavings::default());
        assert_eq!(none.unwrap_err(), "no cell report was written");
    }

    #[test]
    fn text_results_come_from_the_output() {
        let leavings = Leavings {
            stdout: "Prompt tokens: 8\nGenerated tokens: 4\nPrefill: 10.00 ms (800.00 tok/s)\n"
                .to_owned(),
            stderr: "Decode: 5.00 ms (600.00 tok/s)\n".to_owned(),
            ..Leavings::default()
        };
        let numbers = parse_result(ResultFormat::ProfileText, 8, &leavings).unwrap();
        assert_eq!(numbers.measured.prefill_ms, Some(10.0));
        assert_eq!(numbers.measured.decode_tok_s, Some(600.0));
        let none = parse_result(ResultFormat::LlamaBenchJson, 8, &leavings);
        assert_eq!(none.unwrap_err(), "the result has no speed");
    }
}
