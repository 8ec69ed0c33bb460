//! A bounded caching allocator: on for decode, drained for prefill, bounded always.
//!
//! [`Cache`] keeps blocks that were freed and hands them out again, over a small
//! [`Driver`](driver::Driver). [`policy`] says when it is on and what the environment asks for,
//! [`stats`] what it did. The core is bookkeeping: it knows neither CUDA nor candle, never touches
//! the memory that it manages and never calls a driver with its lock held. `docs/ALLOCATOR.md`
//! describes the design, its worst cases and how to read the counters.

pub mod cache;
pub mod capture;
pub mod class;
pub mod driver;
mod fork;
pub mod global;
mod lists;
pub mod lock;
mod peaks;
pub mod policy;
mod state;
pub mod stats;
pub mod steps;
mod table;
pub mod trace;

pub use cache::{
    Allocation, BlockInfo, Cache, ClassDepth, Config, FreeRequest, Freed, Request, Served,
    StreamKey,
};
pub use capture::{CaptureRefused, GraphToken};
pub use peaks::{PeakWindow, Peaks};
