//! Weight matrices packed for byte products: 16 rows side by side, in tiles of 32 columns.
//!
//! A tile holds, for 32 columns of 16 rows, unsigned integers `u` and for each row a scale `d` and
//! an offset `m`, so that a weight is `d·u + m`. That form covers every ggml type with blocks of 32:
//! the signed ones become unsigned by an offset. Lane r of a vector belongs to row r, so products
//! are never summed across a vector.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Result, Storage, Tensor, bail};
use half::f16;

use crate::model::ops::f32_slice;
use crate::model::par;

/// Rows of a tile.
pub(super) const LANES: usize = 16;
/// Columns of a tile.
pub(super) const COLUMNS: usize = 32;

/// Products that are worth a job of their own on another thread.
const JOB_PRODUCTS: usize = 1 << 16;

/// A tile of four-bit weights. Byte `4r + i` of line `l` holds columns `4l + i` (low) and
/// `16 + 4l + i` (high) of row r.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Nibbles {
    pub(super) lines: [[u8; 64]; 4],
    pub(super) scales: [u16; LANES],
    pub(super) offsets: [u16; LANES],
}

/// A tile of eight-bit weights. Byte `4r + i` of line `l` holds column `4l + i` of row r.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Bytes {
    pub(super) lines: [[u8; 64]; 8],
    pub(super) scales: [u16; LANES],
    pub(super) offsets: [u16; LANES],
}

#[derive(Debug)]
pub(super) enum Tiles {
    Nibbles(Vec<Nibbles>),
    Bytes(Vec<Bytes>),
}

/// A packed matrix. Tiles of 16 rows follow each other along the columns.
#[derive(Debug)]
pub(super) struct Packed {
    rows: usize,
    columns: usize,
    tiles: Tiles,
}

/// 32 activations as signed bytes `a`: an activation is `scale·a`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Activations {
    pub(super) bytes: [i8; COLUMNS],
    pub(super) scale: f32,
    /// `scale` times the sum of the bytes, which an offset is multiplied by.
    pub(super) sum: f32,
}

impl Packed {
    /// Packs a matrix, if the processor has the instructions and the type the form; else `None`.
    pub(super) fn pack(weight: &QTensor) -> Result<Option<Self>> {
        if !supported() || !weight.device().is_cpu() {
            return Ok(None);
        }
        let Ok((rows, columns)) = weight.shape().dims2() else { return Ok(None) };
        let dtype = weight.dtype();
        let nibbles = match dtype {
            GgmlDType::Q4_0 | GgmlDType::Q4_1 => true,
            GgmlDType::Q5_0 | GgmlDType::Q5_1 | GgmlDType::Q8_0 => false,
            _ => return Ok(None),
        };
        let data = weight.data()?;
        let blocks = columns / COLUMNS;
        let count = rows.div_ceil(LANES) * blocks;
        let mut tiles = if nibbles {
            let empty = Nibbles { lines: [[0; 64]; 4], scales: [0; 16], offsets: [0; 16] };
            Tiles::Nibbles(vec![empty; count])
        } else {
            let empty = Bytes { lines: [[0; 64]; 8], scales: [0; 16], offsets: [0; 16] };
            Tiles::Bytes(vec![empty; count])
        };
        let mut unsigned = [0; COLUMNS];
        for (index, block) in data.chunks_exact(dtype.type_size()).enumerate() {
            let (row, block_index) = (index / blocks, index % blocks);
            let (scale, offset) = unpack(dtype, block, &mut unsigned);
            if !offset.is_finite() {
                // A scale so large that its offset leaves the range of f16.
                return Ok(None);
            }
            let (tile, lane) = (row / LANES * blocks + block_index, row % LANES);
            match &mut tiles {
                Tiles::Nibbles(tiles) => {
                    let tile = &mut tiles[tile];
                    (tile.scales[lane], tile.offsets[lane]) = (scale.to_bits(), offset.to_bits());
                    for column in 0..COLUMNS / 2 {
                        tile.lines[column / 4][4 * lane + column % 4] =
                            unsigned[column] | unsigned[column + COLUMNS / 2] << 4;
                    }
                }
                Tiles::Bytes(tiles) => {
                    let tile = &mut tiles[tile];
                    (tile.scales[lane], tile.offsets[lane]) = (scale.to_bits(), offset.to_bits());
                    for (column, &value) in unsigned.iter().enumerate() {
                        tile.lines[column / 4][4 * lane + column % 4] = value;
                    }
                }
            }
        }
        Ok(Some(Self { rows, columns, tiles }))
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// The weights of some rows, one after the other.
    pub(super) fn rows_at(&self, rows: &[u32]) -> Result<Vec<f32>> {
        let blocks = self.columns / COLUMNS;
        let mut out = Vec::with_capacity(rows.len() * self.columns);
        for &row in rows {
            let row = row as usize;
            if row >= self.rows {
                bail!("row {row} is beyond the {} of the matrix", self.rows);
            }
            let lane = row % LANES;
            for tile in row / LANES * blocks..(row / LANES + 1) * blocks {
                let weight = |scale: u16, offset: u16, value: u8| {
                    let offset = f16::from_bits(offset).to_f32();
                    par::mul_add(f16::from_bits(scale).to_f32(), f32::from(value), offset)
                };
                match &self.tiles {
                    Tiles::Nibbles(tiles) => {
                        let tile = &tiles[tile];
                        out.extend((0..COLUMNS).map(|column| {
                            let byte = tile.lines[column % 16 / 4][4 * lane + column % 4];
                            let value = if column < 16 { byte & 15 } else { byte >> 4 };
                            weight(tile.scales[lane], tile.offsets[lane], value)
                        }));
                    }
                    Tiles::Bytes(tiles) => {
                        let tile = &tiles[tile];
                        out.extend((0..COLUMNS).map(|column| {
                            let value = tile.lines[column / 4][4 * lane + column % 4];
                            weight(tile.scales[lane], tile.offsets[lane], value)
                        }));
                    }
                }
            }
        }
        Ok(out)
    }
}

/// Unpacks a ggml block of 32 into unsigned integers; returns scale and offset.
fn unpack(dtype: GgmlDType, block: &[u8], out: &mut [u8; COLUMNS]) -> (f16, f16) {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]);
    let scale = half(0);
    let times = |factor: f32| f16::from_f32(scale.to_f32() * factor);
    let mut nibbles = |bytes: &[u8], fifth: u32| {
        for (column, &byte) in bytes.iter().enumerate() {
            let bit = |index: usize| ((fifth >> index & 1) << 4) as u8;
            out[column] = byte & 15 | bit(column);
            out[column + 16] = byte >> 4 | bit(column + 16);
        }
    };
    let word =
        |at: usize| u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]);
    match dtype {
        GgmlDType::Q4_0 => {
            nibbles(&block[2..], 0);
            (scale, times(-8.0))
        }
        GgmlDType::Q4_1 => {
            nibbles(&block[4..], 0);
            (scale, half(2))
        }
        GgmlDType::Q5_0 => {
            nibbles(&block[6..], word(2));
            (scale, times(-16.0))
        }
        GgmlDType::Q5_1 => {
            nibbles(&block[8..], word(4));
            (scale, half(2))
        }
        GgmlDType::Q8_0 => {
            for (out, &byte) in out.iter_mut().zip(&block[2..]) {
                *out = byte ^ 0x80;
            }
            (scale, times(-128.0))
        }
        other => unreachable!("{other:?} is not packed"),
    }
}

/// Whether this processor has the instructions of the kernels.
fn supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Quantises rows of activations, 32 at a time, by their largest magnitude.
fn quantise(xs: &[f32]) -> Vec<Activations> {
    /// Blocks that are worth a job of their own on another thread.
    const JOB: usize = 512;
    let mut out = vec![Activations::default(); xs.len() / COLUMNS];
    par::for_each_chunk(&mut out, JOB, xs.len(), |index, out| {
        let xs = xs[index * JOB * COLUMNS..].chunks_exact(COLUMNS);
        for (out, xs) in out.iter_mut().zip(xs) {
            let largest = xs.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            let scale = largest / 127.0;
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            let mut sum = 0;
            for (byte, &x) in out.bytes.iter_mut().zip(xs) {
                let value = (x * inverse).round_ties_even() as i32;
                *byte = value as i8;
                sum += value;
            }
            (out.scale, out.sum) = (scale, scale * sum as f32);
        }
    });
    out
}

/// `xs · weightᵀ` for several matrices, which share the quantised activations and one parallel
/// region.
pub(super) fn multiply_all<const N: usize>(
    weights: [&Packed; N],
    xs: &Tensor,
) -> Result<[Tensor; N]> {
    let (m, columns) = xs.dims2()?;
    if let Some(weight) = weights.iter().find(|weight| weight.columns != columns) {
        bail!("rows of {columns} do not fit a matrix of {} columns", weight.columns);
    }
    let acts = {
        let (storage, layout) = xs.storage_and_layout();
        let Storage::Cpu(storage) = &*storage else {
            bail!("packed weights need activations on the processor");
        };
        quantise(f32_slice(storage, layout)?)
    };
    let mut outs = weights.map(|weight| vec![0f32; m * weight.rows]);
    let mut matrices: Vec<_> = outs
        .iter_mut()
        .zip(&weights)
        .map(|(out, weight)| par::Rows { out, row_len: weight.rows })
        .collect();
    let blocks = columns / COLUMNS;
    // Strips of so many tiles of rows that each is worth a job.
    let groups = (JOB_PRODUCTS / (LANES * columns * m).max(1)).max(1);
    par::for_each_strip(&mut matrices, groups * LANES, |matrix, index, mut strip| {
        let weight = weights[matrix];
        let first = index * groups;
        for group in first..(first + groups).min(weight.rows.div_ceil(LANES)) {
            let range = group * blocks..(group + 1) * blocks;
            multiply(&weight.tiles, range, &acts, m, &mut |row, values| {
                let out = &mut strip.row(row)[(group - first) * LANES..];
                let width = out.len().min(LANES);
                out[..width].copy_from_slice(&values[..width]);
            });
        }
    });
    let mut tensors = Vec::with_capacity(N);
    for (out, weight) in outs.into_iter().zip(&weights) {
        tensors.push(Tensor::from_vec(out, (m, weight.rows), &Device::Cpu)?);
    }
    Ok(tensors.try_into().expect("one tensor was pushed for each weight"))
}

/// Products of 16 rows of the matrix, whose tiles are `range`, with all rows of activations.
fn multiply(
    tiles: &Tiles,
    range: std::ops::Range<usize>,
    acts: &[Activations],
    m: usize,
    write: &mut dyn FnMut(usize, &[f32; LANES]),
) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a matrix is packed only where `supported` has found these instructions.
    unsafe {
        match tiles {
            Tiles::Nibbles(tiles) => super::vnni::multiply(&tiles[range], acts, m, write),
            Tiles::Bytes(tiles) => super::vnni::multiply(&tiles[range], acts, m, write),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (tiles, range, acts, m, write);
        unreachable!("a matrix is packed only where the instructions are supported");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;

    /// Rows and products of the packed form are those of the dequantised matrix, for each type, for
    /// row counts that leave the last tile unfilled, and for one and many rows of activations.
    ///
    /// The product rounds each activation to 1/127 of its block's largest, b: an error of at most
    /// b/254 each. With normal activations b is below 4.5, so the error of one is below 0.0178, its
    /// deviation below 0.0178/√3, and that of a sum over k weights of deviation w below 0.0103·w·√k;
    /// six deviations are never exceeded in as few draws as these.
    #[test]
    #[expect(clippy::print_stdout, reason = "a test that skips says so")]
    fn the_packed_form_is_the_dequantised_matrix() {
        if !supported() {
            println!("skipped: this processor has no AVX-512 VNNI");
            return;
        }
        for dtype in
            [GgmlDType::Q4_0, GgmlDType::Q4_1, GgmlDType::Q5_0, GgmlDType::Q5_1, GgmlDType::Q8_0]
        {
            for (n, k, m) in [(16, 32, 1), (40, 96, 3), (33, 64, 8), (48, 320, 21)] {
                let dense = Tensor::randn(0f32, 1.0, (n, k), &Device::Cpu).unwrap();
                let weight = QTensor::quantize(&dense, dtype).unwrap();
                let dense = weight.dequantize(&Device::Cpu).unwrap();
                let packed = Packed::pack(&weight).unwrap().unwrap();
                let ids: Vec<u32> = (0..n as u32).rev().collect();
                let rows = packed.rows_at(&ids).unwrap();
                let expected = dense.to_vec2::<f32>().unwrap();
                for (row, expected) in rows.chunks_exact(k).zip(expected.iter().rev()) {
                    for (a, b) in row.iter().zip(expected) {
                        assert!((a - b).abs() <= 1e-6 * (1.0 + b.abs()), "{dtype:?}: {a} {b}");
                    }
                }
                assert!(packed.rows_at(&[n as u32]).is_err());
                let xs = Tensor::randn(0f32, 1.0, (m, k), &Device::Cpu).unwrap();
                let [product, again] = multiply_all([&packed, &packed], &xs).unwrap();
                let differ = (&product - again).unwrap().abs().unwrap().sum_all().unwrap();
                assert_eq!(differ.to_scalar::<f32>().unwrap(), 0.0);
                let exact = xs.matmul(&dense.t().unwrap()).unwrap();
                let error = (product - exact).unwrap().abs().unwrap().to_dtype(DType::F32);
                let error = error.unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
                let tolerance = 6.0 * 0.0103 * (k as f32).sqrt();
                let largest = error.iter().copied().fold(0f32, f32::max);
                assert!(largest <= tolerance, "{dtype:?} {n}×{k}×{m}: {largest} > {tolerance}");
            }
        }
    }

    #[test]
    fn types_without_the_form_are_left_to_candle() {
        let dense = Tensor::randn(0f32, 1.0, (16, 256), &Device::Cpu).unwrap();
        for dtype in [GgmlDType::F32, GgmlDType::Q4K, GgmlDType::Q6K] {
            let weight = QTensor::quantize(&dense, dtype).unwrap();
            assert!(Packed::pack(&weight).unwrap().is_none());
        }
    }
}
