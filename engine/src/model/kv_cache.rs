//! Keys and values of all positions so far, allocated once and written in place.

use candle_core::{CpuStorage, DType, Device, InplaceOp2, Layout, Result, Tensor, bail};

use super::config::ModelConfig;
use super::ops::f32_slice;

/// Positions in a tile of keys.
pub const TILE: usize = 16;

/// How keys lie in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLayout {
    /// `[kv_heads, positions, head_dim]`: what matrix products of a device take.
    Rows,
    /// `[kv_heads, positions / 16, head_dim, 16]`: 16 neighbouring positions fill a vector, so that
    /// scores need no sum across one. Values are rows in either layout.
    Tiles,
}

/// The cache of one sequence.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<(Tensor, Tensor)>,
    layout: KeyLayout,
    len: usize,
    capacity: usize,
}

/// One layer's keys and values up to a position.
#[derive(Debug)]
pub struct CachedKv<'a> {
    /// All keys of the cache, in its layout.
    pub keys: &'a Tensor,
    /// All values of the cache, `[kv_heads, capacity, head_dim]`.
    pub values: &'a Tensor,
    /// How the keys lie.
    pub layout: KeyLayout,
    /// Positions that count; the rest is not filled.
    pub context: usize,
}

impl KvCache {
    /// Allocates room for `capacity` positions, in the layout that attention on `device` is made
    /// for.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new(config: &ModelConfig, capacity: usize, device: &Device) -> Result<Self> {
        let layout = if device.is_cpu() && config.head_dim.is_multiple_of(TILE) {
            KeyLayout::Tiles
        } else {
            KeyLayout::Rows
        };
        Self::with_layout(config, capacity, device, layout)
    }

    /// Allocates room for `capacity` positions with keys in the given layout.
    ///
    /// # Errors
    /// Those of the device.
    pub fn with_layout(
        config: &ModelConfig,
        capacity: usize,
        device: &Device,
        layout: KeyLayout,
    ) -> Result<Self> {
        let (heads, head_dim) = (config.kv_heads, config.head_dim);
        let tiles = capacity.div_ceil(TILE);
        let layers = (0..config.layers)
            .map(|_| {
                let keys = match layout {
                    KeyLayout::Rows => {
                        Tensor::zeros((heads, capacity, head_dim), DType::F32, device)?
                    }
                    KeyLayout::Tiles => {
                        Tensor::zeros((heads, tiles, head_dim, TILE), DType::F32, device)?
                    }
                };
                Ok((keys, Tensor::zeros((heads, capacity, head_dim), DType::F32, device)?))
            })
            .collect::<Result<_>>()?;
        Ok(Self { layers, layout, len: 0, capacity })
    }

    /// Positions that are filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no position is filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Positions that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Forgets all positions; the memory stays.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Writes `[tokens, kv_heads, head_dim]` of one layer behind what is filled and returns
    /// everything up to there. The new positions count as filled only after [`KvCache::advance`],
    /// so that every layer writes to the same place.
    ///
    /// # Errors
    /// The cache is full, or shapes do not fit.
    pub fn append(&mut self, layer: usize, k: &Tensor, v: &Tensor) -> Result<CachedKv<'_>> {
        let tokens = k.dim(0)?;
        if self.len + tokens > self.capacity {
            bail!("the KV cache has room for {}, not for {}", self.capacity, self.len + tokens);
        }
        let (keys, values) = &self.layers[layer];
        match self.layout {
            KeyLayout::Rows => keys.slice_set(&to_head_major(k)?, 1, self.len)?,
            KeyLayout::Tiles => {
                keys.inplace_op2(&k.contiguous()?, &WriteTiles { position: self.len })?;
            }
        }
        values.slice_set(&to_head_major(v)?, 1, self.len)?;
        Ok(CachedKv { keys, values, layout: self.layout, context: self.len + tokens })
    }

    /// Counts `tokens` positions, which every layer has written, as filled.
    pub fn advance(&mut self, tokens: usize) {
        self.len += tokens;
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

/// Writes keys `[tokens, kv_heads, head_dim]` into the tiles from `position` on.
struct WriteTiles {
    position: usize,
}

impl InplaceOp2 for WriteTiles {
    fn name(&self) -> &'static str {
        "arc-write-key-tiles"
    }

    fn cpu_fwd(
        &self,
        cache: &mut CpuStorage,
        cache_layout: &Layout,
        keys: &CpuStorage,
        keys_layout: &Layout,
    ) -> Result<()> {
        let (tokens, heads, head_dim) = keys_layout.shape().dims3()?;
        let (cache_heads, tiles, cache_dim, _) = cache_layout.shape().dims4()?;
        let last = self.position + tokens;
        if (cache_heads, cache_dim) != (heads, head_dim) || last > tiles * TILE {
            bail!("keys {:?} do not fit the cache {:?}", keys_layout.dims(), cache_layout.dims());
        }
        let keys = f32_slice(keys, keys_layout)?;
        let (CpuStorage::F32(cache), 0, true) =
            (cache, cache_layout.start_offset(), cache_layout.is_contiguous())
        else {
            bail!("the key cache is not a whole F32 tensor");
        };
        for (row, key) in keys.chunks_exact(head_dim).enumerate() {
            let (token, head) = (row / heads, row % heads);
            let position = self.position + token;
            let tile = head * tiles + position / TILE;
            let lanes = &mut cache[tile * head_dim * TILE..][..head_dim * TILE];
            for (lane, &value) in lanes.chunks_exact_mut(TILE).zip(key) {
                lane[position % TILE] = value;
            }
        }
        Ok(())
    }
}
