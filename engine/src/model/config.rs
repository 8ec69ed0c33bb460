//! The shape of a model, out of a GGUF header's metadata, checked so that the rest can rely on it.

use super::architectures::{Architecture, Caps, Experts, RopeLayout, WindowedRope, Windows};
use super::gguf::{Gguf, GgufError};
use super::rope::{RopeConfig, RopeScaling};
use keys::Keys;

mod keys;
#[cfg(test)]
mod tests;

/// The shape of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// What its layers are made of.
    pub architecture: &'static Architecture,
    /// `general.name`, where the file has one.
    pub name: Option<String>,
    /// Number of layers.
    pub layers: usize,
    /// What differs between layers, one for each.
    pub(super) each_layer: Vec<LayerConfig>,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, the most that a layer has.
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// Elements of a head that are rotated; even.
    pub(super) rotated: usize,
    /// Width of the feed-forward layer that every token goes through; 0 where there is none.
    pub ffn: usize,
    /// What else tokens go through, each through its own.
    pub(super) experts: Option<ExpertConfig>,
    /// Number of tokens.
    pub vocab: usize,
    /// Longest context, in tokens.
    pub context: usize,
    /// Added to the mean square under the root of every norm.
    pub rms_eps: f32,
    /// The rotation of most layers, and that of layers with a window where it is another one.
    pub(super) ropes: Vec<RopeConfig>,
    pub(super) scales: Scales,
    /// What the file is missing that costs quality, in words.
    pub warnings: Vec<String>,
}

/// What differs between layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LayerConfig {
    /// Divides the query heads.
    pub(super) kv_heads: usize,
    /// Positions that a token sees, its own included.
    pub(super) window: Option<usize>,
    /// Which of [`ModelConfig::ropes`]; `None` is no rotation.
    pub(super) rope: Option<usize>,
}

/// Experts of a layer, of which each token goes through some.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ExpertConfig {
    pub(super) count: usize,
    /// For one token.
    pub(super) used: usize,
    /// Width of one.
    pub(super) ffn: usize,
    /// Whether there is one more that every token goes through, of [`ModelConfig::ffn`].
    pub(super) shared: bool,
    /// Whether the weights of those chosen add up to 1.
    pub(super) normalised: bool,
    /// Factor on the weights.
    pub(super) scale: f32,
}

/// Factors and caps; a cap of 0 is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scales {
    pub(super) embedding: f32,
    /// On what a sub-layer adds to the residual stream.
    pub(super) residual: f32,
    /// On the scores of attention.
    pub(super) attention: f32,
    pub(super) logits: f32,
    pub(super) score_cap: f32,
    pub(super) logit_cap: f32,
}

impl ModelConfig {
    /// Reads and checks the metadata of a header.
    ///
    /// # Errors
    /// The key that is missing or wrong; an unsupported architecture or rope scaling, with a list
    /// of what is supported; what would give other numbers than it should, because it is not
    /// implemented.
    pub fn parse(gguf: &Gguf) -> Result<Self, GgufError> {
        const ARCHITECTURE: &str = "general.architecture";
        let name = gguf
            .opt_str(ARCHITECTURE)?
            .ok_or_else(|| GgufError::MissingKey { key: ARCHITECTURE.to_owned() })?;
        let architecture = Architecture::parse(name)
            .map_err(|what| GgufError::BadKey { key: ARCHITECTURE.to_owned(), what })?;
        // Every dimension is held to the file below or by the tensors' shapes, so that no number
        // from the metadata alone decides an allocation.
        let keys = Keys { gguf, architecture };
        refuse_what_is_not_computed(&keys)?;

        let layers = keys.size("block_count")?;
        // A layer takes an entry of the tensor table at least.
        if layers > gguf.tensors.len() {
            let name = |layer: usize| format!("blk.{layer}.attn_output.weight");
            let missing = (0..layers).map(name).find(|name| !gguf.tensors.contains_key(name));
            return Err(GgufError::MissingTensor { name: missing.unwrap_or_default() });
        }
        let hidden = keys.size("embedding_length")?;
        let heads = keys.same_for_all("attention.head_count", layers)?;
        let heads = heads.ok_or_else(|| keys.missing("attention.head_count"))?;
        let head_dim = head_dim(&keys, hidden, heads)?;
        let rotated = keys.opt_size("rope.dimension_count")?.unwrap_or(head_dim);
        let fits = rotated == head_dim || architecture.partial_rope && rotated < head_dim;
        if !fits || !rotated.is_multiple_of(2) {
            let what = format!("is {rotated}, but heads have {head_dim}: not supported");
            return Err(keys.bad("rope.dimension_count", what));
        }
        let embeddings = gguf.tensor("token_embd.weight")?;
        let &[vocab, _] = embeddings.dims.as_slice() else {
            let what = format!("tensor `token_embd.weight` has dimensions {:?}", embeddings.dims);
            return Err(GgufError::Corrupt { what, offset: embeddings.offset });
        };
        let context = keys.size("context_length")?;
        let main = RopeConfig {
            base: f64::from(keys.positive("rope.freq_base", 10_000.0)?),
            scaling: RopeScaling::parse(gguf, architecture.name(), context)?,
            attention_factor: f64::from(keys.positive("rope.scaling.attn_factor", 1.0)?),
            original_context: keys
                .opt_size("rope.scaling.original_context_length")?
                .unwrap_or(context),
        };
        let (each_layer, ropes) = plan_layers(&keys, layers, heads, main)?;
        let (ffn, experts) = plan_experts(&keys, layers)?;
        let mut config = Self {
            architecture,
            name: gguf.opt_str("general.name")?.map(str::to_owned),
            layers,
            kv_heads: each_layer.iter().map(|layer| layer.kv_heads).max().unwrap_or(heads),
            each_layer,
            hidden,
            heads,
            head_dim,
            rotated,
            ffn,
            experts,
            vocab,
            context,
            rms_eps: keys.positive("attention.layer_norm_rms_epsilon", 1e-5)?,
            ropes,
            scales: plan_scales(&keys, layers, hidden, heads, head_dim)?,
            warnings: Vec::new(),
        };
        config.warnings.extend(config.missing_factors(gguf));
        Ok(config)
    }

    /// Which elements of a head are rotated together.
    pub fn rope_layout(&self) -> RopeLayout {
        self.architecture.rope_layout
    }

    /// Query heads for each key head, where all layers have as many.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// What candle's products, which devices take, do not cover, in words; `None` where they do all.
    pub(super) fn beyond_candle(&self) -> Option<String> {
        let (first, name) = (self.each_layer[0], self.architecture.name());
        let plain = LayerConfig { kv_heads: self.kv_heads, window: None, rope: Some(0) };
        if let Some(name) = self.architecture.beyond_candle() {
            Some(format!("architecture `{name}`"))
        } else if self.experts.is_some() {
            Some(format!("`{name}` with experts"))
        } else if self.each_layer.iter().any(|layer| *layer != plain) {
            let what = if first.window.is_some() { "a window" } else { "layers that differ" };
            Some(format!("`{name}` with {what}"))
        } else {
            None
        }
    }

    /// Llama 3.1 and 3.2 stretch their rotation by factors, which files made before July 2024 lack.
    fn missing_factors(&self, gguf: &Gguf) -> Option<String> {
        let llama3 = self.architecture.name() == "llama"
            && self.vocab == 128_256
            && self.ropes[0].base == 500_000.0
            && self.ropes[0].scaling == RopeScaling::None;
        let lacking = !gguf.tensors.contains_key("rope_freqs.weight");
        // Random weights have no right rotation.
        let tags = gguf.opt_strings("general.tags").ok().flatten().unwrap_or_default();
        let synthetic = tags.iter().any(|tag| tag == "synthetic");
        (llama3 && lacking && !synthetic && self.context > 8192).then(|| {
            format!(
                "the file has no `rope_freqs.weight`, though its context is {}: it was made before \
                 Llama 3.1's rope factors were written. Tokens differ from the model's at every \
                 length, most beyond 8192 positions; a newer conversion has the factors",
                self.context
            )
        })
    }
}

/// Refuses keys whose computation is not implemented.
fn refuse_what_is_not_computed(keys: &Keys<'_>) -> Result<(), GgufError> {
    if keys.gguf.opt_bool(&keys.name("attention.causal"))? == Some(false) {
        let what = "is false: attention that sees later tokens is not supported";
        return Err(keys.bad("attention.causal", what.to_owned()));
    }
    for suffix in ["attention.clamp_kqv", "attention.max_alibi_bias"] {
        let value = keys.gguf.opt_f64(&keys.name(suffix))?.unwrap_or(0.0);
        if value != 0.0 {
            return Err(keys.bad(suffix, format!("is {value}: not supported")));
        }
    }
    // 0 is not set, 1 softmax.
    let suffix = "expert_gating_func";
    if let Some(gating @ 2..) = keys.gguf.opt_u64(&keys.name(suffix))? {
        return Err(keys.bad(suffix, format!("is {gating}: only softmax (1) is supported")));
    }
    let suffix = "expert_group_count";
    if let Some(groups @ 2..) = keys.gguf.opt_u64(&keys.name(suffix))? {
        return Err(keys.bad(suffix, format!("is {groups}: groups are not supported")));
    }
    Ok(())
}

fn head_dim(keys: &Keys<'_>, hidden: usize, heads: usize) -> Result<usize, GgufError> {
    let head_dim = match keys.opt_size("attention.key_length")? {
        Some(head_dim) => head_dim,
        None if hidden.is_multiple_of(heads) => hidden / heads,
        None => {
            let what = format!("is {heads}, which does not divide the width {hidden}");
            return Err(keys.bad("attention.head_count", what));
        }
    };
    if let Some(value_length) = keys.opt_size("attention.value_length")?
        && value_length != head_dim
    {
        let what = format!("is {value_length}, but keys have {head_dim}: not supported");
        return Err(keys.bad("attention.value_length", what));
    }
    if !head_dim.is_multiple_of(2) {
        return Err(keys.bad("attention.key_length", format!("is {head_dim}, which is odd")));
    }
    Ok(head_dim)
}

/// What each layer sees and how it is rotated, and the rotations.
fn plan_layers(
    keys: &Keys<'_>,
    layers: usize,
    heads: usize,
    main: RopeConfig,
) -> Result<(Vec<LayerConfig>, Vec<RopeConfig>), GgufError> {
    let architecture = keys.architecture;
    let suffix = "attention.head_count_kv";
    let kv_heads = keys.per_layer(suffix, layers)?.unwrap_or_else(|| vec![heads; layers]);
    if let Some(wrong) = kv_heads.iter().find(|&&kv_heads| !heads.is_multiple_of(kv_heads)) {
        let what = format!("is {wrong}, which does not divide the {heads} query heads");
        return Err(keys.bad(suffix, what));
    }
    let windowed = windowed_layers(keys, layers)?;
    // Granite's files say so where the model has no rotation at all.
    let rotates = !architecture.scales_in_file
        || keys.gguf.opt_bool(&keys.name("rope.scaling.finetuned"))?.unwrap_or(true);
    let mut ropes = vec![main];
    let own_base = |default: f64| keys.positive("rope.freq_base_swa", default).map(f64::from);
    let windowed_rope = match architecture.windowed_rope {
        WindowedRope::Same => main,
        WindowedRope::Unscaled => RopeConfig {
            base: own_base(main.base)?,
            scaling: RopeScaling::None,
            attention_factor: 1.0,
            ..main
        },
        WindowedRope::OwnBase => {
            RopeConfig { base: own_base(10_000.0)?, scaling: RopeScaling::None, ..main }
        }
    };
    let mut windowed_index = 0;
    if windowed_rope != main && windowed.iter().any(Option::is_some) {
        windowed_index = 1;
        ropes.push(windowed_rope);
    }
    let each_layer = kv_heads.into_iter().zip(windowed).enumerate().map(|(index, layer)| {
        let (kv_heads, window) = layer;
        let rotated =
            rotates && architecture.unrotated.is_none_or(|step| !(index + 1).is_multiple_of(step));
        let rope = if window.is_some() { windowed_index } else { 0 };
        LayerConfig { kv_heads, window, rope: rotated.then_some(rope) }
    });
    Ok((each_layer.collect(), ropes))
}

/// The window of each layer that has one.
fn windowed_layers(keys: &Keys<'_>, layers: usize) -> Result<Vec<Option<usize>>, GgufError> {
    const WIDTH: &str = "attention.sliding_window";
    const PATTERN: &str = "attention.sliding_window_pattern";
    let width = match keys.gguf.opt_u64(&keys.name(WIDTH))? {
        // Some converters write 0 for none.
        Some(0) => None,
        Some(_) => keys.opt_size(WIDTH)?,
        None => match keys.architecture.windows {
            Windows::Pattern { width, .. } => width,
            Windows::None | Windows::EveryLayer => None,
        },
    };
    Ok(match keys.architecture.windows {
        Windows::None => vec![None; layers],
        Windows::EveryLayer => vec![width; layers],
        Windows::Pattern { period, .. } => {
            if let Some(flags) = keys.flags(PATTERN, layers)? {
                flags.into_iter().map(|windowed| width.filter(|_| windowed)).collect()
            } else {
                let period = keys.opt_size(PATTERN)?.unwrap_or(period);
                (0..layers).map(|layer| width.filter(|_| layer % period < period - 1)).collect()
            }
        }
    })
}

/// The width that every token goes through, and the experts.
fn plan_experts(
    keys: &Keys<'_>,
    layers: usize,
) -> Result<(usize, Option<ExpertConfig>), GgufError> {
    const FFN: &str = "feed_forward_length";
    let ffn = keys.same_for_all(FFN, layers)?;
    let need_ffn = || ffn.ok_or_else(|| keys.missing(FFN));
    let given = keys.gguf.opt_u64(&keys.name("expert_count"))?.unwrap_or(0);
    let kind = keys.architecture.experts;
    let (normalised, shared) = match kind {
        Experts::Never if given > 0 => {
            return Err(keys.bad("expert_count", format!("is {given}: not supported here")));
        }
        Experts::Never => return Ok((need_ffn()?, None)),
        Experts::Optional if given == 0 => return Ok((need_ffn()?, None)),
        Experts::Optional => (true, false),
        Experts::Always { normalised, shared } => (normalised, shared),
    };
    let count = keys.size("expert_count")?;
    let used = keys.size("expert_used_count")?;
    if used > count {
        let what = format!("is {used}, of {count} experts");
        return Err(keys.bad("expert_used_count", what));
    }
    let own = keys.opt_size_or_none("expert_feed_forward_length")?;
    let expert_ffn = match (own, kind) {
        (Some(own), _) => own,
        (None, Experts::Always { .. }) => (need_ffn()? / used).max(1),
        (None, _) => need_ffn()?,
    };
    let shared_ffn = match keys.opt_size_or_none("expert_shared_feed_forward_length")? {
        Some(width) if shared || kind == Experts::Optional => width,
        _ if shared => need_ffn()?,
        _ => 0,
    };
    let scale = match keys.gguf.opt_f64(&keys.name("expert_weights_scale"))? {
        None | Some(0.0) => 1.0,
        Some(_) => keys.positive("expert_weights_scale", 1.0)?,
    };
    let shared = shared_ffn > 0;
    let experts = ExpertConfig { count, used, ffn: expert_ffn, shared, normalised, scale };
    Ok((shared_ffn, Some(experts)))
}

fn plan_scales(
    keys: &Keys<'_>,
    layers: usize,
    hidden: usize,
    heads: usize,
    head_dim: usize,
) -> Result<Scales, GgufError> {
    let architecture = keys.architecture;
    let from_file = |suffix: &str| -> Result<Option<f32>, GgufError> {
        if !architecture.scales_in_file || keys.gguf.opt_f64(&keys.name(suffix))? == Some(0.0) {
            return Ok(None);
        }
        keys.opt_positive(suffix)
    };
    let width = match architecture.scaled_by_width {
        Some(size) if size == layers => (hidden / heads).max(1),
        _ => head_dim,
    };
    let cap = |suffix: &str, default: f32| -> Result<f32, GgufError> {
        match keys.gguf.opt_f64(&keys.name(suffix))? {
            None => Ok(default),
            Some(0.0) => Ok(0.0),
            Some(_) => keys.positive(suffix, 0.0),
        }
    };
    let (score_cap, logit_cap) = match architecture.caps {
        Caps::None => (0.0, 0.0),
        Caps::Logits => (0.0, cap("final_logit_softcapping", 0.0)?),
        Caps::ScoresAndLogits => {
            (cap("attn_logit_softcapping", 50.0)?, cap("final_logit_softcapping", 30.0)?)
        }
    };
    Ok(Scales {
        embedding: if architecture.scales_embeddings {
            (hidden as f32).sqrt()
        } else {
            from_file("embedding_scale")?.unwrap_or(1.0)
        },
        residual: from_file("residual_scale")?.unwrap_or(1.0),
        attention: from_file("attention.scale")?.unwrap_or(1.0 / (width as f32).sqrt()),
        logits: from_file("logit_scale")?.map_or(1.0, f32::recip),
        score_cap,
        logit_cap,
    })
}
