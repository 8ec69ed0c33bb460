//! The seam of the quantised matrix product: everything that multiplies by weights comes here.
//!
//! Takes a weight matrix as the file has it and activations in F32, gives F32. What runs underneath
//! can be exchanged here without touching the model: candle's kernels on every device, and on
//! processors with AVX-512 VNNI a packed form of the 32-element quantisations.

use std::sync::Arc;

use candle_core::quantized::{QMatMul, QTensor};
use candle_core::{Device, Module as _, Result, Tensor};

use packed::{Packed, multiply_all};

mod packed;
#[cfg(target_arch = "x86_64")]
mod vnni;

/// A weight matrix `[out, in]`, with an optional bias `[out]`.
#[derive(Debug)]
pub struct Linear {
    weight: Weight,
    bias: Option<Tensor>,
}

#[derive(Debug)]
enum Weight {
    Candle(QMatMul),
    Packed(Packed),
}

impl Linear {
    /// Takes a matrix as it was read.
    ///
    /// # Errors
    /// Those of candle, when it converts the weights.
    pub fn new(weight: QTensor, bias: Option<Tensor>) -> Result<Self> {
        let weight = match Packed::pack(&weight)? {
            Some(packed) => Weight::Packed(packed),
            None => Weight::Candle(QMatMul::from_arc(Arc::new(weight))?),
        };
        Ok(Self { weight, bias })
    }

    /// `[rows, in]` → `[rows, out]`.
    ///
    /// # Errors
    /// Those of candle: shapes that do not fit.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        let [product] = Self::forward_all([self], xs)?;
        Ok(product)
    }

    /// [`Linear::forward`] through several matrices of the same input, which may share work.
    ///
    /// # Errors
    /// Those of candle: shapes that do not fit.
    pub fn forward_all<const N: usize>(linears: [&Self; N], xs: &Tensor) -> Result<[Tensor; N]> {
        let mut packed = Vec::with_capacity(N);
        for linear in linears {
            if let Weight::Packed(weight) = &linear.weight {
                packed.push(weight);
            }
        }
        let mut products = match <[&Packed; N]>::try_from(packed) {
            Ok(weights) => multiply_all(weights, &xs.contiguous()?)?.to_vec(),
            Err(_) => linears
                .iter()
                .map(|linear| match &linear.weight {
                    Weight::Candle(weight) => weight.forward(xs),
                    Weight::Packed(weight) => {
                        let [product] = multiply_all([weight], &xs.contiguous()?)?;
                        Ok(product)
                    }
                })
                .collect::<Result<_>>()?,
        };
        for (linear, product) in linears.iter().zip(&mut products) {
            if let Some(bias) = &linear.bias {
                *product = product.broadcast_add(bias)?;
            }
        }
        Ok(products.try_into().expect("there is one product for each matrix"))
    }

    /// Rows of the matrix, for token ids `[tokens]` → `[tokens, in]`.
    ///
    /// # Errors
    /// An id without a row.
    pub fn embed(&self, ids: &Tensor) -> Result<Tensor> {
        match &self.weight {
            Weight::Candle(weight) => weight.embedding(ids),
            Weight::Packed(weight) => {
                let ids = ids.to_vec1::<u32>()?;
                let rows = weight.rows_at(&ids)?;
                Tensor::from_vec(rows, (ids.len(), weight.columns()), &Device::Cpu)
            }
        }
    }
}
