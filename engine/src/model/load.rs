//! Reads weights from a GGUF file, holding every shape to the configuration.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, bail};
use candle_core::quantized::{QStorage, QTensor};
use candle_core::{Device, Tensor};

use super::gguf::{Gguf, TensorInfo};
use super::linear::{Linear, Matrix};
use super::simd::Kernels;

/// Reads tensors one by one, and remembers which.
pub(super) struct Loader<'a> {
    gguf: &'a Gguf,
    /// The file, or its parts.
    files: Vec<File>,
    used: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Loader<'a> {
    pub(super) fn open(gguf: &'a Gguf, path: &Path) -> anyhow::Result<Self> {
        let open = |path: &Path| {
            File::open(path).with_context(|| format!("cannot open the model `{}`", path.display()))
        };
        let files = match gguf.parts.as_slice() {
            [] => vec![open(path)?],
            parts => parts.iter().map(|part| open(part)).collect::<anyhow::Result<_>>()?,
        };
        Ok(Self { gguf, files, used: RefCell::default() })
    }

    /// Refuses a file with tensors that nothing has read: what they would do is not computed.
    pub(super) fn check_all_used(&self, layers: usize) -> anyhow::Result<()> {
        let used = self.used.borrow();
        let names = self.gguf.tensors.keys().filter(|name| !used.contains(name.as_str()));
        let mut unused: Vec<_> = names.map(|name| format!("`{name}`")).collect();
        let beyond = format!("`blk.{layers}.");
        if let Some(name) = unused.iter().find(|name| name.starts_with(&beyond)) {
            bail!("tensor {name} belongs to a layer beyond the {layers} of `block_count`");
        }
        if unused.is_empty() {
            return Ok(());
        }
        let rest = unused.split_off(unused.len().min(3)).len();
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        bail!(
            "nothing uses these tensors, so the model would compute something else than the file \
             means: {}{more}",
            unused.join(", ")
        );
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.gguf.tensors.contains_key(name)
    }

    /// A tensor of the file; `dims` is what the configuration says.
    fn info(&self, name: &str, dims: &[usize]) -> anyhow::Result<&'a TensorInfo> {
        let info = self.gguf.tensor(name)?;
        if let Some((name, _)) = self.gguf.tensors.get_key_value(name) {
            self.used.borrow_mut().insert(name);
        }
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
        self.matrix_part(name, &[rows, columns], 0..rows, kernels)
    }

    /// Some rows of the tensor `name`, whose dimensions are `dims`; rows are counted through all but
    /// the last of them.
    pub(super) fn matrix_part(
        &self,
        name: &str,
        dims: &[usize],
        rows: Range<usize>,
        kernels: Kernels,
    ) -> anyhow::Result<Matrix> {
        let info = self.info(name, dims)?;
        self.read_matrix(name, info, rows, dims[dims.len() - 1], kernels)
    }

    /// A vector in F32.
    pub(super) fn dense(&self, name: &str, len: usize) -> anyhow::Result<Vec<f32>> {
        self.dense_part(name, len, 0..len)
    }

    /// Some elements of the vector `name` of `len` elements, in F32.
    pub(super) fn dense_part(
        &self,
        name: &str,
        len: usize,
        part: Range<usize>,
    ) -> anyhow::Result<Vec<f32>> {
        let info = self.info(name, &[len])?;
        let mut out = vec![0.0; len];
        self.read_matrix(name, info, 0..1, len, Kernels::SCALAR)?.row(0, &mut out);
        Ok(out[part].to_vec())
    }

    fn read_matrix(
        &self,
        name: &str,
        info: &TensorInfo,
        rows: Range<usize>,
        columns: usize,
        kernels: Kernels,
    ) -> anyhow::Result<Matrix> {
        if !Matrix::supports(info.dtype) {
            let (dtype, id) = (info.dtype.name(), info.dtype.id());
            bail!("tensor `{name}` has type {dtype} ({id}), which is not a type of weights");
        }
        let row_bytes = columns / info.dtype.block_size() * info.dtype.type_size();
        let start = info.offset + (rows.start * row_bytes) as u64;
        let file = &self.files[info.part];
        let read = |at: u64, data: &mut [u8]| read_at(file, start + at, data);
        Matrix::read(info.dtype, (rows.len(), columns), kernels, read)
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
        read_at(&self.files[info.part], info.offset, data)
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
