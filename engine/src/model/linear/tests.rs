//! Every type against an independent decoder, every path against the plain one.

use half::{bf16, f16};

use super::*;
use crate::model::gguf::TensorType;
use crate::model::par::Share;
use crate::model::simd::Kernels;

/// Blocks and what they decode to, as the Python package `gguf` has it: see `record.py` there.
macro_rules! fixtures {
    ($($tensor_type:ident $file:literal),* $(,)?) => {
        [$((
            TensorType::$tensor_type,
            include_bytes!(concat!("../../../tests/fixtures/quants/", $file, ".bin")).as_slice(),
        )),*]
    };
}

const FIXTURES: [(TensorType, &[u8]); 13] = fixtures![
    Q4_0 "q4_0", Q4_1 "q4_1", Q5_0 "q5_0", Q5_1 "q5_1", Q8_0 "q8_0", Q2K "q2_k", Q3K "q3_k",
    Q4K "q4_k", Q5K "q5_k", Q6K "q6_k", IQ4_NL "iq4_nl", IQ4_XS "iq4_xs", MXFP4 "mxfp4",
];

/// A matrix as a file has it, and its weights.
struct Sample {
    tensor_type: TensorType,
    rows: usize,
    columns: usize,
    data: Vec<u8>,
    weights: Vec<f32>,
}

impl Sample {
    /// Rows of the recorded blocks, each row beginning with another of them.
    fn recorded(tensor_type: TensorType, fixture: &[u8], rows: usize, columns: usize) -> Self {
        let (size, bytes) = (tensor_type.block_size(), tensor_type.type_size());
        let count = fixture.len() / (bytes + 4 * size);
        let (blocks, weights) = fixture.split_at(count * bytes);
        let (mut data, mut all) = (Vec::new(), Vec::new());
        for row in 0..rows {
            for block in 0..columns / size {
                let index = (row + block) % count;
                data.extend(&blocks[index * bytes..][..bytes]);
                let floats = weights[4 * index * size..][..4 * size].as_chunks::<4>().0;
                all.extend(floats.iter().map(|&float| f32::from_le_bytes(float)));
            }
        }
        Self { tensor_type, rows, columns, data, weights: all }
    }

    /// Rows of floats.
    fn floats(tensor_type: TensorType, rows: usize, columns: usize) -> Self {
        let (mut data, mut weights) = (Vec::new(), Vec::new());
        for index in 0..rows * columns {
            let value = ((index * 7919 % 1009) as f32 - 504.0) / 301.0;
            weights.push(match tensor_type {
                TensorType::F16 => {
                    let value = f16::from_f32(value);
                    data.extend(value.to_le_bytes());
                    value.to_f32()
                }
                TensorType::BF16 => {
                    let value = bf16::from_f32(value);
                    data.extend(value.to_le_bytes());
                    value.to_f32()
                }
                _ => {
                    data.extend(value.to_le_bytes());
                    value
                }
            });
        }
        Self { tensor_type, rows, columns, data, weights }
    }

    /// One of every type.
    fn all(rows: usize) -> Vec<Self> {
        let mut all: Vec<Self> = FIXTURES
            .iter()
            .map(|(tensor_type, fixture)| {
                let columns = 3 * tensor_type.block_size();
                Self::recorded(*tensor_type, fixture, rows, columns)
            })
            .collect();
        for tensor_type in [TensorType::F16, TensorType::BF16, TensorType::F32] {
            all.push(Self::floats(tensor_type, rows, 48));
        }
        all
    }

    fn load(&self, kernels: Kernels) -> Matrix {
        let shape = (self.rows, self.columns);
        Matrix::read(self.tensor_type, shape, kernels, |at, out| {
            out.copy_from_slice(&self.data[at as usize..][..out.len()]);
            Ok(())
        })
        .unwrap()
    }
}

/// Some rows of activations, of very different sizes, and one row whose bytes are all the largest.
fn activations(rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns)
        .map(|index| match index / columns {
            1 => 1.5,
            row => ((index * 37 % 211) as f32 - 105.0) * 0.013 * (1.0 + row as f32),
        })
        .collect()
}

/// Products of a whole matrix, `[rows of xs, padded rows]`.
fn products(matrix: &Matrix, kernels: Kernels, xs: &[f32], add: Option<f32>) -> Vec<f32> {
    let rows = xs.len() / matrix.columns();
    let mut bytes = Vec::new();
    if matrix.takes_bytes() {
        bytes.resize(xs.len() / QUANTISED, Quantised::default());
        quantise(kernels, xs, &mut bytes);
    }
    let inputs = Inputs { rows, floats: xs, stride: matrix.columns(), bytes: &bytes };
    let stride = matrix.padded_rows();
    let mut out = vec![add.unwrap_or(f32::NAN); rows * stride];
    let share = Share::new(&mut out);
    // Two strips, as threads would take them.
    for groups in [1..matrix.groups(), 0..1] {
        // SAFETY: nobody else uses `out`.
        let output = unsafe { Output::new(share, stride, groups.start * GROUP, add.is_some()) };
        matrix.multiply(groups, &inputs, &output);
    }
    out
}

#[test]
fn every_type_decodes_to_what_an_independent_decoder_gives() {
    for sample in Sample::all(37) {
        let matrix = sample.load(Kernels::SCALAR);
        let mut row = vec![0.0; sample.columns];
        for (index, expected) in sample.weights.chunks_exact(sample.columns).enumerate() {
            matrix.row(index, &mut row);
            for (column, (&ours, &theirs)) in row.iter().zip(expected).enumerate() {
                // One rounding more or less: that of scale times minimum, or of their sum.
                let close = (ours - theirs).abs() <= 1.2e-7 * (theirs.abs() + 0.1);
                assert!(
                    close || ours == theirs,
                    "{:?} row {index}, column {column}: {ours} is not {theirs}",
                    sample.tensor_type
                );
            }
        }
    }
}

/// Products are those of the decoded weights with the activations in bytes, computed in F64.
#[test]
fn products_are_those_of_the_decoded_weights() {
    for sample in Sample::all(37) {
        let matrix = sample.load(Kernels::SCALAR);
        let mut xs = activations(5, sample.columns);
        let ours = products(&matrix, Kernels::SCALAR, &xs, None);
        if matrix.takes_bytes() {
            let mut bytes = vec![Quantised::default(); xs.len() / QUANTISED];
            quantise(Kernels::SCALAR, &xs, &mut bytes);
            for (xs, block) in xs.chunks_exact_mut(QUANTISED).zip(&bytes) {
                for (x, &byte) in xs.iter_mut().zip(&block.bytes) {
                    *x = block.scale * f32::from(byte);
                }
            }
        }
        for (xs, ours) in xs.chunks_exact(sample.columns).zip(ours.chunks(matrix.padded_rows())) {
            for (weights, ours) in sample.weights.chunks_exact(sample.columns).zip(ours) {
                let terms = weights.iter().zip(xs).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let size: f64 = terms.clone().map(f64::abs).sum();
                let exact: f64 = terms.sum();
                let error = (f64::from(*ours) - exact).abs();
                // Offsets of 128 steps cancel what products of them added.
                assert!(error <= 3e-6 * size.max(1e-3), "{:?}: {error}", sample.tensor_type);
            }
        }
    }
}

#[test]
fn every_path_gives_the_same_bits_for_any_number_of_rows() {
    for sample in Sample::all(37) {
        let xs = activations(11, sample.columns);
        let expected = products(&sample.load(Kernels::SCALAR), Kernels::SCALAR, &xs, None);
        for kernels in Kernels::available() {
            let matrix = sample.load(kernels);
            let stride = matrix.padded_rows();
            for rows in [1, 2, 3, 4, 7, 8, 11] {
                let ours = products(&matrix, kernels, &xs[..rows * sample.columns], None);
                for (index, (a, b)) in ours.iter().zip(&expected).enumerate() {
                    let (row, column) = (index / stride, index % stride);
                    assert_eq!(
                        a.to_bits(),
                        b.to_bits(),
                        "{:?} {kernels:?}, {rows} rows, row {row}, {column}: {a} is not {b}",
                        sample.tensor_type
                    );
                }
            }
        }
    }
}

/// Bytes and integers as large as they get: sums of 16 bits must not overflow.
#[test]
fn the_largest_integers_do_not_overflow() {
    for (tensor_type, fixture) in FIXTURES {
        let columns = 2 * tensor_type.block_size();
        let mut sample = Sample::recorded(tensor_type, fixture, 16, columns);
        for pattern in [0xff, 0x00, 0x7f, 0x80] {
            for block in sample.data.chunks_exact_mut(tensor_type.type_size()) {
                // Scales stay, wherever they are: those of the type's last or first bytes.
                let scales = match tensor_type {
                    TensorType::Q2K => 80..84,
                    TensorType::Q3K => 108..110,
                    TensorType::Q6K => 208..210,
                    TensorType::MXFP4 => 0..1,
                    TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4K | TensorType::Q5K => 0..4,
                    _ => 0..2,
                };
                for (at, byte) in block.iter_mut().enumerate() {
                    if !scales.contains(&at) {
                        *byte = pattern;
                    }
                }
            }
            for sign in [1.0, -1.0] {
                let xs = vec![sign; 2 * columns];
                let scalar = sample.load(Kernels::SCALAR);
                let expected = products(&scalar, Kernels::SCALAR, &xs, None);
                for kernels in Kernels::available() {
                    let ours = products(&sample.load(kernels), kernels, &xs, None);
                    assert_eq!(ours, expected, "{tensor_type:?} {kernels:?} {pattern:#x} {sign}");
                }
            }
        }
    }
}

#[test]
fn products_are_added_where_that_is_asked_for() {
    for sample in Sample::all(32) {
        let xs = activations(3, sample.columns);
        for kernels in Kernels::available() {
            let matrix = sample.load(kernels);
            let plain = products(&matrix, kernels, &xs, None);
            let added = products(&matrix, kernels, &xs, Some(2.5));
            let expected: Vec<f32> = plain.iter().map(|product| 2.5 + product).collect();
            assert_eq!(added, expected, "{:?} {kernels:?}", sample.tensor_type);
        }
    }
}

/// A tile has the bytes of its blocks, no more: what is read from memory is what the file has.
#[test]
fn a_matrix_takes_the_bytes_that_the_file_has() {
    for sample in Sample::all(32) {
        assert_eq!(sample.load(Kernels::SCALAR).bytes(), sample.data.len());
    }
}

#[test]
fn what_is_not_finite_spoils_its_products() {
    for (tensor_type, fixture) in FIXTURES.iter().filter(|f| f.0 != TensorType::MXFP4) {
        let mut sample = Sample::recorded(*tensor_type, fixture, 16, tensor_type.block_size());
        let at = match tensor_type {
            TensorType::Q2K => 80,
            TensorType::Q3K => 108,
            TensorType::Q6K => 208,
            _ => 0,
        };
        sample.data[at..at + 2].copy_from_slice(&f16::NAN.to_le_bytes());
        let xs = activations(2, sample.columns);
        for kernels in Kernels::available() {
            let ours = products(&sample.load(kernels), kernels, &xs, None);
            assert!(ours[0].is_nan() && ours[1].is_finite(), "{tensor_type:?} {kernels:?}");
        }
    }
}

#[test]
fn an_error_of_the_reader_is_that_of_the_matrix() {
    let error = Matrix::read(TensorType::Q8_0, (40, 32), Kernels::SCALAR, |_, _| {
        Err(std::io::Error::other("gone"))
    });
    assert_eq!(error.unwrap_err().to_string(), "gone");
}
