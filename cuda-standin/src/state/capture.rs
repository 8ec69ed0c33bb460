//! What a capture has recorded so far.

use std::sync::Arc;

/// One piece of recorded work.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;
/// What was recorded.
pub(crate) type Graph = Vec<Work>;
/// What can be launched.
pub(crate) type Executable = Vec<Work>;

/// A capture that is going on.
pub(crate) struct Capture {
    id: u64,
    work: Vec<Work>,
    valid: bool,
}

impl Capture {
    pub(crate) fn new(id: u64) -> Capture {
        Capture { id, work: Vec::new(), valid: true }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.valid
    }

    /// The capture cannot end well any more.
    pub(crate) fn invalidate(&mut self) {
        self.valid = false;
    }

    /// Records work, unless the capture was invalidated; says which.
    pub(crate) fn record(&mut self, work: Work) -> bool {
        if self.valid {
            self.work.push(work);
        }
        self.valid
    }

    /// What was recorded; `None` for a capture that was invalidated.
    pub(crate) fn end(self) -> Option<Graph> {
        self.valid.then_some(self.work)
    }
}
