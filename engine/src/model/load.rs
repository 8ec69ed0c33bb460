//! Reads weights from a GGUF file onto a device, holding every shape to the configuration.

use std::borrow::Cow;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};

use anyhow::{Context as _, bail};
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{Device, Tensor};

use super::gguf::Gguf;
use super::linear::Linear;

/// Reads tensors one by one.
pub(super) struct Loader<'a> {
    gguf: &'a Gguf,
    file: File,
    device: &'a Device,
    /// Words rather than bytes, so that blocks of any type are aligned in it.
    buffer: Vec<u64>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(gguf: &'a Gguf, file: File, device: &'a Device) -> Self {
        Self { gguf, file, device, buffer: Vec::new() }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.gguf.tensors.contains_key(name)
    }

    /// A matrix or vector as the file has it; `dims` is what the configuration says.
    pub(super) fn quantised(&mut self, name: &str, dims: &[usize]) -> anyhow::Result<QTensor> {
        let info = self.gguf.tensor(name)?;
        if info.dims != dims {
            bail!(
                "tensor `{name}` has the shape {:?}, the metadata ask for {dims:?} (offset {})",
                info.dims,
                info.offset
            );
        }
        let bytes = usize::try_from(info.bytes)?;
        let words = bytes.div_ceil(size_of::<u64>());
        if self.buffer.len() < words {
            self.buffer.resize(words, 0);
        }
        let data = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut self.buffer)[..bytes];
        self.file
            .seek(SeekFrom::Start(info.offset))
            .and_then(|_| self.file.read_exact(data))
            .with_context(|| format!("cannot read tensor `{name}` at offset {}", info.offset))?;
        let storage = QStorage::from_data(Cow::Borrowed(data), self.device, info.dtype)?;
        Ok(QTensor::new(storage, dims)?)
    }

    /// A tensor in F32.
    pub(super) fn dense(&mut self, name: &str, dims: &[usize]) -> anyhow::Result<Tensor> {
        Ok(self.quantised(name, dims)?.dequantize(self.device)?)
    }

    /// `NAME.weight` `[rows, columns]`, with `NAME.bias` `[rows]` where the file has one.
    pub(super) fn linear(
        &mut self,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> anyhow::Result<Linear> {
        let weight = self.quantised(&format!("{name}.weight"), &[rows, columns])?;
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.dense(&bias, &[rows])?) } else { None };
        Ok(Linear::new(weight, bias)?)
    }
}
