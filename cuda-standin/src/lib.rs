//! A stand-in for the CUDA driver, over host memory: for tests only, never part of a release.
//!
//! Built as a shared library and found as `libcuda.so.1`, it lets unmodified candle and cudarc run
//! on a machine without a GPU. Device memory is host memory, and work on a stream is done at once,
//! in the calling thread; while a stream is captured, work is recorded and done when the graph is
//! launched. It counts every call, limits what can be allocated, fails on demand, and is stricter
//! than the real driver: a double free, a foreign pointer, a free within a capture, a call on a
//! destroyed stream or after shutdown is refused *and* remembered as a violation.
//!
//! It runs no PTX. The kernels that the decode path needs are written out for the host in
//! `kernels`; any other launch succeeds, does nothing, and is counted by name.
//!
//! What a test may set and read is in `control`; the environment is read once, in `state`. `state` is
//! what all of them share: it stands on `code`, `counters`, `launch` and `host_memory`, and knows none
//! of the driver's functions.

mod blas;
mod capture;
mod code;
mod context;
mod control;
mod counters;
mod event;
mod host_memory;
mod kernels;
mod launch;
mod memory;
mod module;
mod nvml;
mod pool;
mod query;
mod rand;
mod release;
mod state;
mod stream;
mod unused;

#[cfg(test)]
mod tests;
