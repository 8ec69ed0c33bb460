//! Keys and values as tensors of a device, in F32.

use candle_core::{DType, Device, Result, Tensor};

use crate::model::config::ModelConfig;

/// Keys and values of each layer, `[kv_heads, capacity, head_dim]`.
#[derive(Debug)]
pub(in crate::model) struct DeviceKv {
    layers: Vec<(Tensor, Tensor)>,
}

/// One layer's keys and values up to a position, `[kv_heads, context, head_dim]`.
#[derive(Debug)]
pub(in crate::model) struct CachedKv {
    pub(in crate::model) keys: Tensor,
    pub(in crate::model) values: Tensor,
}

impl DeviceKv {
    pub(super) fn new(config: &ModelConfig, capacity: usize, device: &Device) -> Result<Self> {
        let shape = (config.kv_heads, capacity, config.head_dim);
        let zeros = || Tensor::zeros(shape, DType::F32, device);
        let layers = (0..config.layers).map(|_| Ok((zeros()?, zeros()?))).collect::<Result<_>>()?;
        Ok(Self { layers })
    }

    /// Writes `[tokens, kv_heads, head_dim]` of one layer from position `filled` on and returns
    /// everything up to there.
    ///
    /// # Errors
    /// Shapes do not fit.
    pub(in crate::model) fn append(
        &self,
        layer: usize,
        filled: usize,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<CachedKv> {
        let (keys, values) = &self.layers[layer];
        keys.slice_set(&to_head_major(k)?, 1, filled)?;
        values.slice_set(&to_head_major(v)?, 1, filled)?;
        let context = filled + k.dim(0)?;
        Ok(CachedKv { keys: keys.narrow(1, 0, context)?, values: values.narrow(1, 0, context)? })
    }
}

/// `[tokens, heads, head_dim]` → `[heads, tokens, head_dim]`, without a copy for a single token.
fn to_head_major(xs: &Tensor) -> Result<Tensor> {
    let (tokens, heads, head_dim) = xs.dims3()?;
    if tokens == 1 {
        xs.contiguous()?.reshape((heads, 1, head_dim))
    } else {
        xs.transpose(0, 1)?.contiguous()
    }
}
