//! The result of one cell: one (model, prompt length) measurement in a process of its own.
//!
//! The measured program times itself and writes a [`CellReport`] as one JSON object; the workflow
//! reads it. These types are all that the two halves share, so this crate holds serde types and
//! nothing else: no file access, no clock, no arithmetic beyond reading what is there.
//!
//! Readers ignore unknown fields, and every field may be missing: what is missing is `None` or
//! empty, never 0. Token hashes are lower-case hex SHA-256 over the token ids as little-endian
//! `u32`s.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The `schema` number that this version writes.
///
/// It rises when a field changes its meaning; new fields alone leave it as it is.
pub const SCHEMA: u32 = 1;

/// What one cell measured, and under which effective settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CellReport {
    /// The version of this format, [`SCHEMA`] when written by this version.
    pub schema: u32,
    /// The program that measured.
    pub engine: EngineInfo,
    /// The model that was decoded.
    pub model: ModelInfo,
    /// The device that it ran on.
    pub device: DeviceInfo,
    /// The settings that were in force, not those that were asked for.
    pub settings: Settings,
    /// Every environment variable that the program consulted, in the order of reading.
    pub environment: Vec<EnvVar>,
    /// The prompt.
    pub prompt: PromptInfo,
    /// Times of the measured pass.
    pub timing: Timing,
    /// The tokens that were generated.
    pub output: OutputInfo,
    /// Memory, as gauges at the end and as peaks.
    pub memory: Memory,
    /// The allocator's counters; `None` where the program has no allocator of its own.
    pub allocator: Option<AllocatorReport>,
}

/// The program that measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineInfo {
    /// Name of the program, for example `decode-bench`.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The commit that it was built from, abbreviated.
    pub commit: Option<String>,
    /// The cargo features that it was built with.
    pub features: Vec<String>,
    /// `release` or `debug`.
    pub build_type: Option<String>,
}

/// The model that was decoded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelInfo {
    /// The model's name, as the file's metadata give it.
    pub name: Option<String>,
    /// Where it was read from.
    pub path: Option<String>,
    /// Architecture as GGUF names it: `llama`, `qwen2`, `qwen3`.
    pub architecture: Option<String>,
    /// The type that most weight bytes have, for example `Q4_1`.
    pub quantization: Option<String>,
    /// Number of weights.
    pub parameters: Option<u64>,
    /// Bytes of weights as stored.
    pub weight_bytes: Option<u64>,
    /// Bytes of weights that one decode step reads.
    pub weight_bytes_per_token: Option<u64>,
    /// The longest context that the model supports, in tokens.
    pub context_length: Option<u64>,
}

/// The device that the cell ran on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceInfo {
    /// `cpu`, `cuda`.
    pub backend: Option<String>,
    /// Chip name, as the system gives it.
    pub name: Option<String>,
    /// Memory of the device in bytes.
    pub total_memory_bytes: Option<u64>,
}

/// Effective settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The caching allocator, and why it is in that state.
    pub allocator: Option<AllocatorSettings>,
    /// Compute threads.
    pub threads: Option<u64>,
    /// Tokens a prefill forward takes at most.
    pub prefill_chunk: Option<u64>,
    /// Decode tokens of the discarded pass before the measured one.
    pub warmup_tokens: Option<u64>,
    /// Tokens to generate at most.
    pub max_tokens: Option<u64>,
    /// The kernels that computed: `scalar`, `avx2`, `avxvnni`, `avx512vnni`, or `candle`.
    pub kernels: Option<String>,
    /// The type that keys and values were held in: `f32`, `f16`, `q8_0`.
    pub kv_type: Option<String>,
    /// Sequences that decoded together. Tokens and steps are those of one of them; the rate of all is
    /// as many times that of one.
    pub batch: Option<u64>,
}

/// The effective state of the caching allocator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatorSettings {
    /// `policy` (on for decode, drained for prefill), `killed`, `absent`, or the name of a fallback.
    pub state: String,
    /// Why it is in that state, in words.
    pub reason: Option<String>,
    /// What is below it: `system`, `mmap`, `cuda`.
    pub driver: Option<String>,
    /// The cap on idle bytes; `None` is unbounded.
    pub cap_bytes: Option<u64>,
    /// Where the cap came from: the variable, the default, the share of free memory.
    pub cap_source: Option<String>,
}

/// One environment variable that the program consulted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value as found; `None` where it was not set.
    pub raw: Option<String>,
    /// What the program made of it, in words.
    pub parsed: Option<String>,
}

/// The prompt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptInfo {
    /// Tokens that were asked for.
    pub target_tokens: Option<u64>,
    /// Tokens that the prompt really had.
    pub tokens: Option<u64>,
    /// Hash of the token ids.
    pub token_hash: Option<String>,
}

/// Times of the measured pass, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// From opening the file to a model that is ready to run.
    pub load_ms: Option<f64>,
    /// From the first prompt token to the logits of the last one.
    pub prefill_ms: Option<f64>,
    /// All decode steps together.
    pub decode_ms: Option<f64>,
    /// Each decode step.
    pub decode_step_ms: Vec<f64>,
}

/// The tokens that were generated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutputInfo {
    /// How many, the first one (that prefill yields) included.
    pub tokens: Option<u64>,
    /// Hash of the token ids.
    pub token_hash: Option<String>,
    /// The ids themselves, so that a reader can say where two outputs part.
    pub token_ids: Vec<u32>,
    /// For each of them the likeliest tokens that it was chosen from, where they were asked for, the
    /// likeliest first.
    pub top: Vec<Vec<TopToken>>,
}

/// A token that could have been chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopToken {
    /// Its id.
    pub id: u32,
    /// As the output matrix gave it.
    pub logit: f32,
    /// Natural logarithm of its probability among all tokens.
    pub log_probability: f32,
}

/// Memory in bytes. A peak only ever rises; a window's peak starts at the value of its first moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Handed out by the allocator at the end.
    pub live_bytes: Option<u64>,
    /// Held by the cache and free at the end.
    pub idle_bytes: Option<u64>,
    /// Highest live bytes of the process's life.
    pub live_peak_bytes: Option<u64>,
    /// Highest idle bytes of the process's life.
    pub idle_peak_bytes: Option<u64>,
    /// Highest held bytes (live + idle + parked + pinned) of the process's life.
    pub total_peak_bytes: Option<u64>,
    /// One entry for every window of decode steps, in order.
    pub windows: Vec<MemoryWindow>,
    /// Highest resident set of the process.
    pub rss_peak_bytes: Option<u64>,
    /// Free memory that the C library keeps, where it tells: resident, and in none of the counts above.
    pub libc_retained_bytes: Option<u64>,
    /// Device memory in use by this process, where the driver tells.
    pub device_used_bytes: Option<u64>,
    /// Device memory that no counter here explains.
    pub device_unattributed_bytes: Option<u64>,
}

/// Peaks over one window of decode steps, in bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryWindow {
    /// Index of the first decode step in the window.
    pub first_step: u64,
    /// Number of decode steps in it.
    pub steps: u64,
    /// Highest live bytes within the window.
    pub live_peak_bytes: Option<u64>,
    /// Highest idle bytes within the window.
    pub idle_peak_bytes: Option<u64>,
    /// Highest held bytes within the window.
    pub total_peak_bytes: Option<u64>,
    /// Held bytes at the end of the window.
    pub held_end_bytes: Option<u64>,
    /// Resident set at the end of the window.
    pub rss_end_bytes: Option<u64>,
    /// Device memory of this process at the end of the window, where the driver tells.
    pub device_used_end_bytes: Option<u64>,
    /// Free memory of the device at the end of the window.
    pub device_free_end_bytes: Option<u64>,
    /// On a machine whose device shares the host's memory: the host's free memory at the end.
    pub host_free_end_bytes: Option<u64>,
    /// As above: the memory that the host could give.
    pub host_available_end_bytes: Option<u64>,
}

/// The allocator's counters, in total and for each decode step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocatorReport {
    /// Totals of the process.
    pub totals: AllocCounters,
    /// Differences over each decode step of the measured pass, in order.
    pub decode_steps: Vec<AllocCounters>,
}

/// Names of the counters that must be zero, whatever the workload: every report has all of them, and
/// a reader that misses one reads a program that does not count it.
pub const MUST_BE_ZERO: &[&str] = &[
    "double_frees",
    "capture_frees",
    "pinned_evictions",
    "free_failures",
    "stale_addresses",
    "cap_overshoots",
];

/// Counters of allocation traffic. `hits + misses + bypasses == requests`, always.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AllocCounters {
    /// Allocation requests.
    pub requests: u64,
    /// Served from the cache.
    pub hits: u64,
    /// Fell through to the driver while the cache was on.
    pub misses: u64,
    /// Refused by the cache, by reason.
    pub bypasses: BTreeMap<String, u64>,
    /// Real allocations by the driver.
    pub driver_allocs: u64,
    /// Real frees by the driver.
    pub driver_frees: u64,
    /// Evicted blocks, by reason.
    pub evictions: BTreeMap<String, u64>,
    /// Times that the cache was drained.
    pub drains: u64,
    /// Requests that the driver refused at first for want of memory.
    pub oom_retries: u64,
    /// Those of them that succeeded once everything idle was given back.
    pub oom_rescues: u64,
    /// Host time in driver calls, in nanoseconds; `None` where it was not measured.
    pub host_ns: Option<u64>,
    /// Counters that must be zero, by name, so that a reader can hold them to it.
    pub must_be_zero: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_field_is_none_and_an_unknown_one_is_ignored() {
        let report: CellReport = serde_json::from_str(
            r#"{"schema":7,"timing":{"prefill_ms":1.5,"x":1},"later":{"a":[1]}}"#,
        )
        .unwrap();
        assert_eq!(report.schema, 7);
        assert_eq!(report.timing.prefill_ms, Some(1.5));
        assert_eq!(report.timing.decode_ms, None);
        assert_eq!(report.allocator, None);
    }

    #[test]
    fn what_was_not_measured_is_written_as_null() {
        let json = serde_json::to_value(CellReport::default()).unwrap();
        assert!(json["memory"]["device_used_bytes"].is_null());
        assert!(json["timing"]["decode_ms"].is_null());
    }

    #[test]
    fn a_report_survives_writing_and_reading() {
        let mut report = CellReport { schema: SCHEMA, ..CellReport::default() };
        report.memory.windows.push(MemoryWindow { first_step: 3, ..MemoryWindow::default() });
        let mut step = AllocCounters { requests: 3, hits: 1, misses: 1, ..Default::default() };
        step.bypasses.insert("small".to_owned(), 1);
        report.allocator = Some(AllocatorReport { totals: step.clone(), decode_steps: vec![step] });
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<CellReport>(&text).unwrap(), report);
    }
}
