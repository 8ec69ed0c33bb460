//! The rotations of a model: what the metadata and the file's factors make of the frequencies.

use crate::model::config::ModelConfig;
use crate::model::load::Loader;
use crate::model::rope::{RopeFrequencies, plan_frequencies};

/// Cosines and sines, `[positions, rotated / 2]` each.
pub(super) type Tables = (Vec<f32>, Vec<f32>);

/// One for each of [`ModelConfig::ropes`].
#[derive(Debug)]
pub(super) struct Rotations {
    each: Vec<Rotation>,
}

#[derive(Debug)]
struct Rotation {
    short: RopeFrequencies,
    /// For contexts beyond the original one, where it differs.
    long: Option<(usize, RopeFrequencies)>,
}

impl Rotations {
    pub(super) fn load(loader: &Loader<'_>, config: &ModelConfig) -> anyhow::Result<Self> {
        let read = |name: &str| -> anyhow::Result<Option<Vec<f32>>> {
            if !config.architecture.rope_factors || !loader.has(name) {
                return Ok(None);
            }
            loader.dense(name, config.rotated / 2).map(Some)
        };
        let factors = read("rope_freqs.weight")?;
        let (short, long) = (read("rope_factors_short.weight")?, read("rope_factors_long.weight")?);
        let each = config.ropes.iter().map(|rope| {
            let plan = |factors: &Option<Vec<f32>>| {
                plan_frequencies(config.rotated, rope, factors.as_deref().unwrap_or_default())
            };
            // Factors for every length win, as in llama.cpp.
            if factors.is_some() {
                return Rotation { short: plan(&factors), long: None };
            }
            let differs = short.is_some() || long.is_some();
            let long = differs.then(|| (rope.original_context, plan(&long)));
            Rotation { short: plan(&short), long }
        });
        Ok(Self { each: each.collect() })
    }

    /// The tables for so many positions, which decide between factors for short and long contexts.
    pub(super) fn tables(&self, positions: usize) -> Vec<Tables> {
        let of = |rotation: &Rotation| match &rotation.long {
            Some((original, long)) if positions > *original => long.tables(positions),
            _ => rotation.short.tables(positions),
        };
        self.each.iter().map(of).collect()
    }
}
