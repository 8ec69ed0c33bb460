//! A few of candle's operations, as a decode step strings them together.

use candle_core::{DType, Device, Result, Tensor};

/// Weights and input of the operations.
pub(crate) struct Step {
    weight: Tensor,
    input: Tensor,
}

impl Step {
    pub(crate) fn new(device: &Device) -> Step {
        let ramp = |rows: usize, columns: usize| {
            let values: Vec<f32> =
                (0..rows * columns).map(|i| (i % 17) as f32 / 17.0 - 0.4).collect();
            Tensor::from_vec(values, (rows, columns), device).unwrap()
        };
        Step { weight: ramp(64, 64), input: ramp(4, 64) }
    }

    /// `input` through products, sums and a transposition; no copy to or from the host.
    pub(crate) fn run(&self) -> Result<Tensor> {
        let product = self.input.matmul(&self.weight)?;
        let sum = (&product + &self.input)?;
        let turned = sum.t()?.contiguous()?;
        let back = turned.t()?.contiguous()?.matmul(&self.weight)?;
        (back * 0.5)? + product
    }

    /// Replaces what the input holds.
    pub(crate) fn set_input(&self, value: f32) {
        let device = self.input.device();
        let new = (Tensor::ones((4, 64), DType::F32, device).unwrap() * f64::from(value)).unwrap();
        self.input.slice_set(&new, 0, 0).unwrap();
    }
}

/// What a tensor holds.
pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}
