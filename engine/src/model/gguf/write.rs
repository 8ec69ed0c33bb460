//! The writer: streams a GGUF version 3 file, one tensor at a time.

use std::io::{self, Write};

use candle_core::quantized::GgmlDType;

use super::{Array, DEFAULT_ALIGNMENT, MAGIC, Value, tensor_type_id};

/// A tensor to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorPlan {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub dtype: GgmlDType,
    /// Its dimensions, outermost first; the last one is a multiple of the type's block size.
    pub dims: Vec<usize>,
}

impl TensorPlan {
    /// Number of blocks of the type.
    pub fn blocks(&self) -> usize {
        self.dims.iter().product::<usize>() / self.dtype.block_size()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() as u64 * self.dtype.type_size() as u64
    }
}

/// Yields the data of planned tensors.
pub trait Blocks {
    /// Writes exactly [`TensorPlan::bytes`] bytes of data of that tensor.
    ///
    /// # Errors
    /// Those of the writer.
    fn write_blocks(&mut self, plan: &TensorPlan, writer: &mut dyn Write) -> io::Result<()>;
}

/// Writes a file with these metadata and tensors, in the order given.
///
/// # Errors
/// Those of the writer.
pub fn write_gguf(
    writer: &mut impl Write,
    metadata: &[(String, Value)],
    plans: &[TensorPlan],
    data: &mut impl Blocks,
) -> io::Result<()> {
    let mut w = Counted { inner: writer, offset: 0 };
    w.write_all(&MAGIC)?;
    w.write_all(&3u32.to_le_bytes())?;
    w.write_all(&(plans.len() as u64).to_le_bytes())?;
    w.write_all(&(metadata.len() as u64).to_le_bytes())?;
    for (key, value) in metadata {
        write_string(&mut w, key)?;
        write_value(&mut w, value)?;
    }
    let mut offset = 0;
    for plan in plans {
        write_string(&mut w, &plan.name)?;
        w.write_all(&(plan.dims.len() as u32).to_le_bytes())?;
        for &dim in plan.dims.iter().rev() {
            w.write_all(&(dim as u64).to_le_bytes())?;
        }
        w.write_all(&tensor_type_id(plan.dtype).to_le_bytes())?;
        w.write_all(&u64::to_le_bytes(offset))?;
        offset = (offset + plan.bytes()).next_multiple_of(DEFAULT_ALIGNMENT);
    }
    w.pad()?;
    for plan in plans {
        let start = w.offset;
        data.write_blocks(plan, &mut w)?;
        if w.offset - start != plan.bytes() {
            return Err(io::Error::other(format!("tensor `{}` has the wrong size", plan.name)));
        }
        w.pad()?;
    }
    w.flush()
}

fn write_string(w: &mut impl Write, text: &str) -> io::Result<()> {
    w.write_all(&(text.len() as u64).to_le_bytes())?;
    w.write_all(text.as_bytes())
}

fn write_value(w: &mut impl Write, value: &Value) -> io::Result<()> {
    match value {
        // Whole numbers are written as u32 where they fit, as GGUF's own tools do.
        Value::Unsigned(value) => match u32::try_from(*value) {
            Ok(value) => write_typed(w, 4, &value.to_le_bytes()),
            Err(_) => write_typed(w, 10, &value.to_le_bytes()),
        },
        Value::Signed(value) => write_typed(w, 11, &value.to_le_bytes()),
        Value::Float(value) => write_typed(w, 6, &(*value as f32).to_le_bytes()),
        Value::Bool(value) => write_typed(w, 7, &[u8::from(*value)]),
        Value::String(value) => {
            w.write_all(&8u32.to_le_bytes())?;
            write_string(w, value)
        }
        Value::Array(array) => write_array(w, array),
    }
}

fn write_typed(w: &mut impl Write, id: u32, bytes: &[u8]) -> io::Result<()> {
    w.write_all(&id.to_le_bytes())?;
    w.write_all(bytes)
}

fn write_array(w: &mut impl Write, array: &Array) -> io::Result<()> {
    let mut head = |id: u32, count: usize| -> io::Result<()> {
        w.write_all(&9u32.to_le_bytes())?;
        w.write_all(&id.to_le_bytes())?;
        w.write_all(&(count as u64).to_le_bytes())
    };
    match array {
        Array::Unsigned(values) => {
            head(10, values.len())?;
            values.iter().try_for_each(|value| w.write_all(&value.to_le_bytes()))
        }
        Array::Signed(values) => {
            head(11, values.len())?;
            values.iter().try_for_each(|value| w.write_all(&value.to_le_bytes()))
        }
        Array::Float(values) => {
            head(6, values.len())?;
            values.iter().try_for_each(|value| w.write_all(&value.to_le_bytes()))
        }
        Array::Bool(values) => {
            head(7, values.len())?;
            values.iter().try_for_each(|value| w.write_all(&[u8::from(*value)]))
        }
        Array::Skipped(_) => Err(io::Error::other("a list that was read over cannot be written")),
        Array::String(values) => {
            head(8, values.len())?;
            values.iter().try_for_each(|value| write_string(w, value))
        }
    }
}

/// Counts what was written, for the padding.
struct Counted<'a, W> {
    inner: &'a mut W,
    offset: u64,
}

impl<W: Write> Counted<'_, W> {
    fn pad(&mut self) -> io::Result<()> {
        let padding = self.offset.next_multiple_of(DEFAULT_ALIGNMENT) - self.offset;
        self.write_all(&[0; DEFAULT_ALIGNMENT as usize][..padding as usize])
    }
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.offset += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
