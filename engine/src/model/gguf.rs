//! GGUF files: the header, checked against the file's length before anything is allocated by it.
//!
//! Reads versions 2 and 3, little-endian. Every error names the offset, the tensor or the key.
//! Nothing here interprets the metadata beyond their types (that is [`super::config`]'s part) or
//! touches a device.
//!
//! It is not candle's own reader (`quantized::gguf_file`), which refuses a whole file for one tensor
//! of a type that candle has no kernels for (IQ4_NL, IQ4_XS, MXFP4), and whose errors name neither
//! the offset nor the tensor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

pub use error::GgufError;
pub(crate) use split::PartName;
pub use tensor_type::TensorType;
pub use value::{Array, Value};
pub use write::{Blocks, TensorPlan, write_gguf};

mod error;
mod parse;
mod split;
mod tensor_type;
mod value;
mod write;

use candle_core::quantized::GgmlDType;

/// The four bytes that a GGUF file starts with.
pub const MAGIC: [u8; 4] = *b"GGUF";

/// Alignment of tensor data where `general.alignment` says nothing.
pub const DEFAULT_ALIGNMENT: u64 = 32;

/// The header of a GGUF file. All offsets and sizes have been checked against the file's length.
#[derive(Debug, Clone)]
pub struct Gguf {
    /// Format version, 2 or 3.
    pub version: u32,
    /// Metadata by key.
    pub metadata: BTreeMap<String, Value>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// Length of the whole file in bytes, or of all parts together.
    pub file_bytes: u64,
    /// The files of a split model, in order; empty where there is one file alone.
    pub parts: Vec<PathBuf>,
}

/// Where one tensor lies in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Element type.
    pub dtype: TensorType,
    /// Dimensions, outermost first (the file has them the other way round).
    pub dims: Vec<usize>,
    /// Which of [`Gguf::parts`] it lies in.
    pub part: usize,
    /// Offset of the first byte from the start of the file.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().map(|&d| d as u64).product()
    }
}

impl Gguf {
    /// Parses a header from `reader`, which must stand at the start of a file of `file_bytes`.
    ///
    /// # Errors
    /// What is wrong, with the offset at which it was found: truncation, an unknown version, value
    /// type or tensor type, sizes that do not fit the file, overlapping tensors.
    pub fn parse(reader: impl std::io::Read, file_bytes: u64) -> Result<Self, GgufError> {
        parse::parse(reader, file_bytes)
    }

    /// Opens a file and parses its header; the file is returned for reading tensor data. Of a split
    /// model, any part stands for all: the tensors are those of every part.
    ///
    /// # Errors
    /// As [`Gguf::parse`], or when the file cannot be opened; a part that is missing or belongs to
    /// another model.
    pub fn read(path: &Path) -> Result<(Self, File), GgufError> {
        let (gguf, file) = Self::read_one(path)?;
        match split::parts_of(&gguf, path)? {
            Some(parts) => Ok((split::read(parts)?, file)),
            None => Ok((gguf, file)),
        }
    }

    /// [`Gguf::read`] of this file alone.
    fn read_one(path: &Path) -> Result<(Self, File), GgufError> {
        let metadata = std::fs::metadata(path)?;
        // Opening a pipe would wait for whoever writes to it.
        if !metadata.is_file() {
            return Err(std::io::Error::other("it is not a regular file").into());
        }
        let mut file = File::open(path)?;
        let file_bytes = file.metadata()?.len();
        let gguf = Self::parse(BufReader::with_capacity(1 << 16, &file), file_bytes)?;
        file.seek(SeekFrom::Start(0))?;
        Ok((gguf, file))
    }

    /// The tensor of that name.
    ///
    /// # Errors
    /// [`GgufError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&TensorInfo, GgufError> {
        self.tensors.get(name).ok_or_else(|| GgufError::MissingTensor { name: name.to_owned() })
    }

    /// Bytes of all tensors together.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors.values().map(|t| t.bytes).sum()
    }

    /// Elements of all tensors together.
    pub fn parameters(&self) -> u64 {
        self.tensors.values().map(TensorInfo::elements).sum()
    }

    /// The type that most weight bytes have.
    pub fn main_type(&self) -> Option<TensorType> {
        let mut bytes: BTreeMap<u32, u64> = BTreeMap::new();
        for tensor in self.tensors.values() {
            *bytes.entry(tensor.dtype.id()).or_default() += tensor.bytes;
        }
        let id = bytes.into_iter().max_by_key(|&(_, bytes)| bytes)?.0;
        TensorType::from_id(id)
    }
}

/// The number of a type of candle's in a GGUF file.
pub fn tensor_type_id(dtype: GgmlDType) -> u32 {
    TensorType::from(dtype).id()
}

#[cfg(test)]
mod tests;
