//! One source of lines: the last shortage that it spoke of, and whether it lived through it.
//!
//! The rule. A shortage is why a program ended if nothing that came after it says otherwise:
//!
//! - another error that names a cause of its own came after it: it is not;
//! - the program said that it goes on (retrying, falling back): it is not;
//! - work came after it, more than its weight allows: it is not. A warning allows none, a statement two
//!   lines, an error forty: what is printed on the way out is not always known as such;
//! - what only repeats that something failed, crashes, frames, tables, advice and closing down do not
//!   count. If such a failure follows at once, the shortage is as good as an error. So is it after a
//!   failure that nothing marks as an error, but only if it follows at once and on no mere warning.

use super::line::{Context, Kind, Line, Weight};
use super::signatures::Signatures;
use super::{Shortage, Survived};

/// Characters of a line that are kept.
const LINE_CHARS: usize = 300;

/// Lines of work that may follow on a shortage that is still the cause.
fn allowed_work(weight: Weight) -> u32 {
    match weight {
        Weight::Warning => 0,
        Weight::Statement => 2,
        Weight::Error => 40,
    }
}

/// A shortage that nothing has contradicted yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) shortage: Shortage,
    pub(super) weight: Weight,
    work_lines: u32,
}

/// What one line did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// An error that others may have to be judged by.
    NamedAnotherCause,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Speaker {
    pub(super) name: String,
    context: Context,
    pub(super) open: Option<Open>,
    pub(super) survived: Option<Survived>,
}

impl Speaker {
    pub(super) fn named(name: &str) -> Speaker {
        Speaker { name: name.to_owned(), ..Speaker::default() }
    }

    /// Takes the next line of this speaker. `is_rest` is the rest of a line that was too long.
    pub(super) fn take(
        &mut self,
        line: &Line<'_>,
        is_rest: bool,
        signatures: &Signatures,
    ) -> Effect {
        let kind = line.kind(&mut self.context, signatures);
        let body = line.body;
        match kind {
            Kind::Shortage { pattern, api, start, weight } => {
                let shortage = Shortage { pattern, api, line: cut(body, start) };
                self.note_shortage(shortage, weight);
            }
            Kind::GoesOn => self.live_through(|| format!("it went on: `{}`", cut(body, 0))),
            Kind::Cause => {
                self.live_through(|| format!("another error came after it: `{}`", cut(body, 0)));
                return Effect::NamedAnotherCause;
            }
            Kind::SoftCause => match &mut self.open {
                Some(open) if open.work_lines == 0 && open.weight > Weight::Warning => {
                    open.weight = Weight::Error;
                }
                _ => {
                    self.live_through(|| format!("another error came after it: `{}`", cut(body, 0)))
                }
            },
            Kind::Fallout => {
                if self.open.as_ref().is_some_and(|open| open.weight < Weight::Error) {
                    self.live_through(|| {
                        format!("another error came after it: `{}`", cut(body, 0))
                    });
                }
            }
            Kind::Crash => match &mut self.open {
                Some(open) if open.work_lines == 0 => open.weight = Weight::Error,
                Some(open) if open.weight < Weight::Error => {
                    self.live_through(|| format!("it crashed later on: `{}`", cut(body, 0)));
                }
                _ => {}
            },
            Kind::Echo => {
                if let Some(open) = self.open.as_mut().filter(|open| open.work_lines == 0) {
                    open.weight = Weight::Error;
                }
            }
            Kind::Work if is_rest => {}
            Kind::Work => {
                if let Some(open) = &mut self.open {
                    open.work_lines += 1;
                    if open.work_lines > allowed_work(open.weight) {
                        let count = open.work_lines;
                        let lines = if count == 1 { "a line" } else { "lines" };
                        self.live_through(|| {
                            format!("{lines} of work came after it: `{}`", cut(body, 0))
                        });
                    }
                }
            }
            Kind::Detail => {}
        }
        Effect::None
    }

    /// Another source named a cause after this one's shortage: that outweighs all but an error.
    pub(super) fn hear_of_another_cause(&mut self, body: &str) {
        if self.open.as_ref().is_some_and(|open| open.weight < Weight::Error) {
            self.live_through(|| format!("another error came after it: `{}`", cut(body, 0)));
        }
    }

    fn note_shortage(&mut self, shortage: Shortage, weight: Weight) {
        let weight = match &self.open {
            // Whoever says that it goes on does so from all that was before.
            Some(_) if weight == Weight::Warning => Weight::Warning,
            Some(open) => weight.max(open.weight),
            None => weight,
        };
        self.open = Some(Open { shortage, weight, work_lines: 0 });
    }

    fn live_through(&mut self, because: impl FnOnce() -> String) {
        if let Some(open) = self.open.take() {
            self.survived = Some(Survived { shortage: open.shortage, because: because() });
        }
    }
}

/// The line without blanks around it, cut around `start` if it is long.
pub(super) fn cut(body: &str, start: usize) -> String {
    let body = body.trim_end();
    let skipped = body.len() - body.trim_start().len();
    let text = body.trim_start();
    let start = start.saturating_sub(skipped);
    let before = text.get(..start).map_or(0, |before| before.chars().count());
    let skip =
        if text.chars().count() <= LINE_CHARS { 0 } else { before.saturating_sub(LINE_CHARS / 2) };
    text.chars().skip(skip).take(LINE_CHARS).collect()
}
