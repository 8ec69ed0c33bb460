//! A matrix of weights in memory, in tiles.

use std::io;

use crate::model::gguf::TensorType;
use crate::model::par;
use crate::model::simd::Kernels;

use super::buffer::Buffer;
use super::format::{Entry, Inputs, ROWS, entry};
use super::product::Output;

/// Weights `[rows, columns]` on the processor, in the bytes that the file has, in another order.
#[derive(Debug)]
pub(in crate::model) struct Matrix {
    entry: &'static Entry,
    kernels: Kernels,
    rows: usize,
    columns: usize,
    tiles: Buffer,
}

/// Bytes of the file that are in memory at once, for each thread, while a matrix is read.
const READ_BYTES: usize = 1 << 20;

impl Matrix {
    /// Whether there are kernels for the type.
    pub(in crate::model) fn supports(tensor_type: TensorType) -> bool {
        entry(tensor_type).is_some()
    }

    /// Reads a matrix, group by group: `read(offset, buffer)` fills the buffer from that offset of
    /// the tensor's data on, on any thread.
    ///
    /// # Errors
    /// The first of those of `read`.
    ///
    /// # Panics
    /// There are no kernels for the type, or rows are not whole blocks.
    pub(in crate::model) fn read(
        tensor_type: TensorType,
        (rows, columns): (usize, usize),
        kernels: Kernels,
        read: impl Fn(u64, &mut [u8]) -> io::Result<()> + Sync,
    ) -> io::Result<Self> {
        let entry = entry(tensor_type).expect("the caller asked `supports`");
        let (block_size, block_bytes) = (tensor_type.block_size(), tensor_type.type_size());
        assert!(columns.is_multiple_of(block_size), "rows are whole blocks");
        let row_bytes = columns / block_size * block_bytes;
        let group_bytes = ROWS * row_bytes;
        let groups = rows.div_ceil(ROWS);
        let mut tiles = Buffer::zeroed(groups * group_bytes);
        let failed = std::sync::Mutex::new(None);
        // Groups of a job; each job reads and packs its own.
        let step = (READ_BYTES / group_bytes).max(1);
        let share = par::Share::new(tiles.bytes_mut());
        par::for_each(groups.div_ceil(step), |job| {
            let first = job * step * ROWS;
            let count = (step * ROWS).min(rows - first);
            let mut data = vec![0; count * row_bytes];
            if let Err(error) = read((first * row_bytes) as u64, &mut data) {
                failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                return;
            }
            for (row, data) in data.chunks_exact(row_bytes).enumerate() {
                let group = (first + row) / ROWS * group_bytes;
                // SAFETY: jobs have groups of their own.
                let tiles = unsafe { share.part(group..group + group_bytes) };
                let blocks = data.chunks_exact(block_bytes);
                for (block, tile) in blocks.zip(tiles.chunks_exact_mut(ROWS * block_bytes)) {
                    (entry.pack)(block, row % ROWS, tile);
                }
            }
        });
        match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some(error) => Err(error),
            None => Ok(Self { entry, kernels, rows, columns, tiles }),
        }
    }

    /// Rows of 16, the last of which may be short.
    pub(in crate::model) fn groups(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Elements of a row of products: the rows of the matrix, filled up to a multiple of 16.
    pub(in crate::model) fn padded_rows(&self) -> usize {
        self.groups() * ROWS
    }

    pub(in crate::model) fn columns(&self) -> usize {
        self.columns
    }

    /// Bytes that the weights take.
    #[cfg(test)]
    pub(in crate::model) fn bytes(&self) -> usize {
        self.tiles.bytes().len()
    }

    /// Whether products take the activations in bytes.
    pub(in crate::model) fn takes_bytes(&self) -> bool {
        self.entry.takes_bytes
    }

    /// Products of all input rows with some groups of 16 rows, to `out`, whose first column is that
    /// of the first group.
    pub(in crate::model) fn multiply(
        &self,
        groups: std::ops::Range<usize>,
        inputs: &Inputs<'_>,
        out: &Output<'_>,
    ) {
        if groups.is_empty() {
            return;
        }
        let group_bytes = self.tiles.bytes().len() / self.groups();
        let tiles = &self.tiles.bytes()[groups.start * group_bytes..groups.end * group_bytes];
        let product = if inputs.rows == 1 { self.entry.one } else { self.entry.many };
        product(self.kernels, tiles, self.columns, inputs, out);
    }

    /// The weights of one row.
    pub(in crate::model) fn row(&self, row: usize, out: &mut [f32]) {
        assert!(row < self.rows, "row {row} is beyond the {} of the matrix", self.rows);
        let group_bytes = self.tiles.bytes().len() / self.groups();
        let tiles = &self.tiles.bytes()[row / ROWS * group_bytes..][..group_bytes];
        (self.entry.row)(tiles, row % ROWS, &mut out[..self.columns]);
    }
}
