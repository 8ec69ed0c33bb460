//! What a capture has recorded so far.

use std::sync::Arc;

/// One piece of recorded work.
pub(crate) type Work = Arc<dyn Fn() + Send + Sync>;

/// What was recorded.
#[derive(Clone, Default)]
pub(crate) struct Graph {
    pub(crate) work: Vec<Work>,
    /// Memory of the graph's own, from its allocation nodes; it is there until the graph and all that
    /// was instantiated from it are gone.
    pub(crate) owned: Vec<u64>,
    /// What of it no node of the graph frees: it outlives a launch, and the next one is refused.
    pub(crate) unfreed: Vec<u64>,
}

/// What can be launched.
pub(crate) struct Executable {
    pub(crate) graph: Graph,
    pub(crate) launched: bool,
}

/// A capture that is going on.
pub(crate) struct Capture {
    id: u64,
    graph: Graph,
    valid: bool,
}

impl Capture {
    pub(crate) fn new(id: u64) -> Capture {
        Capture { id, graph: Graph::default(), valid: true }
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
            self.graph.work.push(work);
        }
        self.valid
    }

    /// Records an allocation.
    pub(crate) fn record_alloc(&mut self, address: u64) {
        self.graph.owned.push(address);
        self.graph.unfreed.push(address);
    }

    /// Records a free; says whether the capture has allocated the block and not freed it yet.
    pub(crate) fn record_free(&mut self, address: u64) -> bool {
        let place = self.graph.unfreed.iter().position(|&known| known == address);
        place.map(|place| self.graph.unfreed.swap_remove(place)).is_some()
    }

    /// What was recorded; as an error for a capture that was invalidated.
    pub(crate) fn end(self) -> Result<Graph, Graph> {
        if self.valid { Ok(self.graph) } else { Err(self.graph) }
    }
}
