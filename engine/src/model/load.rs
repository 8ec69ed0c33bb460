//! Reads weights from a GGUF file, holding every shape to the configuration.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::{Context as _, bail};
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{Device, Tensor};

use super::gguf::{Gguf, TensorInfo};
use super::linear::{Linear, Matrix};
use super::simd::Kernels;

/// Reads tensors one by one.
pub(super) struct Loader<'a> {
    gguf: &'a Gguf,
    file: File,
}

impl<'a> Loader<'a> {
    pub(super) fn open(gguf: &'a Gguf, path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)
            .with_context(|| format!("cannot open the model `{}`", path.display()))?;
        Ok(Self { gguf, file })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.gguf.tensors.contains_key(name)
    }

    /// A tensor of the file; `dims` is what the configuration says.
    fn info(&self, name: &str, dims: &[usize]) -> anyhow::Result<&'a TensorInfo> {
        let info = self.gguf.tensor(name)?;
        if info.dims != dims {
            bail!(
                "tensor `{name}` has the shape {:?}, the metadata ask for {dims:?} (offset {})",
                info.dims,
                info.offset
            );
        }
        Ok(info)
    }

    /// The matrix `name` `[rows, columns]` for the processor's kernels.
    pub(super) fn matrix(
        &self,
        name: &str,
        (rows, columns): (usize, usize),
        kernels: Kernels,
    ) -> anyhow::Result<Matrix> {
        let info = self.info(name, &[rows, columns])?;
        self.read_matrix(name, info, (rows, columns), kernels)
    }

    /// A vector in F32.
    pub(super) fn dense(&self, name: &str, len: usize) -> anyhow::Result<Vec<f32>> {
        let info = self.info(name, &[len])?;
        let mut out = vec![0.0; len];
        self.read_matrix(name, info, (1, len), Kernels::SCALAR)?.row(0, &mut out);
        Ok(out)
    }

    fn read_matrix(
        &self,
        name: &str,
        info: &TensorInfo,
        shape: (usize, usize),
        kernels: Kernels,
    ) -> anyhow::Result<Matrix> {
        if !Matrix::supports(info.dtype) {
            let (dtype, id) = (info.dtype.name(), info.dtype.id());
            bail!("tensor `{name}` has type {dtype} ({id}), which is not a type of weights");
        }
        let read = |at: u64, data: &mut [u8]| read_at(&self.file, info.offset + at, data);
        Matrix::read(info.dtype, shape, kernels, read)
            .with_context(|| format!("cannot read tensor `{name}` at offset {}", info.offset))
    }

    /// A tensor as candle has it.
    fn quantised(&self, device: &Device, name: &str, dims: &[usize]) -> anyhow::Result<QTensor> {
        let info = self.info(name, dims)?;
        let Some(dtype) = info.dtype.candle() else {
            let (dtype, id) = (info.dtype.name(), info.dtype.id());
            bail!("tensor `{name}` has type {dtype} ({id}), which candle has no kernels for");
        };
        let bytes = usize::try_from(info.bytes)?;
        // Words rather than bytes, so that blocks of any type are aligned in it.
        let mut words = vec![0u64; bytes.div_ceil(size_of::<u64>())];
        let data = &mut bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..bytes];
        read_at(&self.file, info.offset, data)
            .with_context(|| format!("cannot read tensor `{name}` at offset {}", info.offset))?;
        let storage = QStorage::from_data(Cow::Borrowed(data), device, dtype)?;
        Ok(QTensor::new(storage, dims)?)
    }

    /// A tensor of a device in F32.
    pub(super) fn tensor(
        &self,
        device: &Device,
        name: &str,
        dims: &[usize],
    ) -> anyhow::Result<Tensor> {
        Ok(self.quantised(device, name, dims)?.dequantize(device)?)
    }

    /// `NAME.weight` `[rows, columns]`, with `NAME.bias` `[rows]` where the file has one.
    pub(super) fn linear(
        &self,
        device: &Device,
        name: &str,
        rows: usize,
        columns: usize,
    ) -> anyhow::Result<Linear> {
        let weight = self.quantised(device, &format!("{name}.weight"), &[rows, columns])?;
        let bias = format!("{name}.bias");
        let bias = if self.has(&bias) { Some(self.tensor(device, &bias, &[rows])?) } else { None };
        Ok(Linear::new(weight, bias)?)
    }
}

/// Fills a buffer from an offset of the file on, from any thread.
fn read_at(file: &File, offset: u64, data: &mut [u8]) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, data, offset);
    #[cfg(not(unix))]
    {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(data)
    }
}
