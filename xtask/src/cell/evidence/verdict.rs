//! Both streams of a program put together: what of memory is why it ended.
//!
//! What comes first on two streams is not known, since a program may keep its stdout back. So work on
//! one of them says nothing about a shortage on the other; an error there that names a cause outweighs
//! all but an error.

use super::line::Weight;
use super::search::{Heard, Search, last_cause};
use super::signatures::Signatures;
use super::{Shortage, Survived};
use crate::cell::capture::Capture;

/// Lines of a stream's end that are looked at for another error.
const LAST_LINES: usize = 40;

/// What the output of a program says of memory. It says nothing of whether the program failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The shortage that is why it ended, if it failed.
    pub(crate) cause: Option<Shortage>,
    /// A shortage that is not.
    pub(crate) survived: Option<Survived>,
    /// The last error with a cause of its own.
    pub(crate) other_cause: Option<String>,
}

/// Puts the two streams together, after both have ended. A program that succeeded lived through
/// whatever it said.
pub(crate) fn judge(
    signatures: &Signatures,
    has_failed: bool,
    (stderr, stderr_text): (&Search, &Capture),
    (stdout, stdout_text): (&Search, &Capture),
) -> Said {
    if !has_failed {
        let survived = [stderr, stdout].into_iter().find_map(|stream| {
            let Heard { open, survived } = stream.heard();
            let because = "the program succeeded".to_owned();
            let last = open.into_iter().next_back();
            survived.or(last.map(|(shortage, _)| Survived { shortage, because }))
        });
        return Said { survived, ..Said::default() };
    }
    let causes =
        [stderr_text, stdout_text].map(|text| last_cause(&text.last_lines(LAST_LINES), signatures));
    let mut said = Said::default();
    let streams = [(stderr.heard(), &causes[1]), (stdout.heard(), &causes[0])];
    for (heard, cause_elsewhere) in streams {
        let Heard { open, survived } = heard;
        said.survived = said.survived.or(survived);
        let best = open.into_iter().max_by_key(|(_, weight)| *weight);
        match (best, cause_elsewhere) {
            (Some((shortage, weight)), Some(cause)) if weight < Weight::Error => {
                let because = format!("another error came last: `{cause}`");
                said.survived = said.survived.or(Some(Survived { shortage, because }));
            }
            (Some((shortage, _)), _) => said.cause = said.cause.or(Some(shortage)),
            (None, _) => {}
        }
    }
    let [stderr_cause, stdout_cause] = causes;
    said.other_cause = stderr_cause.or(stdout_cause);
    said
}
