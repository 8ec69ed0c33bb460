//! Against plain loops in F64, in every type of the cache and on every path.

use super::*;
use crate::model::config::ModelConfig;
use crate::model::kv_cache::{KvCache, KvType, Store, padded_dim};

/// Numbers between -1.5 and 1.5 that repeat only after a while.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| (((i + seed) * 7919 + i / 13) % 3001) as f32 / 1000.0 - 1.5).collect()
}

/// Rows of `heads · head_dim`: keys and values of all positions, queries of the last ones.
struct Sample {
    config: ModelConfig,
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    past: usize,
    tokens: usize,
    window: usize,
    cap: f32,
}

impl Sample {
    fn new(config: ModelConfig, past: usize, tokens: usize) -> Self {
        let kv = config.kv_heads * config.head_dim * (past + tokens);
        let (keys, values) = (numbers(kv, 5), numbers(kv, 1000));
        let queries = numbers(config.heads * config.head_dim * tokens, 77);
        Self { config, keys, values, queries, past, tokens, window: usize::MAX, cap: 0.0 }
    }

    /// What attention must give.
    fn expected(&self) -> Vec<f32> {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.config;
        let mut out = Vec::new();
        for token in 0..self.tokens {
            for head in 0..heads {
                let query = &self.queries[(token * heads + head) * head_dim..][..head_dim];
                let of = |rows: &'_ [f32], position: usize, d: usize| {
                    let kv_head = head / (heads / kv_heads);
                    f64::from(rows[(position * kv_heads + kv_head) * head_dim + d])
                };
                let first = (self.past + token + 1).saturating_sub(self.window);
                let weights: Vec<f64> = (first..=self.past + token)
                    .map(|position| {
                        let dot: f64 = (0..head_dim)
                            .map(|d| f64::from(query[d]) * of(&self.keys, position, d))
                            .sum();
                        let score = dot / (head_dim as f64).sqrt();
                        let cap = f64::from(self.cap);
                        if cap == 0.0 { score.exp() } else { (cap * (score / cap).tanh()).exp() }
                    })
                    .collect();
                let total: f64 = weights.iter().sum();
                out.extend((0..head_dim).map(|d| {
                    let weighted = weights.iter().enumerate();
                    let sum: f64 =
                        weighted.map(|(p, weight)| weight * of(&self.values, first + p, d)).sum();
                    (sum / total) as f32
                }));
            }
        }
        out
    }

    fn attend(&self, kernels: Kernels, kv_type: KvType) -> Vec<f32> {
        let ModelConfig { heads, kv_heads, head_dim, .. } = self.config;
        let context = self.past + self.tokens;
        let mut cache = KvCache::on_host(&self.config, context + 3, kv_type);
        let Store::Host(store) = &mut cache.store else { unreachable!() };
        let kv = store.layers().next().unwrap();
        for position in 0..context {
            for head in 0..kv_heads {
                let at = (position * kv_heads + head) * head_dim;
                let (key, value) = (&self.keys[at..][..head_dim], &self.values[at..][..head_dim]);
                // SAFETY: this is the only thread.
                unsafe { kv.write(kernels, head, position, key, value) };
            }
        }
        let dim = padded_dim(head_dim, kv_type);
        let shape = Heads { heads, kv_heads, head_dim, dim, window: self.window, cap: self.cap };
        let mut queries = vec![0.0; self.tokens * heads * dim];
        let scale = 1.0 / (head_dim as f32).sqrt();
        for (to, from) in queries.chunks_exact_mut(dim).zip(self.queries.chunks_exact(head_dim)) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * scale);
        }
        let plan = Plan::new(shape, [(self.tokens, self.past)].into_iter());
        let mut partials = vec![f32::NAN; plan.partials()];
        let mut out = vec![f32::NAN; self.tokens * heads * head_dim];
        let (partials, out_share) = (Share::new(&mut partials), Share::new(&mut out));
        for job in 0..plan.jobs() {
            // SAFETY: this is the only thread.
            unsafe {
                let out = (&out_share, heads * head_dim);
                plan.run(kernels, job, kv, &queries, &partials, out);
            }
        }
        // SAFETY: this is the only thread.
        plan.finish(kernels, 0, unsafe { partials.all() }, &mut out);
        out
    }
}

/// Over contexts around every block border, group sizes and head widths, in prefill with and without
/// a past and in decode. Elements of the cache are off by half a unit of their type's last place.
#[test]
fn attention_is_that_of_plain_loops() {
    for (heads, kv_heads, head_dim) in [(9, 3, 64), (4, 4, 16), (7, 1, 48), (2, 1, 128), (4, 2, 12)]
    {
        for (past, tokens) in [
            (0, 1),
            (5, 1),
            (16, 1),
            (63, 1),
            (64, 1),
            (200, 1),
            (700, 1),
            (0, 2),
            (0, 17),
            (3, 64),
            (130, 33),
        ] {
            let sample =
                Sample::new(ModelConfig::of_heads(heads, kv_heads, head_dim), past, tokens);
            let expected = sample.expected();
            for (kv_type, tolerance) in
                [(KvType::F32, 1e-5), (KvType::F16, 2e-3), (KvType::Q8_0, 3e-2)]
            {
                let ours = sample.attend(Kernels::SCALAR, kv_type);
                for (a, b) in ours.iter().zip(&expected) {
                    assert!(
                        (a - b).abs() < tolerance,
                        "{heads}/{kv_heads}×{head_dim}, {past}+{tokens}, {kv_type:?}: {a} {b}"
                    );
                }
                for kernels in Kernels::available() {
                    let again = sample.attend(kernels, kv_type);
                    assert_eq!(again, ours, "{kernels:?} {kv_type:?} {past}+{tokens}");
                }
            }
        }
    }
}

/// Windows around every border of tiles and blocks, and capped scores.
#[test]
fn windows_and_caps_are_those_of_plain_loops() {
    for window in [1, 2, 15, 16, 17, 63, 64, 65, 130, 1000] {
        for (past, tokens) in [(0, 1), (15, 1), (16, 1), (200, 1), (700, 1), (0, 70), (130, 33)] {
            for cap in [0.0, 1.5] {
                let config = ModelConfig::of_heads(6, 2, 16);
                let sample = Sample { window, cap, ..Sample::new(config, past, tokens) };
                let expected = sample.expected();
                let ours = sample.attend(Kernels::SCALAR, KvType::F32);
                for (a, b) in ours.iter().zip(&expected) {
                    assert!(
                        (a - b).abs() < 1e-5,
                        "window {window}, cap {cap}, {past}+{tokens}: {a} {b}"
                    );
                }
                for kernels in Kernels::available() {
                    assert_eq!(sample.attend(kernels, KvType::F32), ours, "{kernels:?}");
                }
            }
        }
    }
}

/// One sequence's result does not depend on what runs beside it.
#[test]
fn sequences_that_run_together_are_planned_apart() {
    let heads =
        Heads { heads: 4, kv_heads: 2, head_dim: 16, dim: 16, window: usize::MAX, cap: 0.0 };
    let plan = Plan::new(heads, [(1, 700), (5, 0), (1, 10)].into_iter());
    // Two heads of three blocks, of one block of tokens, of one block.
    assert_eq!(plan.jobs(), 2 * 3 + 2 + 2);
    assert_eq!(plan.partials(), (4 * 3 + 4) * decode::partial(&heads));
    assert_eq!(plan.last_rows().collect::<Vec<_>>(), [0, 5, 6]);
    let rows: Vec<_> = plan.segments_of(3..7).map(|rows| (rows.index, rows.rows)).collect();
    assert_eq!(rows, [(1, 3..6), (2, 6..7)]);
}

#[test]
fn the_cache_takes_the_bytes_of_its_type() {
    let config = ModelConfig::of_heads(4, 2, 64);
    for (kv_type, bytes) in [(KvType::F32, 256), (KvType::F16, 128), (KvType::Q8_0, 68)] {
        let cache = KvCache::on_host(&config, 32, kv_type);
        let Store::Host(store) = &cache.store else { unreachable!() };
        assert_eq!(store.bytes(), 2 * 32 * 2 * bytes, "{kv_type:?}");
    }
}
