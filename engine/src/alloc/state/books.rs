//! The gauges as they are kept under the lock.

use crate::alloc::stats::Gauges;

/// One of the four places that a block's bytes count in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Live,
    Idle,
    Parked,
    Pinned,
}

/// The gauges as they are kept: one addition on the way out of the lists, one on the way back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Books {
    /// Handed out or idle: what moves between users and lists.
    circulating_bytes: u64,
    pub(crate) idle_bytes: u64,
    pub(crate) parked_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) pinned_live_bytes: u64,
    pub(crate) held_bytes: u64,
    pub(crate) live_requested_bytes: u64,
}

impl Books {
    #[inline]
    pub(crate) fn live_bytes(&self) -> u64 {
        self.circulating_bytes - self.idle_bytes
    }

    pub(crate) fn read(&self) -> Gauges {
        Gauges {
            live_bytes: self.live_bytes(),
            live_requested_bytes: self.live_requested_bytes,
            idle_bytes: self.idle_bytes,
            parked_bytes: self.parked_bytes,
            pinned_bytes: self.pinned_bytes,
            pinned_live_bytes: self.pinned_live_bytes,
            held_bytes: self.held_bytes,
        }
    }

    pub(super) fn add(&mut self, bytes: u64, place: Place) {
        match place {
            Place::Live => self.circulating_bytes += bytes,
            Place::Idle => {
                self.circulating_bytes += bytes;
                self.idle_bytes += bytes;
            }
            Place::Parked => self.parked_bytes += bytes,
            Place::Pinned => self.pinned_bytes += bytes,
        }
    }

    pub(super) fn subtract(&mut self, bytes: u64, place: Place) {
        match place {
            Place::Live => self.circulating_bytes -= bytes,
            Place::Idle => {
                self.circulating_bytes -= bytes;
                self.idle_bytes -= bytes;
            }
            Place::Parked => self.parked_bytes -= bytes,
            Place::Pinned => self.pinned_bytes -= bytes,
        }
    }
}
