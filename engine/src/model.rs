//! Models: reading GGUF files, writing synthetic ones, and the forward pass.
//!
//! Nothing here times anything, prints, or knows what is being measured; the device is always a
//! parameter.

pub mod attention;
pub mod chat;
pub mod config;
pub mod gguf;
pub mod kv_cache;
pub mod linear;
mod load;
pub mod ops;
mod par;
pub mod rope;
pub mod source;
pub mod synthetic;
pub mod tokenizer;
pub mod transformer;

pub use config::{Architecture, ModelConfig};
pub use kv_cache::KvCache;
pub use transformer::{Logits, Transformer};
