//! Keys and values in the processor's memory, in the layout that its attention reads.
//!
//! Keys lie in tiles of 16 positions: element `d` of all of them is 16 neighbouring numbers, so that
//! scores need no sum across a vector. Values are rows. A head is filled up with zeros to `dim`
//! elements, a multiple of 16. With Q8_0, each 32 elements have a scale: a tile has 32·16 bytes and
//! then 16 scales, a row 32 bytes and then one.

use half::f16;

use super::KvType;
use crate::model::config::ModelConfig;
use crate::model::linear::Buffer;
use crate::model::par::Share;
use crate::model::simd::{Kernel, Kernels, Simd, dispatch};

/// Positions in a tile of keys.
pub(in crate::model) const TILE: usize = 16;

/// Elements that share a scale with Q8_0.
pub(in crate::model) const SCALED: usize = 32;

/// The cache of one sequence in the processor's memory.
#[derive(Debug)]
pub(in crate::model) struct HostKv {
    pub(in crate::model) kv_type: KvType,
    /// Elements of a head, filled up.
    dim: usize,
    tiles: usize,
    layers: Vec<(Buffer, Buffer)>,
}

/// One layer, of which threads write heads of their own.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) struct LayerKv<'a> {
    pub(in crate::model) kv_type: KvType,
    pub(in crate::model) dim: usize,
    tiles: usize,
    keys: Share<'a, u8>,
    values: Share<'a, u8>,
}

/// A head's elements, filled up to what vectors and scales take.
pub(in crate::model) fn padded_dim(head_dim: usize, kv_type: KvType) -> usize {
    head_dim.next_multiple_of(match kv_type {
        KvType::F32 | KvType::F16 => TILE,
        KvType::Q8_0 => SCALED,
    })
}

/// Bytes of `elements` elements, with their scales.
fn bytes_of(kv_type: KvType, elements: usize) -> usize {
    match kv_type {
        KvType::F32 => 4 * elements,
        KvType::F16 => 2 * elements,
        KvType::Q8_0 => elements + elements / SCALED * 2,
    }
}

impl HostKv {
    pub(super) fn new(config: &ModelConfig, capacity: usize, kv_type: KvType) -> Self {
        let dim = padded_dim(config.head_dim, kv_type);
        let tiles = capacity.div_ceil(TILE);
        let layers = config.each_layer.iter().map(|layer| {
            let bytes = bytes_of(kv_type, layer.kv_heads * tiles * TILE * dim);
            (Buffer::zeroed(bytes), Buffer::zeroed(bytes))
        });
        Self { kv_type, dim, tiles, layers: layers.collect() }
    }

    /// All bytes.
    #[cfg(test)]
    pub(in crate::model) fn bytes(&self) -> usize {
        self.layers.iter().map(|(keys, values)| keys.bytes().len() + values.bytes().len()).sum()
    }

    /// All layers, each of which threads may write parts of.
    pub(in crate::model) fn layers(&mut self) -> impl Iterator<Item = LayerKv<'_>> {
        let (kv_type, dim, tiles) = (self.kv_type, self.dim, self.tiles);
        self.layers.iter_mut().map(move |(keys, values)| LayerKv {
            kv_type,
            dim,
            tiles,
            keys: Share::new(keys.bytes_mut()),
            values: Share::new(values.bytes_mut()),
        })
    }
}

impl<'a> LayerKv<'a> {
    /// Bytes of a tile of keys.
    fn tile_bytes(&self) -> usize {
        bytes_of(self.kv_type, self.dim * TILE)
    }

    /// Bytes of a row of values.
    pub(in crate::model) fn row_bytes(&self) -> usize {
        bytes_of(self.kv_type, self.dim)
    }

    /// Some tiles of a head's keys.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    pub(in crate::model) unsafe fn keys(
        &self,
        head: usize,
        first: usize,
        count: usize,
    ) -> &'a [u8] {
        let (tile, start) = (self.tile_bytes(), (head * self.tiles + first) * self.tile_bytes());
        // SAFETY: as the caller vouches.
        unsafe { self.keys.read(start..start + count * tile) }
    }

    /// The values of some positions of a head.
    ///
    /// # Safety
    /// Nobody writes them meanwhile.
    pub(in crate::model) unsafe fn values(
        &self,
        head: usize,
        first: usize,
        count: usize,
    ) -> &'a [u8] {
        let row = self.row_bytes();
        let start = (head * self.tiles * TILE + first) * row;
        // SAFETY: as the caller vouches.
        unsafe { self.values.read(start..start + count * row) }
    }

    /// Writes the key and the value of a head at a position.
    ///
    /// # Safety
    /// Nobody else uses that head's keys and values at the position meanwhile. Neighbouring positions
    /// may be written at the same time.
    pub(in crate::model) unsafe fn write(
        &self,
        kernels: Kernels,
        head: usize,
        position: usize,
        key: &[f32],
        value: &[f32],
    ) {
        let (tile, lane) = (head * self.tiles + position / TILE, position % TILE);
        let start = tile * self.tile_bytes();
        let row = self.row_bytes();
        let at = (head * self.tiles * TILE + position) * row;
        // SAFETY: as the caller vouches; of a tile, only the position's lane is written.
        let (lanes, row) =
            unsafe { (Lane { tile: self.keys, start, lane }, self.values.part(at..at + row)) };
        match self.kv_type {
            KvType::F32 => {
                for (d, (&key, value)) in key.iter().zip(value).enumerate() {
                    // SAFETY: as above.
                    unsafe { lanes.put(4 * TILE * d, key.to_le_bytes()) };
                    row[4 * d..4 * d + 4].copy_from_slice(&value.to_le_bytes());
                }
            }
            KvType::F16 => {
                for (index, (key, value)) in key.chunks(TILE).zip(value.chunks(TILE)).enumerate() {
                    for (d, half) in round(kernels, key).into_iter().enumerate() {
                        // SAFETY: as above.
                        unsafe { lanes.put(2 * TILE * (index * TILE + d), half) };
                    }
                    let row = &mut row[2 * TILE * index..][..2 * TILE];
                    row.copy_from_slice(round(kernels, value).as_flattened());
                }
            }
            KvType::Q8_0 => {
                let block = SCALED * TILE + 2 * TILE;
                for (index, key) in key.chunks(SCALED).enumerate() {
                    let (scale, bytes) = quantise(key);
                    for (d, byte) in bytes.into_iter().enumerate().take(key.len()) {
                        // SAFETY: as above.
                        unsafe { lanes.put(block * index + TILE * d, byte.to_le_bytes()) };
                    }
                    // SAFETY: as above.
                    unsafe { lanes.put(block * index + SCALED * TILE, scale.to_le_bytes()) };
                }
                for (value, row) in value.chunks(SCALED).zip(row.chunks_exact_mut(SCALED + 2)) {
                    let (scale, bytes) = quantise(value);
                    for (to, byte) in row.iter_mut().zip(bytes) {
                        *to = byte as u8;
                    }
                    row[SCALED..].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
}

/// One position's lane of a tile.
struct Lane<'a> {
    tile: Share<'a, u8>,
    start: usize,
    lane: usize,
}

impl Lane<'_> {
    /// Writes an element of `N` bytes into the lane of the 16 elements at `offset`.
    ///
    /// # Safety
    /// Nobody else uses the element meanwhile.
    unsafe fn put<const N: usize>(&self, offset: usize, element: [u8; N]) {
        let at = self.start + offset + N * self.lane;
        // SAFETY: as the caller vouches.
        unsafe { self.tile.part(at..at + N) }.copy_from_slice(&element);
    }
}

/// Up to 16 elements in F16, filled up with zeros.
fn round(kernels: Kernels, xs: &[f32]) -> [[u8; 2]; TILE] {
    let mut wide = [0f32; TILE];
    wide[..xs.len()].copy_from_slice(xs);
    dispatch(kernels, Round(wide))
}

struct Round([f32; TILE]);

impl Kernel for Round {
    type Output = [[u8; 2]; TILE];

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Self::Output {
        let mut out = [[0; 2]; TILE];
        for part in (0..TILE).step_by(S::LANES) {
            // SAFETY: both arrays have so many elements; the caller vouches for the instructions.
            unsafe {
                let wide = S::load_f32(self.0.as_ptr().add(part));
                S::store_f16(out.as_mut_ptr().add(part).cast(), wide);
            }
        }
        out
    }
}

/// Up to 32 elements as bytes times a scale. What is not finite makes the scale so.
fn quantise(xs: &[f32]) -> (f16, [i8; SCALED]) {
    let largest = xs.iter().fold(0, |largest, x| largest.max(x.to_bits() & !(1 << 31)));
    let scale = f16::from_f32(f32::from_bits(largest) / 127.0);
    let inverse = if scale.to_f32() == 0.0 { 0.0 } else { scale.to_f32().recip() };
    let mut bytes = [0; SCALED];
    for (byte, &x) in bytes.iter_mut().zip(xs) {
        *byte = (x * inverse).round_ties_even() as i8;
    }
    (scale, bytes)
}
