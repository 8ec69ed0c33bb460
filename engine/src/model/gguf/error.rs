//! What can be wrong with a GGUF file.

use super::tensor_type::{describe_unsupported, supported_names};

/// Version 1, of August 2023, has counts of 32 bits.
fn old_version(version: u32) -> &'static str {
    if version == 1 {
        "; files of version 1 are from before August 2023: convert the model anew"
    } else {
        ""
    }
}

/// What is wrong with a GGUF file, and where.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file could not be read.
    #[error("cannot read the file")]
    Io(#[from] std::io::Error),
    /// The first bytes are not GGUF's.
    #[error("not a GGUF file: it starts with {found:02x?}, not with \"GGUF\" (offset 0)")]
    Magic {
        /// The bytes found.
        found: [u8; 4],
    },
    /// A file for machines of the other byte order.
    #[error(
        "the file is big-endian GGUF (version {version}), only little-endian files are read (offset 4); \
         hint: `gguf-convert-endian FILE little` of the Python package `gguf` converts it"
    )]
    BigEndian {
        /// The version, in the right order.
        version: u32,
    },
    /// A version that is not read.
    #[error("GGUF version {version} is not supported, only 2 and 3 (offset 4){}", old_version(*version))]
    Version {
        /// The version found.
        version: u32,
    },
    /// The file ends too early.
    #[error(
        "the file is truncated or corrupt: {what} at offset {offset} needs {needed} bytes, \
         the file has {remaining} left"
    )]
    Truncated {
        /// What was being read.
        what: String,
        /// Offset at which it starts.
        offset: u64,
        /// Bytes that it needs at least.
        needed: u64,
        /// Bytes from there to the end of the file.
        remaining: u64,
    },
    /// A value that cannot be right.
    #[error("the file is corrupt: {what} (offset {offset})")]
    Corrupt {
        /// What is wrong.
        what: String,
        /// Offset at which it was found.
        offset: u64,
    },
    /// A tensor of a type that is not read.
    #[error(
        "tensor `{name}` has type {}, which is not supported (offset {offset}); supported: {}",
        describe_unsupported(*id),
        supported_names()
    )]
    TensorType {
        /// The tensor.
        name: String,
        /// The type's number.
        id: u32,
        /// Offset of the number.
        offset: u64,
    },
    /// A part of a split model that does not fit the others.
    #[error("part `{file}` of the model: {what}")]
    Part {
        /// The name of its file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// A tensor that the architecture needs.
    #[error("tensor `{name}` is missing")]
    MissingTensor {
        /// The tensor.
        name: String,
    },
    /// A key that the architecture needs.
    #[error("metadata key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key whose value has the wrong type or an impossible value.
    #[error("metadata key `{key}`: {what}")]
    BadKey {
        /// The key.
        key: String,
        /// What is wrong with it.
        what: String,
    },
}
