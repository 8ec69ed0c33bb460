//! The command line of `decode-bench`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use crate::alloc::driver::host::HostDriverKind;
use crate::model::KvType;

/// Measure one cell: prefill a prompt and decode greedily, in this process, and time both.
///
/// The model is a synthetic description (`bench-configs/models/NAME.toml`, whose GGUF is generated
/// on first use), a `.gguf` file, or a folder that holds one. A warm-up pass runs first and is
/// discarded. The same model, prompt and thread count always give the same tokens.
///
/// stdout gets four profile lines, `Decode:` counting the steps after the token that prefill
/// yields; `--report` gets everything, per step, as one JSON object. If memory runs out, the
/// process ends with the allocator's text on stderr and a non-zero status.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "decode-bench", version)]
#[command(after_help = "\
Examples:
  decode-bench -m bench-configs/models/tiny.toml --prompt-tokens 512 -n 32 --report cell.json
  decode-bench -m bench-configs/models/llama-3.2-1b.toml --device cuda:0 --report cell.json
  decode-bench -m models/smollm2-135m --chat -p \"What is the capital of France?\" -n 64 --show-text

Environment: CANDLE_NUM_THREADS and RAYON_NUM_THREADS give the thread count where --threads does \
not. ARC_CPU_KERNELS=scalar|avx2|avxvnni|avx512vnni takes these kernels instead of the fastest that \
the processor can run. ARC_CANDLE_ALLOC_CACHE=0 keeps the allocator cache off; ARC_ALLOC_CACHE_MAX_MB=N caps its idle \
memory, where 0 is unbounded; ARC_ALLOC_CACHE_PREFILL=drain|hold|on says what a prefill \
does with it; ARC_ALLOC_CACHE_STATS=N prints a line every N decode steps.")]
pub struct Args {
    /// Synthetic description (.toml), GGUF file, or folder with one GGUF file.
    #[arg(short, long, value_name = "PATH")]
    pub model: PathBuf,
    /// Prompt text; needs a tokenizer. Decoding ends at the model's stop tokens.
    #[arg(short, long, value_name = "TEXT", conflicts_with_all = ["prompt_tokens", "prompt_ids"])]
    pub prompt: Option<String>,
    /// Put the prompt text into the model's chat template.
    #[arg(long, requires = "prompt")]
    pub chat: bool,
    /// Prompt of exactly N tokens of a fixed text, repeated and truncated; decoding ends only after
    /// --max-tokens. This is the default, with 512 tokens.
    #[arg(long, value_name = "N")]
    pub prompt_tokens: Option<NonZeroUsize>,
    /// Prompt of these token ids, separated by commas; needs no tokenizer. Decoding ends only after
    /// --max-tokens.
    #[arg(
        long,
        value_name = "ID,…",
        value_delimiter = ',',
        num_args = 1,
        conflicts_with = "prompt_tokens"
    )]
    pub prompt_ids: Option<Vec<u32>>,
    /// The most tokens to generate, counting the one that prefill yields.
    #[arg(short = 'n', long, value_name = "N", default_value = "32")]
    pub max_tokens: NonZeroUsize,
    /// Tokens to generate in the warm-up pass, which is discarded; 0 skips it.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub warmup_tokens: usize,
    /// The most tokens in one prefill forward. The default is 512, on the processor fewer where the
    /// activations of so many take more than 48 MiB.
    #[arg(long, value_name = "N")]
    pub prefill_chunk: Option<NonZeroUsize>,
    /// Sequences that decode together, each with a KV cache of its own. Their prompts differ by where
    /// in the text they begin.
    #[arg(long, value_name = "N", default_value = "1", conflicts_with = "prompt")]
    pub batch: NonZeroUsize,
    /// Type of the KV cache: `f32`, `f16` or `q8_0`. The default is `f16` on the processor, `f32` on
    /// a device.
    #[arg(long, value_name = "TYPE")]
    pub kv_type: Option<KvType>,
    /// Compute threads; by default as many as the environment says, else one per core.
    #[arg(long, value_name = "N", value_parser = super::threads::parse_threads)]
    pub threads: Option<NonZeroUsize>,
    /// Where to compute: `cpu`, `cuda`, or `cuda:N` for the N-th device.
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: DeviceKind,
    /// With --device cuda: when the measured decode begins, fill the allocator cache and take memory of
    /// the device until only N MiB are free, to see what happens when it runs out.
    #[arg(long, value_name = "N")]
    pub leave_free_mb: Option<u64>,
    /// What is below the allocator cache: `system`, or `mmap` with one call to the kernel for each
    /// block, which shows what a driver call costs.
    /// The default is `system`.
    #[arg(long, value_name = "system|mmap")]
    pub host_driver: Option<HostDriverKind>,
    /// Write the cell report, one JSON object, to this file.
    #[arg(long, value_name = "PATH")]
    pub report: Option<PathBuf>,
    /// Report the N likeliest tokens of each choice, with logits and log-probabilities.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "report")]
    pub logits_top: usize,
    /// Print the generated text, as one JSON string, before the profile lines.
    #[arg(long)]
    pub show_text: bool,
}

impl Args {
    /// Refuses options that contradict each other, before anything is loaded.
    ///
    /// # Errors
    /// Which options do not fit the device.
    pub fn check(&self) -> anyhow::Result<()> {
        match self.device {
            DeviceKind::Cpu => {
                if let Some(mb) = self.leave_free_mb {
                    anyhow::bail!("--leave-free-mb {mb} needs a CUDA device: add `--device cuda`");
                }
            }
            DeviceKind::Cuda(_) => {
                if let Some(driver) = self.host_driver {
                    let driver = driver.as_str();
                    anyhow::bail!(
                        "--host-driver {driver} is for host memory, which the cache does not serve with a \
                         CUDA device: leave it out, or use `--device cpu`"
                    );
                }
            }
        }
        Ok(())
    }
}

/// Where to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor.
    Cpu,
    /// A CUDA device, by its ordinal.
    Cuda(usize),
}

impl FromStr for DeviceKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "cpu" => Ok(DeviceKind::Cpu),
            None if text == "cuda" => Ok(DeviceKind::Cuda(0)),
            Some(("cuda", ordinal)) => ordinal
                .parse()
                .map(DeviceKind::Cuda)
                .map_err(|_| format!("`{ordinal}` is not a device number")),
            _ => Err("expected `cpu`, `cuda` or `cuda:N`".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_device_is_the_processor_or_a_numbered_card() {
        let parse = |text: &str| text.parse::<DeviceKind>();
        assert_eq!(parse("cpu"), Ok(DeviceKind::Cpu));
        assert_eq!(parse("cuda"), Ok(DeviceKind::Cuda(0)));
        assert_eq!(parse("cuda:3"), Ok(DeviceKind::Cuda(3)));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0", "CUDA"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_that_do_not_fit_the_device_are_refused() {
        let check = |args: &[&str]| {
            let all = ["decode-bench", "-m", "x"].iter().chain(args);
            Args::try_parse_from(all).unwrap().check().map_err(|error| error.to_string())
        };
        assert_eq!(check(&["--host-driver", "mmap"]), Ok(()));
        assert_eq!(check(&["--device", "cuda", "--leave-free-mb", "0"]), Ok(()));
        assert!(check(&["--leave-free-mb", "0"]).unwrap_err().contains("needs a CUDA device"));
        let mixed = check(&["--device", "cuda:1", "--host-driver", "mmap"]).unwrap_err();
        assert!(mixed.contains("use `--device cpu`"), "{mixed}");
    }

    #[test]
    fn a_prompt_is_text_or_a_number_of_tokens() {
        let parse = |args: &[&str]| {
            Args::try_parse_from(["decode-bench", "-m", "x"].iter().chain(args).copied())
        };
        assert_eq!(parse(&["--prompt-tokens", "7"]).unwrap().prompt_tokens.unwrap().get(), 7);
        assert!(parse(&["-p", "hi", "--prompt-tokens", "7"]).is_err());
        assert!(parse(&["--chat"]).is_err());
        assert!(parse(&["-n", "0"]).is_err());
    }
}
