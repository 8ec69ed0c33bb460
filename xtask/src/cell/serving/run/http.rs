//! Single requests over loopback, and the reading of one stream against the clock.

use std::io::Read as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Response;

use crate::cell::runner::{Api, Tokenize};
use crate::cell::serving::event::{Event, evidence_of, parse_error_body, parse_event};
use crate::cell::serving::sse::EventStream;
use crate::cell::serving::{ClientPlan, FailureKind, RequestSample, ServeFailure};

/// The body of an error beyond this is not read.
const ERROR_LIMIT_BYTES: u64 = 64 << 10;
/// A count of tokens beyond this is not read.
const COUNT_LIMIT_BYTES: u64 = 64 << 20;
/// Pieces of text that one answer may have for each token that was asked for.
const MOST_PIECES: usize = 1 << 20;
/// What a request gets where the cell has no deadline.
const LONGEST: Duration = Duration::from_secs(86_400);

/// A way to one port of this machine.
#[derive(Debug)]
pub(super) struct Http {
    agent: Agent,
    port: u16,
    deadline: Option<Instant>,
}

/// The body of a request, as bytes.
pub(super) fn render_body(plan: &ClientPlan, prompt: &Value, max_tokens: u64) -> Vec<u8> {
    let mut body = json!({
        "model": plan.model,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    match plan.server.api {
        Api::Completions => body["prompt"] = prompt.clone(),
        Api::Chat => body["messages"] = json!([{ "role": "user", "content": prompt }]),
    }
    for (name, value) in &plan.server.body {
        body[name] = value.clone();
    }
    body.to_string().into_bytes()
}

fn failed(reason: impl Into<String>) -> ServeFailure {
    ServeFailure::new(FailureKind::Request, reason)
}

impl Http {
    pub(super) fn new(port: u16, deadline: Option<Instant>) -> Http {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // Neither a proxy of the environment nor a redirect leads away from this machine.
            .proxy(None)
            .max_redirects(0)
            // Each request has a connection of its own, so that all are alike.
            .max_idle_connections(0)
            .build()
            .new_agent();
        Http { agent, port, deadline }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn left(&self) -> Duration {
        match self.deadline {
            // The watch over the child ends it at the deadline; this is for who outlives that.
            Some(deadline) => {
                deadline.saturating_duration_since(Instant::now()) + Duration::from_secs(1)
            }
            None => LONGEST,
        }
    }

    /// The status that a path answers with.
    pub(super) fn get(&self, path: &str, limit: Duration) -> Result<u16, String> {
        let limit = limit.clamp(Duration::from_millis(100), Duration::from_secs(5));
        let request = self.agent.get(self.url(path)).config().timeout_global(Some(limit)).build();
        request.call().map(|response| response.status().as_u16()).map_err(|error| error.to_string())
    }

    fn post(&self, path: &str, body: &[u8]) -> Result<Response<ureq::Body>, ServeFailure> {
        let request = self
            .agent
            .post(self.url(path))
            .header("content-type", "application/json")
            .config()
            .timeout_global(Some(self.left()))
            .build();
        let mut response =
            request.send(body).map_err(|error| failed(format!("`POST {path}`: {error}")))?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(response);
        }
        let body = response.body_mut().with_config().limit(ERROR_LIMIT_BYTES).read_to_string();
        let message = parse_error_body(&body.unwrap_or_default());
        let first = message.lines().next().unwrap_or_default();
        Err(ServeFailure {
            said: evidence_of(Some(status), &message),
            ..failed(format!("`POST {path}` was answered with status {status}: {first}"))
        })
    }

    /// How many tokens a text has, by the server's own tokenizer.
    pub(super) fn count(&self, tokenize: &Tokenize, text: &Value) -> Result<u64, ServeFailure> {
        let body = json!({ &tokenize.field: text }).to_string();
        let mut response = self.post(&tokenize.path, body.as_bytes())?;
        let read = response.body_mut().with_config().limit(COUNT_LIMIT_BYTES).read_to_string();
        let value: Option<Value> = read.ok().and_then(|text| serde_json::from_str(&text).ok());
        let count = value.as_ref().and_then(|value| {
            let tokens = value.get("tokens").and_then(Value::as_array).map(|all| all.len() as u64);
            tokens.or_else(|| value.get("count")?.as_u64())
        });
        count.ok_or_else(|| {
            failed(format!("`POST {}` gives neither `tokens` nor `count`", tokenize.path))
        })
    }

    /// Asks once.
    pub(super) fn ask(
        &self,
        plan: &ClientPlan,
        prompt: &Value,
        max_tokens: u64,
    ) -> Result<RequestSample, ServeFailure> {
        self.send(&plan.server.path, &render_body(plan, prompt, max_tokens))
    }

    /// Sends a request and reads its answer to the end, against the clock.
    pub(super) fn send(&self, path: &str, body: &[u8]) -> Result<RequestSample, ServeFailure> {
        let start = Instant::now();
        let mut reader = self.post(path, body)?.into_body().into_reader();
        let mut stream = EventStream::default();
        let mut reading = Reading { start, ..Reading::new() };
        let mut buffer = vec![0; 16 << 10];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(count) => count,
                Err(error) => return Err(failed(reading.broken(&error.to_string()))),
            };
            let now = Instant::now();
            if count == 0 {
                return reading.end();
            }
            for data in stream.feed(&buffer[..count]).map_err(failed)? {
                if reading.take(now, parse_event(&data).map_err(failed)?)? == Next::Stop {
                    return reading.end();
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    Stop,
}

/// What was read of one answer so far.
struct Reading {
    start: Instant,
    /// When the last piece of text came.
    last: Option<Instant>,
    sample: RequestSample,
}

impl Reading {
    fn new() -> Reading {
        Reading { start: Instant::now(), last: None, sample: RequestSample::default() }
    }

    fn pieces(&self) -> usize {
        self.sample.gap_ms.len() + usize::from(self.last.is_some())
    }

    fn broken(&self, why: &str) -> String {
        format!("the stream broke off after {} pieces of text: {why}", self.pieces())
    }

    fn take(&mut self, now: Instant, event: Event) -> Result<Next, ServeFailure> {
        let piece = match event {
            Event::Done => return Ok(Next::Stop),
            Event::Failed { status, message } => {
                let first = message.lines().next().unwrap_or_default();
                let reason =
                    format!("the server gave up after {} pieces of text: {first}", self.pieces());
                return Err(ServeFailure { said: evidence_of(status, &message), ..failed(reason) });
            }
            Event::Piece(piece) => piece,
        };
        let ms = |from: Instant| now.duration_since(from).as_secs_f64() * 1e3;
        if piece.has_text {
            match self.last.replace(now) {
                None => self.sample.first_ms = ms(self.start),
                Some(last) => self.sample.gap_ms.push(ms(last)),
            }
        }
        if self.pieces() > MOST_PIECES {
            return Err(failed(format!("the answer does not end after {MOST_PIECES} pieces")));
        }
        if let Some(usage) = piece.usage {
            // Some servers count on with every event; the last word counts.
            self.sample.prompt_tokens = usage.prompt_tokens.or(self.sample.prompt_tokens);
            self.sample.generated_tokens = usage.generated_tokens.or(self.sample.generated_tokens);
            self.sample.cached_tokens = usage.cached_tokens.or(self.sample.cached_tokens);
        }
        self.sample.finish_reason = piece.finish_reason.or(self.sample.finish_reason.take());
        Ok(Next::GoOn)
    }

    /// The answer, after its end.
    fn end(self) -> Result<RequestSample, ServeFailure> {
        if self.last.is_none() {
            return Err(ServeFailure::new(FailureKind::Empty, "the answer holds no text"));
        }
        if self.sample.finish_reason.is_none() {
            return Err(failed(self.broken("it ended without a `finish_reason`")));
        }
        Ok(self.sample)
    }
}
