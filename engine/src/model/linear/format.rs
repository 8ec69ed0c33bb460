//! What a type of weights must say of itself to be multiplied by, and the table of those that do.
//!
//! A matrix is held in tiles of 16 rows × one block of columns. A tile has exactly the bytes of its
//! 16 blocks in the file, in another order: lane `r` of every vector belongs to row `r`, so products
//! are never summed across a vector, and one layout serves vectors of 8 and of 16 lanes. A type is
//! a module: it says how a block goes into its lane and how a vector comes out of a tile.

use crate::model::gguf::TensorType;
use crate::model::simd::{Kernels, Simd};

use super::activations::Quantised;
use super::product::Output;
use super::{floats, iq4_nl, iq4_xs, mxfp4, product};
use super::{q2_k, q3_k, q4_0, q4_1, q4_k, q5_0, q5_1, q5_k, q6_k, q8_0};

/// Rows of a tile.
pub(super) const ROWS: usize = 16;
/// Columns that share a scale of the activations.
pub(super) const COLUMNS: usize = 32;

/// A quantisation: weights are whole numbers times a scale, plus an offset.
///
/// # Safety
/// The unsafe functions need the instructions of `S`, and a whole tile at `tile`.
pub(super) trait Format: 'static {
    const TYPE: TensorType;
    /// Units of 32 columns in a tile.
    const UNITS: usize = Self::TYPE.block_size() / COLUMNS;
    /// Bytes of a tile.
    const TILE_BYTES: usize = ROWS * Self::TYPE.type_size();
    /// Bits of the unsigned integers that [`Format::integers`] gives; 8 stands for signed bytes plus
    /// 128, which products take off again.
    const BITS: u32;
    /// Whether the two halves of a unit have scales (and offsets) of their own.
    const HALVES: bool = false;
    /// Whether there are offsets.
    const OFFSETS: bool;

    /// Puts a block as the file has it into lane `lane` of a tile, which was zero.
    fn pack(block: &[u8], lane: usize, tile: &mut [u8]);

    /// The integers of unit `unit`: byte `i` of lane `r` of vector `v` is column `4v + i` of row
    /// `r + part·LANES`.
    unsafe fn integers<S: Simd>(tile: *const u8, unit: usize, part: usize) -> [S::I; 8];

    /// Scales and offsets of all units.
    unsafe fn scales<S: Simd>(tile: *const u8, part: usize) -> Scales<S>;
}

/// Scales and offsets of a tile's rows; only as many as the format has are set.
///
/// Without halves, element `u` belongs to unit `u`. With them, `scales[2u]` and `scales[2u + 1]`
/// belong to its halves, `offsets[2u + 1]` is the second half's offset, and `offsets[2u]` what the
/// first half's has beyond that.
pub(super) struct Scales<S: Simd> {
    pub(super) scales: [S::F; 16],
    pub(super) offsets: [S::F; 16],
}

impl<S: Simd> Scales<S> {
    /// All zero.
    ///
    /// # Safety
    /// The processor must have the instructions of `S`.
    #[inline(always)]
    pub(super) unsafe fn zero() -> Self {
        // SAFETY: as this function.
        let zero = unsafe { S::splat(0.0) };
        Self { scales: [zero; 16], offsets: [zero; 16] }
    }
}

/// What rows of activations are multiplied by a strip of a matrix.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct Inputs<'a> {
    /// Rows.
    pub(in crate::model) rows: usize,
    /// The rows as they are, `stride` apart.
    pub(in crate::model) floats: &'a [f32],
    /// Elements from a row to the next.
    pub(in crate::model) stride: usize,
    /// The rows in bytes, where a matrix needs them.
    pub(in crate::model) bytes: &'a [Quantised],
}

/// A type in the table.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) tensor_type: TensorType,
    /// Puts a block into a lane of a tile.
    pub(super) pack: fn(block: &[u8], lane: usize, tile: &mut [u8]),
    /// Multiplies one row of activations with groups of 16 rows.
    pub(super) one: Product,
    /// Multiplies any number of rows of activations.
    pub(super) many: Product,
    /// The weights of one row: a lane of the tiles of its group.
    pub(super) row: fn(tiles: &[u8], lane: usize, out: &mut [f32]),
    /// Whether products take the activations in bytes.
    pub(super) takes_bytes: bool,
}

/// Products with the groups of 16 rows that `tiles` holds, each of `columns` columns.
pub(super) type Product = fn(Kernels, tiles: &[u8], columns: usize, &Inputs<'_>, &Output<'_>);

impl Entry {
    const fn of<F: Format>() -> Self {
        Self {
            tensor_type: F::TYPE,
            pack: F::pack,
            one: product::one::<F>,
            many: product::many::<F>,
            row: product::row::<F>,
            takes_bytes: true,
        }
    }

    const fn of_floats<F: floats::Float>() -> Self {
        Self {
            tensor_type: F::TYPE,
            pack: floats::pack::<F>,
            one: floats::one::<F>,
            many: floats::many::<F>,
            row: floats::row::<F>,
            takes_bytes: false,
        }
    }
}

/// Every type that there are kernels for.
static TABLE: [Entry; 16] = [
    Entry::of::<q4_0::Q4_0>(),
    Entry::of::<q4_1::Q4_1>(),
    Entry::of::<q5_0::Q5_0>(),
    Entry::of::<q5_1::Q5_1>(),
    Entry::of::<q8_0::Q8_0>(),
    Entry::of::<q2_k::Q2K>(),
    Entry::of::<q3_k::Q3K>(),
    Entry::of::<q4_k::Q4K>(),
    Entry::of::<q5_k::Q5K>(),
    Entry::of::<q6_k::Q6K>(),
    Entry::of::<iq4_nl::Iq4Nl>(),
    Entry::of::<iq4_xs::Iq4Xs>(),
    Entry::of::<mxfp4::Mxfp4>(),
    Entry::of_floats::<floats::F16>(),
    Entry::of_floats::<floats::BF16>(),
    Entry::of_floats::<floats::F32>(),
];

/// The kernels of a type; `None` where there are none.
pub(super) fn entry(tensor_type: TensorType) -> Option<&'static Entry> {
    TABLE.iter().find(|entry| entry.tensor_type == tensor_type)
}
