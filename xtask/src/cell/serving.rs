//! Measuring a server by request, over loopback.
//!
//! A program that measures itself is believed as to its times; a server does not time itself, so here
//! the client does: from sending a request to the first text is prefill, from each text to the next is
//! decode. `sse` and `event` read the stream, `prompt` makes prompts that never repeat, `figures` turns
//! what was seen into a result; `run` alone talks to the server. Nothing here starts or ends it: that
//! is the child's business.

use std::time::Duration;

use serde::Serialize;

use crate::cell::runner::Server;

pub(crate) mod event;
pub(crate) mod figures;
pub(crate) mod prompt;
pub(crate) mod run;
mod sse;

/// What the client is to ask, and of whom.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ClientPlan {
    pub(crate) server: Server,
    pub(crate) port: u16,
    /// The model's name, as requests give it.
    pub(crate) model: String,
    /// Prompt length to measure, in tokens.
    pub(crate) prompt_tokens: u64,
    pub(crate) max_tokens: u64,
    /// Tokens that the discarded request generates; at least one.
    pub(crate) warmup_tokens: u64,
    /// Streams that ask at the same time.
    pub(crate) concurrency: u64,
    /// When the cell is ended in any case.
    pub(crate) timeout: Option<Duration>,
}

/// One answer, as the client saw it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct RequestSample {
    /// From sending the request to the first text.
    pub(crate) first_ms: f64,
    /// Between one piece of text and the next. Pieces that came in one packet are 0 apart.
    pub(crate) gap_ms: Vec<f64>,
    /// Tokens that the prompt had, as the server counts.
    pub(crate) prompt_tokens: Option<u64>,
    /// Those of them that the server took from a cache, where it says so.
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) generated_tokens: Option<u64>,
    pub(crate) finish_reason: Option<String>,
}

/// What was seen of a server that answered everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Served {
    pub(crate) concurrency: u64,
    /// What the prompts were drawn with.
    pub(crate) seed: u64,
    /// From the start of the client to the first answer that the server is ready.
    pub(crate) ready_ms: f64,
    /// Requests that were needed to find a prompt of the right length; the last one is the warm-up.
    pub(crate) warmups: u64,
    /// From sending the first measured request to the end of the last.
    pub(crate) wall_ms: f64,
    /// The measured requests: those of the first stream, of the second, …
    pub(crate) requests: Vec<RequestSample>,
}

/// Why there are no figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServeFailure {
    pub(crate) kind: FailureKind,
    /// In words.
    pub(crate) reason: String,
    /// What the server said that may tell why, as lines of evidence.
    pub(crate) said: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The server was not ready in time.
    NotReady,
    /// A request failed.
    Request,
    /// Everything was answered, but there is nothing in it to measure.
    Empty,
}

impl ServeFailure {
    pub(crate) fn new(kind: FailureKind, reason: impl Into<String>) -> ServeFailure {
        ServeFailure { kind, reason: reason.into(), said: Vec::new() }
    }
}
