//! Rotary position embeddings: the angles, with scaling as the metadata say.
//!
//! Pure arithmetic on the host; applying them to heads is `super::ops`'s part. The formulas of
//! YaRN are those of Peng et al. (arXiv 2309.00071) with llama.cpp's constants; Llama 3's factors
//! come precomputed in the tensor `rope_freqs.weight`.

use std::f64::consts::PI;

use super::gguf::{Gguf, GgufError};

/// Rotations for which YaRN keeps the original frequency, at least.
const YARN_BETA_FAST: f64 = 32.0;
/// Rotations for which YaRN interpolates in full, at most.
const YARN_BETA_SLOW: f64 = 1.0;

/// How positions beyond the trained context are reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Every position is divided by the factor.
    Linear {
        /// At least 1 in sensible files; positive.
        factor: f64,
    },
    /// Low frequencies are interpolated, high ones kept.
    Yarn {
        /// Positive.
        factor: f64,
        /// The context that the model was trained with, in tokens.
        original_context: f64,
    },
}

impl RopeScaling {
    /// Reads `ARCH.rope.scaling.*`.
    ///
    /// # Errors
    /// An unknown type, with a list of the known ones, or a factor that is no positive number.
    pub(super) fn parse(gguf: &Gguf, arch: &str, context: usize) -> Result<Self, GgufError> {
        let key = |suffix: &str| format!("{arch}.rope.{suffix}");
        let positive = |key: String| -> Result<Option<f64>, GgufError> {
            match gguf.opt_f64(&key)? {
                Some(value) if !value.is_finite() || value <= 0.0 => {
                    let what = format!("must be a positive number, is {value}");
                    Err(GgufError::BadKey { key, what })
                }
                other => Ok(other),
            }
        };
        let factor = match positive(key("scaling.factor"))? {
            Some(factor) => Some(factor),
            // The key of older files, always linear.
            None => positive(key("scale_linear"))?,
        };
        let kind_key = key("scaling.type");
        match (gguf.opt_str(&kind_key)?, factor) {
            // Long contexts come by factors, which are tensors.
            (Some("none" | "longrope"), _) | (None, None) => Ok(Self::None),
            (Some("linear") | None, Some(factor)) => Ok(Self::Linear { factor }),
            (Some("linear"), None) => Ok(Self::None),
            (Some("yarn"), factor) => Ok(Self::Yarn {
                factor: factor
                    .ok_or_else(|| GgufError::MissingKey { key: key("scaling.factor") })?,
                original_context: positive(key("scaling.original_context_length"))?
                    .unwrap_or(context as f64),
            }),
            (Some(other), _) => Err(GgufError::BadKey {
                key: kind_key,
                what: format!(
                    "`{other}` is not supported; supported: none, linear, yarn, longrope"
                ),
            }),
        }
    }
}

/// A rotation, as the metadata say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub base: f64,
    /// How the frequencies are stretched.
    pub scaling: RopeScaling,
    /// Factor on cosine and sine.
    pub attention_factor: f64,
    /// The context that the model was trained with before it was stretched, in tokens.
    pub original_context: usize,
}

/// Angles per position of each rotated pair, and what cosine and sine are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeFrequencies {
    /// Radians per position, one for each of the `head_dim / 2` pairs.
    pub radians: Vec<f64>,
    /// Factor on cosine and sine.
    pub magnitude: f64,
}

/// The frequencies of a head.
///
/// `rotated` elements of it are. `factors` divides each frequency (Llama 3's `rope_freqs.weight`, Phi
/// 3's for short and for long contexts); empty is all ones.
pub fn plan_frequencies(rotated: usize, rope: &RopeConfig, factors: &[f32]) -> RopeFrequencies {
    let RopeConfig { base, scaling, .. } = *rope;
    let mut magnitude = rope.attention_factor;
    if let RopeScaling::Yarn { factor, .. } = scaling {
        magnitude *= 1.0 + 0.1 * factor.max(1.0).ln();
    }
    let half = rotated / 2;
    let radians = (0..half)
        .map(|pair| {
            let divisor = factors.get(pair).copied().map_or(1.0, f64::from);
            let extrapolated = base.powf(-2.0 * pair as f64 / rotated as f64) / divisor;
            match scaling {
                RopeScaling::None => extrapolated,
                RopeScaling::Linear { factor } => extrapolated / factor,
                RopeScaling::Yarn { factor, original_context } => {
                    // The pair that turns `rotations` times over the original context.
                    let pair_of = |rotations: f64| {
                        rotated as f64 * (original_context / (rotations * 2.0 * PI)).ln()
                            / (2.0 * base.ln())
                    };
                    let low = pair_of(YARN_BETA_FAST).floor().max(0.0);
                    let high = pair_of(YARN_BETA_SLOW).ceil().min(rotated as f64 - 1.0);
                    let ramp = (pair as f64 - low) / (high - low).max(0.001);
                    let keep = 1.0 - ramp.clamp(0.0, 1.0);
                    extrapolated / factor * (1.0 - keep) + extrapolated * keep
                }
            }
        })
        .collect();
    RopeFrequencies { radians, magnitude }
}

impl RopeFrequencies {
    /// Cosines and sines of the first `positions` positions, row-major `[positions, pairs]`.
    pub fn tables(&self, positions: usize) -> (Vec<f32>, Vec<f32>) {
        let mut cos = Vec::with_capacity(positions * self.radians.len());
        let mut sin = Vec::with_capacity(positions * self.radians.len());
        for position in 0..positions {
            for &radians in &self.radians {
                let (s, c) = (position as f64 * radians).sin_cos();
                cos.push((c * self.magnitude) as f32);
                sin.push((s * self.magnitude) as f32);
            }
        }
        (cos, sin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(base: f64, scaling: RopeScaling) -> RopeConfig {
        RopeConfig { base, scaling, attention_factor: 1.0, original_context: 4096 }
    }

    #[test]
    fn without_scaling_the_frequencies_are_powers_of_the_base() {
        let plan = plan_frequencies(4, &rope(10_000.0, RopeScaling::None), &[]);
        assert_eq!(plan.radians, [1.0, 0.01]);
        assert_eq!(plan.magnitude, 1.0);
    }

    #[test]
    fn linear_scaling_divides_all_and_factors_divide_each() {
        let linear = RopeScaling::Linear { factor: 4.0 };
        assert_eq!(plan_frequencies(4, &rope(10_000.0, linear), &[]).radians, [0.25, 0.0025]);
        let factors = plan_frequencies(4, &rope(10_000.0, RopeScaling::None), &[1.0, 8.0]);
        assert_eq!(factors.radians, [1.0, 0.00125]);
    }

    /// By hand for 8 pairs (head 16), base 10⁴, factor 4, context 4096: the pair that turns r times
    /// is 16·ln(4096 / 2πr) / (2·ln 10⁴), 2.617 for r = 32 and 5.628 for r = 1, so low is 2 and
    /// high is 6: pairs up to 2 are kept, from 6 on divided by 4, pair 4 is half way between.
    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let yarn = RopeScaling::Yarn { factor: 4.0, original_context: 4096.0 };
        let plan = plan_frequencies(16, &rope(10_000.0, yarn), &[]);
        let plain = plan_frequencies(16, &rope(10_000.0, RopeScaling::None), &[]);
        let ratio = |pair: usize| plan.radians[pair] / plain.radians[pair];
        for (pair, expected) in [(0, 1.0), (2, 1.0), (3, 0.8125), (4, 0.625), (6, 0.25), (7, 0.25)]
        {
            assert!((ratio(pair) - expected).abs() < 1e-12, "pair {pair}: {}", ratio(pair));
        }
        assert!((plan.magnitude - 1.138_629_436).abs() < 1e-9);
        let strong = RopeConfig { attention_factor: 1.5, ..rope(10_000.0, yarn) };
        let strong = plan_frequencies(16, &strong, &[]);
        assert!((strong.magnitude - 1.5 * 1.138_629_436).abs() < 1e-9);
    }

    #[test]
    fn tables_hold_cosine_and_sine_row_by_row() {
        let plan = RopeFrequencies { radians: vec![1.0, 0.5], magnitude: 2.0 };
        let (cos, sin) = plan.tables(2);
        assert_eq!(cos[..2], [2.0, 2.0]);
        assert_eq!(sin[2..], [(2.0 * 1f64.sin()) as f32, (2.0 * 0.5f64.sin()) as f32]);
    }
}
