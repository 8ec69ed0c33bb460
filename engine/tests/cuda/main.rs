//! The CUDA side over the stand-in driver, through real candle and real cudarc.
//!
//! Driver and hooks exist once per process, so each scenario runs in a child of its own; the stand-in
//! driver's report at the child's end says what leaked and what was done wrong. Run it with
//! `cargo xtask cuda-check`.

mod capture;
mod contract;
mod decode;
mod fallback;
mod harness;
mod life;
mod memory;
mod ops;
mod pins;
mod special;
mod streams;
