//! Prefill and the decode loop, top down: one sequence, greedy, timed by itself.
//!
//! The loop tells a [`StepObserver`] what it is about to do and has done, and knows nothing of what
//! observers do with it. Nothing here prints or reads the environment.

use std::time::{Duration, Instant};

use candle_core::{Result, bail};

use crate::model::{KvCache, Logits, Transformer};

/// What a pass is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Its numbers are discarded.
    WarmUp,
    /// Its numbers are the result.
    Measured,
}

/// Is told of every step of a pass, outside of the measured times but for [`before_forward`].
///
/// [`before_forward`]: StepObserver::before_forward
pub trait StepObserver {
    /// A pass begins.
    fn before_pass(&mut self, _pass: Pass) {}

    /// A decode step follows.
    fn before_decode_step(&mut self) {}

    /// A forward of `seq_len` tokens follows: 1 in decode, anything else in prefill. What is done here
    /// counts to it: an allocator's policy has its cost where it has its gain.
    fn before_forward(&mut self, _seq_len: usize) {}

    /// A token of the first sequence was chosen by these logits: in prefill, then in each decode step
    /// before it is done.
    fn after_choice(&mut self, _logits: &[f32]) {}

    /// Decode step number `step` of this pass, from 0, is done.
    fn after_decode_step(&mut self, _step: usize) {}
}

/// Observes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl StepObserver for NoObserver {}

/// What to generate.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The prompt; not empty.
    pub prompt: &'a [u32],
    /// Tokens to generate at most, the one that prefill yields included; not 0.
    pub max_tokens: usize,
    /// Tokens that a prefill forward takes at most; not 0.
    pub prefill_chunk: usize,
    /// Tokens after which generation ends; the token itself is kept.
    pub stop: &'a [u32],
}

/// What was generated, and how long it took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Generated {
    /// The tokens, the one that prefill yields first.
    pub tokens: Vec<u32>,
    /// Those of the other sequences of a batch.
    pub others: Vec<Vec<u32>>,
    /// From the first prompt token to the first generated one; of a batch, of all sequences together.
    pub prefill: Duration,
    /// Each decode step: one forward and the choice of its tokens.
    pub steps: Vec<Duration>,
}

impl Generated {
    /// Sequences that were decoded together.
    pub fn sequences(&self) -> usize {
        1 + self.others.len()
    }
}

/// Runs one pass: prefill in chunks, then decode steps until `max_tokens` or a stop token.
///
/// The cache is cleared first and must have room for the prompt and all but one generated token.
///
/// # Errors
/// An impossible request; a hidden state or logits that are not finite; those of the device.
pub fn generate(
    model: &Transformer,
    cache: &mut KvCache,
    request: &Request,
    pass: Pass,
    observer: &mut dyn StepObserver,
) -> Result<Generated> {
    run(model, &mut [cache], request, pass, observer)
}

/// [`generate`] of as many sequences as there are caches, which decode together: a step is one forward
/// for all of them. The prompt of sequence `i` is the request's, beginning with its token number `i`
/// and going round, so that sequences differ; each gives the tokens that it gives alone.
///
/// # Errors
/// As there; no cache, or stop tokens, at which sequences would part.
pub fn generate_batch(
    model: &Transformer,
    caches: &mut [KvCache],
    request: &Request,
    pass: Pass,
    observer: &mut dyn StepObserver,
) -> Result<Generated> {
    if caches.is_empty() || (caches.len() > 1 && !request.stop.is_empty()) {
        bail!("a batch needs sequences, and none that may stop before the others");
    }
    let mut caches: Vec<&mut KvCache> = caches.iter_mut().collect();
    run(model, &mut caches, request, pass, observer)
}

fn run(
    model: &Transformer,
    caches: &mut [&mut KvCache],
    request: &Request,
    pass: Pass,
    observer: &mut dyn StepObserver,
) -> Result<Generated> {
    if request.max_tokens == 0 || request.prefill_chunk == 0 {
        bail!("the number of tokens and the prefill chunk must be positive");
    }
    observer.before_pass(pass);
    let mut logits = Vec::new();
    let mut time = Duration::ZERO;
    let mut last = Vec::with_capacity(caches.len());
    let mut prompt = request.prompt.to_vec();
    for cache in caches.iter_mut() {
        cache.clear();
        let request = Request { prompt: &prompt, ..*request };
        let (first, own) = prefill(model, cache, &request, observer, &mut logits)?;
        if last.is_empty() {
            observer.after_choice(&logits);
        }
        last.push([first]);
        time += own;
        prompt.rotate_left(1);
    }
    let mut sequences: Vec<Vec<u32>> = last.iter().map(|first| first.to_vec()).collect();
    sequences.iter_mut().for_each(|tokens| tokens.reserve(request.max_tokens));
    let mut steps = Vec::with_capacity(request.max_tokens);
    let vocab = model.config().vocab;
    while sequences[0].len() < request.max_tokens && !request.stop.contains(&last[0][0]) {
        observer.before_decode_step();
        let start = Instant::now();
        observer.before_forward(1);
        let inputs: Vec<&[u32]> = last.iter().map(<[u32; 1]>::as_slice).collect();
        model.forward_batch(&inputs, caches, Logits::Last, &mut logits)?;
        for (last, logits) in last.iter_mut().zip(logits.chunks_exact(vocab)) {
            *last = [choose(logits)?];
        }
        steps.push(start.elapsed());
        for (tokens, last) in sequences.iter_mut().zip(&last) {
            tokens.extend(last);
        }
        observer.after_choice(&logits[..vocab]);
        observer.after_decode_step(steps.len() - 1);
    }
    let others = sequences.split_off(1);
    let tokens = sequences.pop().unwrap_or_default();
    Ok(Generated { tokens, others, prefill: time, steps })
}

/// Runs the prompt in chunks and chooses the first token from the logits of the last one. The time
/// is that of the forwards and of what is done before them.
fn prefill(
    model: &Transformer,
    cache: &mut KvCache,
    request: &Request,
    observer: &mut dyn StepObserver,
    logits: &mut Vec<f32>,
) -> Result<(u32, Duration)> {
    let mut time = Duration::ZERO;
    let mut chunks = request.prompt.chunks(request.prefill_chunk).peekable();
    while let Some(chunk) = chunks.next() {
        let start = Instant::now();
        observer.before_forward(chunk.len());
        if chunks.peek().is_some() {
            model.forward_batch(&[chunk], &mut [cache], Logits::Skip, logits)?;
            model.device().synchronize()?;
            time += start.elapsed();
        } else {
            model.forward_batch(&[chunk], &mut [cache], Logits::Last, logits)?;
            let first = choose(logits)?;
            return Ok((first, time + start.elapsed()));
        }
    }
    bail!("the prompt is empty");
}

/// The token with the largest logit, the first of equals.
fn choose(logits: &[f32]) -> Result<u32> {
    // Chunk by chunk, so that the search for the largest is done in vectors.
    const CHUNK: usize = 64;
    let (mut best, mut largest) = (None, f32::NEG_INFINITY);
    for (index, chunk) in logits.chunks(CHUNK).enumerate() {
        let mut lanes = [f32::NEG_INFINITY; 16];
        let mut sum = [0f32; 16];
        for part in chunk.chunks(16) {
            for ((lane, sum), &logit) in lanes.iter_mut().zip(&mut sum).zip(part) {
                *lane = if logit > *lane { logit } else { *lane };
                // Neither NaN nor an infinity is 0 after this.
                *sum += logit * 0.0;
            }
        }
        if sum.iter().any(|&sum| sum != 0.0) {
            let token = chunk.iter().position(|logit| !logit.is_finite()).unwrap_or(0);
            bail!(
                "the logit of token {} is not finite: it began in the output matrix",
                index * CHUNK + token
            );
        }
        let own = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        if own > largest {
            (best, largest) = (Some(index * CHUNK), own);
        }
    }
    let Some(first) = best else {
        bail!("the forward computed no logits");
    };
    let within = logits[first..].iter().position(|&logit| logit == largest).unwrap_or(0);
    Ok((first + within) as u32)
}

/// How many tokens fit a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lengths {
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens to generate at most.
    pub max_tokens: usize,
    /// What was capped, in words.
    pub warning: Option<String>,
}

/// Caps a prompt and the tokens to generate at the model's context; the prompt gives way first.
pub fn plan_lengths(prompt: usize, max_tokens: usize, context: usize) -> Lengths {
    if prompt.saturating_add(max_tokens) <= context {
        return Lengths { prompt, max_tokens, warning: None };
    }
    let capped_prompt = prompt.min(context.saturating_sub(max_tokens).max(1));
    let capped_max = max_tokens.min(context.saturating_sub(capped_prompt).max(1));
    let warning = format!(
        "the model's context is {context} tokens: the prompt is capped at {capped_prompt} of \
         {prompt} tokens, the output at {capped_max} of {max_tokens}"
    );
    Lengths { prompt: capped_prompt, max_tokens: capped_max, warning: Some(warning) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_gives_way_to_the_context_first() {
        let lengths = plan_lengths(500, 12, 512);
        assert_eq!(lengths, Lengths { prompt: 500, max_tokens: 12, warning: None });
        let lengths = plan_lengths(600, 12, 512);
        assert_eq!((lengths.prompt, lengths.max_tokens), (500, 12));
        assert!(lengths.warning.unwrap().contains("500 of 600"));
        let lengths = plan_lengths(4, 600, 512);
        assert_eq!((lengths.prompt, lengths.max_tokens), (1, 511));
        let lengths = plan_lengths(4, usize::MAX, 512);
        assert_eq!((lengths.prompt, lengths.max_tokens), (1, 511));
        let lengths = plan_lengths(4, 4, 1);
        assert_eq!((lengths.prompt, lengths.max_tokens), (1, 1));
    }

    #[test]
    fn the_first_of_equal_logits_is_chosen_and_what_is_not_finite_is_refused() {
        assert_eq!(choose(&[0.5, 2.0, 2.0, -1.0]).unwrap(), 1);
        let mut logits: Vec<f32> = (0..1000).map(|i| -((i % 97) as f32) - 1.0).collect();
        for at in [0, 15, 16, 63, 64, 500, 999] {
            let mut logits = logits.clone();
            logits[at] = 7.0;
            assert_eq!(choose(&logits).unwrap(), at as u32);
        }
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            logits[700] = bad;
            let error = choose(&logits).unwrap_err().to_string();
            assert!(error.starts_with("the logit of token 700 is not finite"), "{error}");
        }
        assert!(choose(&[]).is_err());
    }
}
