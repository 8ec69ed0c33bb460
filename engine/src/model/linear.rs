//! Matrix products: everything that multiplies by weights comes here.
//!
//! On the processor a [`Matrix`] holds the file's bytes in tiles and multiplies them with kernels for
//! the instruction set at hand: see `format`. Every other device takes candle's through [`Linear`].

use std::sync::Arc;

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{Module as _, Result, Tensor};

pub(super) use activations::{Quantised, quantise};
pub(super) use buffer::Buffer;
pub(super) use format::Inputs;
pub(super) use matrix::Matrix;
pub(super) use product::Output;

mod activations;
mod bits;
mod buffer;
mod floats;
mod format;
mod iq4_nl;
mod iq4_xs;
mod matrix;
mod mxfp4;
mod product;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
#[cfg(test)]
mod tests;

/// Rows of a group, whose products lie beside each other.
pub(super) const GROUP: usize = format::ROWS;
/// Activations to a [`Quantised`].
pub(super) const QUANTISED: usize = format::COLUMNS;

/// A weight matrix `[out, in]` of a device, with an optional bias `[out]`.
#[derive(Debug)]
pub(super) struct Linear {
    weight: QMatMul,
    bias: Option<Tensor>,
}

impl Linear {
    /// Takes a matrix as it was read.
    ///
    /// # Errors
    /// Those of candle, when it converts the weights.
    pub(super) fn new(weight: QTensor, bias: Option<Tensor>) -> Result<Self> {
        Ok(Self { weight: QMatMul::from_arc(Arc::new(weight))?, bias })
    }

    /// `[rows, in]` → `[rows, out]`.
    ///
    /// # Errors
    /// Those of candle: shapes that do not fit.
    pub(super) fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let product = self.weight.forward(xs)?;
        match &self.bias {
            Some(bias) => product.broadcast_add(bias),
            None => Ok(product),
        }
    }

    /// Rows of the matrix, for token ids `[tokens]` → `[tokens, in]`.
    ///
    /// # Errors
    /// An id without a row.
    pub(super) fn embed(&self, ids: &Tensor) -> Result<Tensor> {
        self.weight.embedding(ids)
    }
}
