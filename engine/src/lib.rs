//! A decode path for large language models, and the bounded caching allocator underneath it.
//!
//! The allocator core (`alloc`) knows neither candle nor CUDA and builds without the `decode`
//! feature; the decode path is built on candle's public operations.

pub mod alloc;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(feature = "decode")]
pub mod decode;
#[cfg(feature = "decode")]
mod host;
#[cfg(feature = "decode")]
pub use host::ask_for_huge_pages;
#[cfg(feature = "decode")]
pub mod model;
#[cfg(feature = "decode")]
pub mod runner;
