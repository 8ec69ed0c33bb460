//! The client: waits until a server is ready, asks it, and takes the times.
//!
//! It runs beside the loop that watches the child, in threads of its own, and ends when everything is
//! answered, when something fails, or when the server is gone.

use std::io::PipeReader;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::Value;

use super::prompt::{PromptMaker, correct_units};
use super::{ClientPlan, FailureKind, RequestSample, ServeFailure, Served};
use crate::cell::runner::PromptForm;
use crate::cell::work::is_near;

use http::Http;

mod http;

/// Between two looks whether a server is ready.
const READY_EVERY: Duration = Duration::from_millis(50);
/// Requests that may be spent on finding a prompt of the right length.
const MOST_WARMUPS: u64 = 6;
/// Texts that may be counted for one prompt.
const MOST_CUTS: u64 = 12;

type Answer = Result<Served, ServeFailure>;

/// A client that is at work.
#[derive(Debug)]
pub(crate) struct Client {
    /// Readable once the client has ended.
    done: PipeReader,
    answer: mpsc::Receiver<Answer>,
    gone: Arc<AtomicBool>,
}

impl Client {
    /// Starts to ask.
    ///
    /// # Errors
    /// When there can be no thread or pipe.
    pub(crate) fn start(plan: ClientPlan) -> anyhow::Result<Client> {
        let (done, writer) = std::io::pipe().context("cannot make a pipe")?;
        let (sender, answer) = mpsc::channel();
        let gone = Arc::new(AtomicBool::new(false));
        let is_gone = Arc::clone(&gone);
        std::thread::Builder::new()
            .name("client".to_owned())
            .spawn(move || {
                // Nobody listens any more where the harness gave up on it.
                let _ = sender.send(Asker::new(plan, is_gone).run());
                // Closing its last writer makes the pipe readable.
                drop(writer);
            })
            .context("cannot start a thread")?;
        Ok(Client { done, answer, gone })
    }

    /// Becomes readable when the client has ended.
    pub(crate) fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// What came of it, once it has ended.
    pub(crate) fn take(&self) -> Option<Answer> {
        self.answer.try_recv().ok()
    }

    /// Tells it that the server has ended, and gives it some time to notice.
    pub(crate) fn give_up(&self, patience: Duration) -> Answer {
        self.gone.store(true, Ordering::Relaxed);
        self.answer.recv_timeout(patience).unwrap_or_else(|_| {
            Err(ServeFailure::new(
                FailureKind::Request,
                "the server ended, but somebody holds its connections open",
            ))
        })
    }
}

struct Asker {
    plan: ClientPlan,
    http: Http,
    maker: PromptMaker,
    seed: u64,
    /// Set when the server is known to be gone.
    gone: Arc<AtomicBool>,
    started: Instant,
}

impl Asker {
    fn new(plan: ClientPlan, gone: Arc<AtomicBool>) -> Asker {
        let started = Instant::now();
        let deadline = plan.timeout.map(|timeout| started + timeout);
        // A server may keep a cache on disk: no launch repeats the prompts of another.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40);
        Asker {
            http: Http::new(plan.port, deadline),
            maker: PromptMaker::new(plan.server.prompt.clone(), seed),
            seed,
            plan,
            gone,
            started,
        }
    }

    fn run(&self) -> Answer {
        self.wait_until_ready()?;
        let ready_ms = self.started.elapsed().as_secs_f64() * 1e3;
        let (units, warmups) = self.warm_up()?;
        let mut number = warmups;
        let mut prompts = Vec::new();
        for _ in 0..self.plan.concurrency {
            let mut own = Vec::new();
            for _ in 0..self.plan.server.requests {
                own.push(self.make_prompt(number, units)?);
                number += 1;
            }
            prompts.push(own);
        }
        let (requests, wall) = self.measure(&prompts)?;
        Ok(Served {
            concurrency: self.plan.concurrency,
            seed: self.seed,
            ready_ms,
            warmups,
            wall_ms: wall.as_secs_f64() * 1e3,
            requests,
        })
    }

    fn check_server_is_there(&self) -> Result<(), ServeFailure> {
        match self.gone.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(ServeFailure::new(FailureKind::Request, "the server ended by itself")),
        }
    }

    fn wait_until_ready(&self) -> Result<(), ServeFailure> {
        let server = &self.plan.server;
        // The last answer says more than that the last try was cut off.
        let mut last_status = None;
        loop {
            self.check_server_is_there()?;
            let left = server.ready_within.saturating_sub(self.started.elapsed());
            let last = match self.http.get(&server.ready_path, left) {
                Ok(status) if (200..300).contains(&status) => return Ok(()),
                Ok(status) => {
                    last_status = Some(format!("it answers with status {status}"));
                    String::new()
                }
                Err(error) => error,
            };
            if self.started.elapsed() >= server.ready_within {
                return Err(ServeFailure::new(
                    FailureKind::NotReady,
                    format!(
                        "the server was not ready within {} s: `GET {}`: {}",
                        server.ready_within.as_secs_f64(),
                        server.ready_path,
                        last_status.unwrap_or(last)
                    ),
                ));
            }
            std::thread::sleep(READY_EVERY);
        }
    }

    /// Finds how many units make a prompt of the right length, by asking. Gives that number, and how
    /// many requests it took; the last of them is the warm-up.
    fn warm_up(&self) -> Result<(u64, u64), ServeFailure> {
        let target = self.plan.prompt_tokens;
        let mut units = target;
        let mut warmups = 0;
        let mut tries = Vec::new();
        loop {
            let prompt = self.make_prompt(warmups, units)?;
            let sample = self.http.ask(&self.plan, &prompt, self.plan.warmup_tokens.max(1))?;
            warmups += 1;
            let Some(tokens) = sample.prompt_tokens else {
                return Err(ServeFailure::new(
                    FailureKind::Empty,
                    "the server does not report the tokens of its prompts (`usage`)",
                ));
            };
            let is_last = warmups == MOST_WARMUPS;
            if tokens == target || (is_last && is_near(tokens, target)) {
                return Ok((units, warmups));
            }
            tries.push((units, tokens));
            units = correct_units(&tries, target).filter(|_| !is_last).ok_or_else(|| {
                ServeFailure::new(
                    FailureKind::Empty,
                    format!(
                        "no prompt of {target} tokens was found in {warmups} tries: the last one had \
                         {tokens}, of {units} units"
                    ),
                )
            })?;
        }
    }

    /// A prompt of so many units; where the server counts, of so many tokens as it counts.
    fn make_prompt(&self, number: u64, units: u64) -> Result<Value, ServeFailure> {
        let PromptForm::Text { tokenize: Some(tokenize) } = &self.plan.server.prompt else {
            return Ok(self.maker.make(number, units));
        };
        let mut words = units;
        let mut tries = Vec::new();
        for _ in 0..MOST_CUTS {
            let text = self.maker.make(number, words);
            let tokens = self.http.count(tokenize, &text)?;
            if tokens == units {
                return Ok(text);
            }
            tries.push((words, tokens));
            words = correct_units(&tries, units).unwrap_or(1);
        }
        Err(ServeFailure::new(
            FailureKind::Empty,
            format!("no text of exactly {units} tokens was found by `{}`", tokenize.path),
        ))
    }

    /// All streams at once, each asking one thing after the other.
    fn measure(
        &self,
        prompts: &[Vec<Value>],
    ) -> Result<(Vec<RequestSample>, Duration), ServeFailure> {
        let bodies: Vec<Vec<Vec<u8>>> = prompts
            .iter()
            .map(|own| own.iter().map(|p| http::render_body(&self.plan, p, self.plan.max_tokens)))
            .map(Iterator::collect)
            .collect();
        let begin = Barrier::new(bodies.len() + 1);
        let has_failed = AtomicBool::new(false);
        let stream = |bodies: &[Vec<u8>]| {
            begin.wait();
            let mut samples = Vec::new();
            for body in bodies {
                if has_failed.load(Ordering::Relaxed) {
                    break;
                }
                match self.http.send(&self.plan.server.path, body) {
                    Ok(sample) => samples.push(sample),
                    Err(failure) => {
                        has_failed.store(true, Ordering::Relaxed);
                        return Err(failure);
                    }
                }
            }
            Ok(samples)
        };
        let (ends, wall) = std::thread::scope(|scope| {
            let stream = &stream;
            let streams: Vec<_> =
                bodies.iter().map(|own| scope.spawn(move || stream(own))).collect();
            begin.wait();
            let start = Instant::now();
            let ends: Vec<_> =
                streams.into_iter().map(|s| s.join().expect("a stream does not panic")).collect();
            (ends, start.elapsed())
        });
        let mut samples = Vec::new();
        let mut failures = Vec::new();
        for end in ends {
            match end {
                Ok(own) => samples.extend(own),
                Err(failure) => failures.push(failure),
            }
        }
        // What the server gave a reason for says more than connections that were lost with it.
        match failures.into_iter().max_by_key(|failure| !failure.said.is_empty()) {
            Some(failure) => Err(failure),
            None => Ok((samples, wall)),
        }
    }
}
