//! Keys and values of all positions so far, allocated once and written in place.

use std::str::FromStr;

use candle_core::{Device, Result};

use super::config::ModelConfig;
pub(super) use device::{CachedKv, DeviceKv};
pub(super) use host::{HostKv, LayerKv, SCALED, TILE, padded_dim};

mod device;
mod host;

/// The type that keys and values are held in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// Four bytes.
    F32,
    /// Two bytes.
    F16,
    /// A byte, and an F16 for each 32 of them.
    Q8_0,
}

impl KvType {
    /// All of them, by name.
    const ALL: [(&'static str, Self); 3] =
        [("f32", Self::F32), ("f16", Self::F16), ("q8_0", Self::Q8_0)];

    /// Its name in `--kv-type` and in the cell report.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|entry| entry.1 == self).map_or("", |entry| entry.0)
    }

    /// What is held where nothing else is asked for: F16 on the processor, F32 on a device, whose
    /// matrix products take nothing else.
    pub fn default_for(device: &Device) -> Self {
        if device.is_cpu() && super::transformer::HAS_KERNELS { Self::F16 } else { Self::F32 }
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.iter().find(|entry| entry.0 == text);
        found.map(|entry| entry.1).ok_or_else(|| "expected `f32`, `f16` or `q8_0`".to_owned())
    }
}

/// The cache of one sequence.
#[derive(Debug)]
pub struct KvCache {
    pub(super) store: Store,
    len: usize,
    capacity: usize,
}

/// Where the positions are held.
#[derive(Debug)]
pub(super) enum Store {
    Host(HostKv),
    Device(DeviceKv),
}

impl KvCache {
    /// Room for `capacity` positions in the processor's memory.
    pub(super) fn on_host(config: &ModelConfig, capacity: usize, kv_type: KvType) -> Self {
        Self { store: Store::Host(HostKv::new(config, capacity, kv_type)), len: 0, capacity }
    }

    /// Room for `capacity` positions as tensors of a device.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn on_device(
        config: &ModelConfig,
        capacity: usize,
        device: &Device,
    ) -> Result<Self> {
        let store = Store::Device(DeviceKv::new(config, capacity, device)?);
        Ok(Self { store, len: 0, capacity })
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

    /// Counts `tokens` positions, which every layer has written, as filled.
    pub(super) fn advance(&mut self, tokens: usize) {
        self.len += tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_its_name() {
        for (name, kv_type) in KvType::ALL {
            assert_eq!((name.parse(), kv_type.name()), (Ok(kv_type), name));
        }
        assert_eq!("q4_0".parse::<KvType>().unwrap_err(), "expected `f32`, `f16` or `q8_0`");
    }
}
