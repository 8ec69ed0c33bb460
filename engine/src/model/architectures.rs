//! What differs between architectures. An architecture is one module with one entry of this table;
//! the layers are shared, and read the entry through [`super::config`].
//!
//! | | norms | rotation | attention | feed-forward | scales |
//! | --- | --- | --- | --- | --- | --- |
//! | llama | before each sub-layer | pairs; Llama 3's or long and short factors | window of Mistral on every layer | SiLU, or experts (Mixtral), weights normalised | |
//! | qwen2 | before | halves | biases | SiLU | |
//! | qwen3 | before, each head | halves | | SiLU | |
//! | qwen2moe | before | halves | biases | experts, weights as they are, and a shared one behind a sigmoid | |
//! | qwen3moe | before, each head | halves | | experts, weights normalised | |
//! | gemma2 | before and after | halves | window on every other layer, scores capped | GELU | embeddings by √width, logits capped |
//! | gemma3 | before and after, each head | halves; windowed layers have a base of their own | window on five of six layers | GELU | embeddings by √width |
//! | phi3 | before | halves, of a part of the head; long and short factors | query, key and value in one matrix | SiLU, gate and up in one matrix | |
//! | smollm3 | before | pairs; every fourth layer has none | | SiLU | |
//! | granite | before | pairs | scale from the file | SiLU, or experts | embeddings, residual and logits from the file |
//! | olmo2 | after, whole rows of queries and keys | halves | window on three of four layers, where there is one | SiLU | |
//!
//! Biases are added wherever a file has them. The formulas are those of the models' publications as
//! llama.cpp reads their files.

mod gemma2;
mod gemma3;
mod granite;
mod llama;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;
mod smollm3;

/// An entry of the table.
#[derive(Debug, PartialEq)]
pub struct Architecture {
    name: &'static str,
    pub(super) rope_layout: RopeLayout,
    pub(super) norms: Norms,
    pub(super) head_norms: HeadNorms,
    pub(super) activation: Activation,
    /// Embeddings are multiplied by the root of their width.
    pub(super) scales_embeddings: bool,
    /// Scales of embeddings, residual stream, attention and logits come from the file.
    pub(super) scales_in_file: bool,
    pub(super) caps: Caps,
    /// Query, key and value may be one matrix; gate and up are.
    pub(super) fused_gate: bool,
    pub(super) windows: Windows,
    pub(super) windowed_rope: WindowedRope,
    /// Every so many layers, one has no rotation.
    pub(super) unrotated: Option<usize>,
    /// A part of a head may be rotated.
    pub(super) partial_rope: bool,
    /// The file may hold factors of the rotation's frequencies.
    pub(super) rope_factors: bool,
    /// Layers of the size whose scores are scaled by width over heads instead of by a head's width.
    pub(super) scaled_by_width: Option<usize>,
    pub(super) experts: Experts,
}

/// Which two elements of a head a rotation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeLayout {
    /// Elements 2i and 2i+1: the rows of query and key are permuted for it in the file.
    Pairs,
    /// Elements i and i + half.
    Halves,
}

/// Where a sub-layer has norms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Norms {
    Before,
    BeforeAndAfter,
    After,
}

/// Norms of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadNorms {
    None,
    EachHead,
    /// One over all heads together.
    WholeRow,
}

/// What is bent to stay below a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caps {
    None,
    /// Logits, where the file has a cap for them.
    Logits,
    /// Both, with Gemma 2's caps where the file has none.
    ScoresAndLogits,
}

/// What the gate goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Silu,
    /// As its tangent approximation.
    Gelu,
}

/// Which layers see a window of positions, where the file gives its width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Windows {
    None,
    EveryLayer,
    /// All but the last of so many layers, unless the file says otherwise. `width` is taken where the
    /// file gives none.
    Pattern {
        period: usize,
        width: Option<usize>,
    },
}

/// The rotation of layers with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowedRope {
    /// That of the other layers.
    Same,
    /// The base of the other layers, not scaled.
    Unscaled,
    /// A base of its own, not scaled.
    OwnBase,
}

/// Whether the feed-forward of a layer is made of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Experts {
    Never,
    /// Where the file has some. The weights of those chosen are normalised.
    Optional,
    Always {
        normalised: bool,
        shared: bool,
    },
}

/// All of them, in the order in which messages list them.
pub static ARCHITECTURES: [&Architecture; 11] = [
    &llama::LLAMA,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &phi3::PHI3,
    &smollm3::SMOLLM3,
    &granite::GRANITE,
    &olmo2::OLMO2,
    &qwen2moe::QWEN2MOE,
    &qwen3moe::QWEN3MOE,
];

impl Architecture {
    /// The name in a file's `general.architecture`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The architecture of that name.
    ///
    /// # Errors
    /// A text that names `name` and lists what is supported.
    pub fn parse(name: &str) -> Result<&'static Self, String> {
        ARCHITECTURES.into_iter().find(|known| known.name == name).ok_or_else(|| {
            let names = ARCHITECTURES.map(Self::name).join(", ");
            format!("architecture `{name}` is not supported; supported: {names}")
        })
    }

    /// What a device cannot run, which has candle's products alone; `None` where it runs all.
    pub(super) fn beyond_candle(&self) -> Option<&'static str> {
        match self.name {
            "llama" | "qwen2" | "qwen3" => None,
            name => Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_architecture_is_named_with_the_list() {
        for known in ARCHITECTURES {
            assert_eq!(Architecture::parse(known.name()).unwrap(), known);
        }
        assert_eq!(
            Architecture::parse("mamba").unwrap_err(),
            "architecture `mamba` is not supported; supported: llama, qwen2, qwen3, gemma2, gemma3, \
             phi3, smollm3, granite, olmo2, qwen2moe, qwen3moe"
        );
    }
}
