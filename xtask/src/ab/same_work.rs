//! Whether all runs did the same work: the same prompt in, the same tokens out.

use formats::cell_report::CellReport;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) prompt_hash: Option<String>,
    pub(crate) output_hash: Option<String>,
    pub(crate) token_ids: Vec<u32>,
}

impl Work {
    pub(crate) fn from_report(report: &CellReport) -> Work {
        Work {
            prompt_hash: report.prompt.token_hash.clone(),
            output_hash: report.output.token_hash.clone(),
            token_ids: report.output.token_ids.clone(),
        }
    }
}

/// How the work of some runs compares with that of base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum WorkCheck {
    /// Every run that tells did what base did.
    Same {
        /// The hash that all share, abbreviated.
        output: String,
    },
    OtherPrompt,
    OtherOutput {
        /// How many tokens agree before the first that does not, where the ids tell.
        same_tokens: Option<usize>,
    },
    Unknown,
}

/// Holds runs against a reference run, or against each other where `reference` is one of them.
///
/// Runs that do not tell are left out; if none tells, or the reference does not, it is `Unknown`.
pub(crate) fn check_work(reference: Option<&Work>, runs: &[Work]) -> WorkCheck {
    let Some(reference) = reference else { return WorkCheck::Unknown };
    let Some(output) = &reference.output_hash else { return WorkCheck::Unknown };
    if !runs.iter().any(|run| run.output_hash.is_some()) {
        return WorkCheck::Unknown;
    }
    let differs =
        |a: &Option<String>, b: &Option<String>| matches!((a, b), (Some(a), Some(b)) if a != b);
    for run in runs {
        if differs(&run.prompt_hash, &reference.prompt_hash) {
            return WorkCheck::OtherPrompt;
        }
        if differs(&run.output_hash, &reference.output_hash) {
            return WorkCheck::OtherOutput { same_tokens: count_same(reference, run) };
        }
    }
    WorkCheck::Same { output: output.chars().take(12).collect() }
}

fn count_same(a: &Work, b: &Work) -> Option<usize> {
    if a.token_ids.is_empty() || b.token_ids.is_empty() {
        return None;
    }
    Some(a.token_ids.iter().zip(&b.token_ids).take_while(|(a, b)| a == b).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(output: &str, ids: &[u32]) -> Work {
        Work {
            prompt_hash: Some("p".to_owned()),
            output_hash: Some(output.to_owned()),
            token_ids: ids.to_vec(),
        }
    }

    #[test]
    fn the_same_tokens_are_the_same_work() {
        let base = work("0123456789abcdef", &[1, 2]);
        assert_eq!(
            check_work(Some(&base), &[base.clone(), base.clone()]),
            WorkCheck::Same { output: "0123456789ab".to_owned() }
        );
    }

    #[test]
    fn other_tokens_say_where_they_part() {
        let base = work("a", &[1, 2, 3, 4]);
        let check = |ids: &[u32]| check_work(Some(&base), &[base.clone(), work("b", ids)]);
        assert_eq!(check(&[1, 2, 9, 4]), WorkCheck::OtherOutput { same_tokens: Some(2) });
        assert_eq!(check(&[1, 2, 3]), WorkCheck::OtherOutput { same_tokens: Some(3) });
        assert_eq!(check(&[]), WorkCheck::OtherOutput { same_tokens: None });
    }

    #[test]
    fn another_prompt_is_named_as_such() {
        let base = work("a", &[1]);
        let other = Work { prompt_hash: Some("q".to_owned()), ..work("b", &[2]) };
        assert_eq!(check_work(Some(&base), &[other]), WorkCheck::OtherPrompt);
    }

    #[test]
    fn what_does_not_tell_is_unknown() {
        let silent = Work::default();
        assert_eq!(check_work(None, std::slice::from_ref(&silent)), WorkCheck::Unknown);
        assert_eq!(check_work(Some(&silent), &[work("a", &[1])]), WorkCheck::Unknown);
        assert_eq!(check_work(Some(&work("a", &[1])), &[silent]), WorkCheck::Unknown);
    }
}
