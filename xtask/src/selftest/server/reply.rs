//! The text of an answer: pieces of a stream, with what is wrong about it. Pure.

use serde_json::{Value, json};

use super::Reply;

/// What is done next on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait until the next tick of the clock.
    Tick,
    /// Write this to the connection.
    Write(Vec<u8>),
    /// Write this to stderr.
    Log(String),
    Hang,
    /// Close the connection without the end that the transfer needs.
    Close,
    Exit(i32),
    Signal(i32),
}

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) is_chat: bool,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    pub(super) max_tokens: u64,
}

/// The body of a stream, step by step; framing is left to the writer.
pub(super) fn plan_stream(reply: &Reply, asked: Asked) -> Vec<Step> {
    let tokens = reply.tokens.unwrap_or(asked.max_tokens);
    let per_piece = reply.tokens_per_piece.unwrap_or(1).max(1);
    let pieces = tokens.div_ceil(per_piece);
    let text = reply.text.clone().unwrap_or_else(|| " w\u{f6}rd \u{1f600}".to_owned());
    let mut steps = Vec::new();
    if asked.is_chat {
        steps.push(event(
            &json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
        ));
    }
    for number in 0..pieces {
        if reply.after == Some(number) {
            steps.extend(plan_trouble(reply));
        }
        if number > 0 {
            steps.push(Step::Tick);
        }
        let choice = match asked.is_chat {
            true => json!({"index": 0, "delta": {"content": text}, "finish_reason": null}),
            false => json!({"index": 0, "text": text, "finish_reason": null}),
        };
        steps.push(event(&json!({"object": "chunk", "choices": [choice]})));
    }
    if reply.after.is_some_and(|after| after >= pieces) {
        steps.extend(plan_trouble(reply));
    }
    if reply.no_end {
        return steps;
    }
    steps.push(event(
        &json!({"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": "length"}]}),
    ));
    if !reply.no_usage {
        let usage = json!({
            "prompt_tokens": reply.prompt_tokens.unwrap_or(asked.prompt_tokens),
            "completion_tokens": tokens,
            "prompt_tokens_details": { "cached_tokens": asked.cached_tokens },
        });
        steps.push(event(&json!({"choices": [], "usage": usage})));
    }
    steps.push(Step::Write(b"data: [DONE]\n\n".to_vec()));
    steps
}

fn event(value: &Value) -> Step {
    Step::Write(format!("data: {value}\n\n").into_bytes())
}

/// What goes wrong in mid-stream.
fn plan_trouble(reply: &Reply) -> Vec<Step> {
    let mut steps = Vec::new();
    if !reply.then_stderr.is_empty() {
        steps.push(Step::Log(reply.then_stderr.clone()));
    }
    if !reply.raw.is_empty() {
        steps.push(Step::Write(reply.raw.clone().into_bytes()));
    }
    steps.extend(reply.signal.map(Step::Signal));
    steps.extend(reply.exit.map(Step::Exit));
    steps.extend(reply.hang.then_some(Step::Hang));
    steps.extend(reply.close.then_some(Step::Close));
    steps
}
