//! The runner behind `decode-bench`: one cell, measured in this process.
//!
//! Arguments in, profile lines on stdout and a cell report out. The times come from
//! [`crate::decode`]; nothing here is between two of its clock readings.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use candle_core::Device;
use formats::cell_report::{
    CellReport, EngineInfo, Memory, ModelInfo, OutputInfo, PromptInfo, SCHEMA, Settings, Timing,
};

use crate::decode::{Generated, Pass, Request, StepObserver, generate_batch};
use crate::host;
use crate::model::gguf::Gguf;
use crate::model::source::find_model;
use crate::model::tokenizer::TextCodec;
use crate::model::{KvType, ModelConfig, Transformer};

pub use allocator::{AllocatorObserver, AllocatorRun};
pub use args::{Args, DeviceKind};
pub use threads::{Threads, init_threads};
use top::TopObserver;
use windows::WindowObserver;

mod allocator;
mod args;
mod device;
mod kernels;
mod profile;
mod prompt;
mod report_file;
pub mod term;
mod threads;
mod top;
mod windows;

/// Measures one cell: loads, warms up, measures, prints the profile lines, writes the report.
///
/// `observer` is told of every forward, of the warm-up too; `complete` may fill in what only the
/// caller knows before the report is written.
///
/// # Errors
/// Whatever keeps the cell from being measured, with its cause.
pub fn run(
    args: &Args,
    threads: &Threads,
    device: &Device,
    observer: &mut dyn StepObserver,
    complete: &mut dyn FnMut(&mut CellReport),
) -> anyhow::Result<()> {
    let mut environment = threads.environment.clone();
    let kernels = kernels::choose(&mut environment)?;
    host::give_large_blocks_back();
    let start = Instant::now();
    let source = find_model(&args.model)?;
    let shown = source.gguf.display().to_string();
    let (mut gguf, _) =
        Gguf::read(&source.gguf).with_context(|| format!("cannot load the model `{shown}`"))?;
    let config =
        ModelConfig::parse(&gguf).with_context(|| format!("cannot load the model `{shown}`"))?;
    for warning in &config.warnings {
        term::log(&format!("warning: {warning}"));
    }
    // A large vocabulary takes time and memory that token ids do not need.
    let needs_text = args.prompt_ids.is_none() || args.show_text;
    let codec = match needs_text.then(|| TextCodec::read(&gguf, &source.gguf)).transpose() {
        Ok(codec) => codec.flatten(),
        Err(error) if args.prompt.is_some() => {
            return Err(error).with_context(|| {
                format!("cannot load the model `{shown}`: --prompt needs its tokenizer")
            });
        }
        Err(error) => {
            prompt::warn_of_tokenizer(&error);
            None
        }
    };
    let wanted = prompt::plan(args, codec.as_ref(), &config)?;
    // A vocabulary of 262,144 tokens takes 100 MiB to build, which must not come on top of the
    // weights: nothing but the text at the end needs it any more.
    let codec = codec.filter(|_| args.show_text);
    gguf.metadata.retain(|key, _| !key.starts_with("tokenizer."));
    host::release_free_memory();
    let mut model = Transformer::load_for(&gguf, &source.gguf, device, kernels)
        .with_context(|| format!("cannot load the model `{shown}`"))?;
    let load = start.elapsed();
    host::release_free_memory();

    let lengths = prompt::fit(args, &wanted, model.config().context)?;
    if let Some(warning) = &lengths.warning {
        term::log(&format!("warning: {warning}"));
    }
    let ids = &wanted.ids[..lengths.prompt];
    let kv_type = args.kv_type.unwrap_or_else(|| KvType::default_for(device));
    let mut caches = Vec::new();
    for _ in 0..args.batch.get() {
        caches.push(model.new_cache_of(lengths.prompt + lengths.max_tokens, kv_type)?);
    }
    let prefill_chunk = args.prefill_chunk.map_or_else(|| model.prefill_chunk(), NonZeroUsize::get);
    if args.warmup_tokens > 0 {
        // One chunk of the prompt touches every weight and kernel; more would only take time.
        let chunk = ids.len().min(prefill_chunk);
        let request = Request {
            prompt: &ids[..chunk],
            max_tokens: args.warmup_tokens.min(lengths.max_tokens),
            prefill_chunk,
            stop: &[],
        };
        generate_batch(&model, &mut caches, &request, Pass::WarmUp, observer)
            .context("the warm-up pass failed")?;
    }
    let request =
        Request { prompt: ids, max_tokens: lengths.max_tokens, prefill_chunk, stop: &wanted.stop };
    let monitor = device::Monitor::new(device);
    let mut squeeze = device::Squeeze::new(observer, device, args.leave_free_mb);
    let mut windows = WindowObserver::new(&mut squeeze, &monitor);
    let mut top = TopObserver::new(&mut windows, args.logits_top);
    let generated = generate_batch(&model, &mut caches, &request, Pass::Measured, &mut top)
        .context("the measured pass failed")?;
    let top = top.finish();
    let windows = windows.finish();

    if args.show_text {
        let text = match &codec {
            Some(codec) => serde_json::to_string(&codec.decode(&generated.tokens)?)?,
            None => format!("{:?}", generated.tokens),
        };
        term::data(&format!("Text: {text}"));
    }
    term::data(&profile::render(ids.len(), &generated));
    let Some(path) = &args.report else { return Ok(()) };
    let mut report = CellReport {
        schema: SCHEMA,
        engine: engine_info(),
        model: model_info(&args.model, &source.name, &gguf, model.config()),
        device: monitor.info(),
        settings: Settings {
            allocator: None,
            threads: Some(threads.count as u64),
            prefill_chunk: Some(prefill_chunk as u64),
            warmup_tokens: Some(args.warmup_tokens as u64),
            max_tokens: Some(lengths.max_tokens as u64),
            kernels: Some(model.kernels().to_owned()),
            kv_type: Some(kv_type.name().to_owned()),
            batch: Some(args.batch.get() as u64),
        },
        environment,
        prompt: PromptInfo {
            target_tokens: Some(wanted.target as u64),
            tokens: Some(ids.len() as u64),
            token_hash: Some(prompt::token_hash(ids)),
        },
        timing: timing(load, &generated),
        output: OutputInfo {
            tokens: Some(generated.tokens.len() as u64),
            token_hash: Some(prompt::token_hash(&generated.tokens)),
            token_ids: generated.tokens.clone(),
            top,
        },
        memory: Memory {
            windows,
            rss_peak_bytes: host::rss_peak_bytes(),
            libc_retained_bytes: host::libc_retained_bytes(),
            ..Memory::default()
        },
        allocator: None,
    };
    monitor.complete(&mut report.memory);
    complete(&mut report);
    report_file::write(path, &report)
        .with_context(|| format!("cannot write the report `{}`", path.display()))
}

fn engine_info() -> EngineInfo {
    let features = [("decode", cfg!(feature = "decode")), ("cuda", cfg!(feature = "cuda"))];
    EngineInfo {
        name: Some("decode-bench".to_owned()),
        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        commit: option_env!("ARC_BUILD_COMMIT").map(str::to_owned),
        features: features.iter().filter(|f| f.1).map(|f| f.0.to_owned()).collect(),
        build_type: Some(if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned()),
    }
}

fn model_info(path: &Path, name: &str, gguf: &Gguf, config: &ModelConfig) -> ModelInfo {
    let weight_bytes = gguf.weight_bytes();
    // A decode step reads one row of the embeddings, and all of them only where they are the
    // output matrix too.
    let embeddings = gguf.tensors.get("token_embd.weight").map_or(0, |info| info.bytes);
    let tied = !gguf.tensors.contains_key("output.weight");
    let read = if tied {
        weight_bytes
    } else {
        weight_bytes - embeddings + embeddings / config.vocab as u64
    };
    ModelInfo {
        name: Some(config.name.clone().unwrap_or_else(|| name.to_owned())),
        path: Some(path.display().to_string()),
        architecture: Some(config.architecture.name().to_owned()),
        quantization: gguf.main_type().map(|dtype| dtype.name().to_owned()),
        parameters: Some(gguf.parameters()),
        weight_bytes: Some(weight_bytes),
        weight_bytes_per_token: Some(read),
        context_length: Some(config.context as u64),
    }
}

fn timing(load: std::time::Duration, generated: &Generated) -> Timing {
    let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
    let steps: Vec<f64> = generated.steps.iter().map(|&step| ms(step)).collect();
    Timing {
        load_ms: Some(ms(load)),
        prefill_ms: Some(ms(generated.prefill)),
        // Without a decode step there is nothing that took no time.
        decode_ms: (!steps.is_empty()).then(|| steps.iter().sum()),
        decode_step_ms: steps,
    }
}
