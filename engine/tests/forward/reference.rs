//! A decoder in plain loops over `f32`, one token after the other: nothing shared with the engine
//! but the file reader and candle's dequantisation of whole tensors.

use std::collections::HashMap;
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::gguf_file::Content;
use formats::geometry::{Architecture, Geometry};

pub(crate) struct Reference {
    geometry: Geometry,
    weights: HashMap<String, Vec<f32>>,
}

impl Reference {
    pub(crate) fn read(geometry: &Geometry, path: &Path) -> Self {
        let mut file = std::fs::File::open(path).unwrap();
        let content = Content::read(&mut file).unwrap();
        let mut weights = HashMap::new();
        for name in content.tensor_infos.keys() {
            let tensor = content.tensor(&mut file, name, &Device::Cpu).unwrap();
            let tensor = tensor.dequantize(&Device::Cpu).unwrap();
            weights.insert(name.clone(), tensor.flatten_all().unwrap().to_vec1().unwrap());
        }
        Self { geometry: geometry.clone(), weights }
    }

    /// The logits at every position.
    pub(crate) fn logits(&self, tokens: &[u32]) -> Vec<Vec<f32>> {
        let g = &self.geometry;
        let mut caches = vec![(Vec::new(), Vec::new()); g.layers];
        let mut all = Vec::new();
        for (position, &token) in tokens.iter().enumerate() {
            let embeddings = &self.weights["token_embd.weight"];
            let mut x = embeddings[token as usize * g.hidden..][..g.hidden].to_vec();
            for (layer, cache) in caches.iter_mut().enumerate() {
                self.layer(layer, position, &mut x, cache);
            }
            let normed = norm(&x, &self.weights["output_norm.weight"], g.rms_eps);
            all.push(self.product("output", &normed));
        }
        all
    }

    fn layer(
        &self,
        layer: usize,
        position: usize,
        x: &mut [f32],
        (keys, values): &mut (Vec<Vec<f32>>, Vec<Vec<f32>>),
    ) {
        let g = &self.geometry;
        let name = |suffix: &str| format!("blk.{layer}.{suffix}");
        let normed = norm(x, &self.weights[&name("attn_norm.weight")], g.rms_eps);
        let mut q = self.product(&name("attn_q"), &normed);
        let mut k = self.product(&name("attn_k"), &normed);
        values.push(self.product(&name("attn_v"), &normed));
        for (heads, norm_name) in [(&mut q, "attn_q_norm.weight"), (&mut k, "attn_k_norm.weight")] {
            for head in heads.chunks_mut(g.head_dim) {
                if let Some(weight) = self.weights.get(&name(norm_name)) {
                    head.copy_from_slice(&norm(head, weight, g.rms_eps));
                }
                self.rotate(head, position);
            }
        }
        keys.push(k);
        let mut attended = Vec::new();
        for (index, query) in q.chunks(g.head_dim).enumerate() {
            let at = index / (g.heads / g.kv_heads) * g.head_dim;
            let scores: Vec<f64> = keys
                .iter()
                .map(|key| dot(query, &key[at..][..g.head_dim]) / (g.head_dim as f64).sqrt())
                .collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let total: f64 = weights.iter().sum();
            for d in 0..g.head_dim {
                let sum: f64 =
                    weights.iter().zip(&*values).map(|(w, v)| w * f64::from(v[at + d])).sum();
                attended.push((sum / total) as f32);
            }
        }
        add(x, &self.product(&name("attn_output"), &attended));
        let normed = norm(x, &self.weights[&name("ffn_norm.weight")], g.rms_eps);
        let gate = self.product(&name("ffn_gate"), &normed);
        let up = self.product(&name("ffn_up"), &normed);
        let gated: Vec<f32> =
            gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        add(x, &self.product(&name("ffn_down"), &gated));
    }

    fn product(&self, name: &str, x: &[f32]) -> Vec<f32> {
        let weight = &self.weights[&format!("{name}.weight")];
        let mut out: Vec<f32> = weight.chunks(x.len()).map(|row| dot(row, x) as f32).collect();
        if let Some(bias) = self.weights.get(&format!("{name}.bias")) {
            add(&mut out, bias);
        }
        out
    }

    fn rotate(&self, head: &mut [f32], position: usize) {
        let half = head.len() / 2;
        for pair in 0..half {
            let exponent = -2.0 * pair as f64 / head.len() as f64;
            let (sin, cos) = (position as f64 * self.geometry.rope_base.powf(exponent)).sin_cos();
            let (a, b) = match self.geometry.architecture {
                Architecture::Llama => (2 * pair, 2 * pair + 1),
                Architecture::Qwen2 | Architecture::Qwen3 => (pair, pair + half),
            };
            let (x, y) = (f64::from(head[a]), f64::from(head[b]));
            head[a] = (x * cos - y * sin) as f32;
            head[b] = (x * sin + y * cos) as f32;
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn norm(x: &[f32], weight: &[f32], eps: f64) -> Vec<f32> {
    let scale = 1.0 / (dot(x, x) / x.len() as f64 + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| (f64::from(*x) * scale * f64::from(*w)) as f32).collect()
}
