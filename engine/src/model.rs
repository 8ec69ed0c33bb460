//! Models: reading GGUF files, writing synthetic ones, and the forward pass.
//!
//! Nothing here times anything, prints, or knows what is being measured; the device is always a
//! parameter.

pub mod architectures;
mod attention;
pub mod chat;
pub mod config;
mod elementwise;
pub mod gguf;
pub mod kv_cache;
mod linear;
mod load;
mod ops;
pub mod par;
pub mod rope;
pub mod simd;
pub mod source;
pub mod synthetic;
pub mod tokenizer;
pub mod transformer;

pub use architectures::Architecture;
pub use config::ModelConfig;
pub use kv_cache::{KvCache, KvType};
pub use simd::Kernels;
pub use transformer::{Logits, Transformer};
