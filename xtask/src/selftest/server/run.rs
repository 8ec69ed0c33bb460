//! The scripted server: listens on loopback and answers as its script says.
//!
//! It speaks just enough of HTTP/1.1, by hand, because what it must be able to do is get it wrong.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::args::Args;
use super::reply::{Asked, Step, plan_stream};
use super::{Launch, Reply, Script, common_prefix};

/// Longer than any test waits.
const FOR_EVER: Duration = Duration::from_secs(600);

struct Server {
    launch: Launch,
    request_log: Option<String>,
    /// Health checks that are still answered with 503.
    unready: AtomicI64,
    asked: AtomicU64,
    /// Prompts that were kept.
    kept: Mutex<Vec<Vec<String>>>,
}

/// Serves until it is told to end, or its script ends it.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = crate::sys::files::read_text(&args.script)?;
    let script: Script = toml::from_str(&text)
        .with_context(|| format!("cannot read the script `{}`", args.script.display()))?;
    let launch = script.plan_launch(&args.model, args.concurrency);
    if let Some(log) = &script.launch_log {
        append(Path::new(log), &format!("{} {}\n", args.model, args.concurrency))?;
    }
    if launch.ignore_sigterm {
        // SAFETY: sets the disposition of a signal; no handler runs.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    }
    for _ in 0..launch.grandchildren {
        Command::new("sleep").arg("60").spawn().context("cannot start `sleep`")?;
    }
    std::io::stderr().write_all(launch.stderr.as_bytes())?;
    if let Some(signal) = launch.signal {
        kill_self(signal);
    }
    if let Some(code) = launch.exit {
        return Ok(ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)));
    }
    let listener = TcpListener::bind(("127.0.0.1", args.port)).context("cannot listen")?;
    let server = Arc::new(Server {
        unready: AtomicI64::new(launch.unready),
        launch,
        request_log: script.request_log,
        asked: AtomicU64::new(0),
        kept: Mutex::new(Vec::new()),
    });
    for connection in listener.incoming() {
        let (server, connection) = (Arc::clone(&server), connection?);
        // A connection that breaks concerns nobody else.
        std::thread::spawn(move || server.answer(&connection));
    }
    Ok(ExitCode::SUCCESS)
}

fn append(path: &Path, line: &str) -> anyhow::Result<()> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write `{}`", path.display()))
}

fn kill_self(signal: i32) {
    // SAFETY: sends a signal to this very process.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::kill(libc::getpid(), signal);
    }
    std::thread::sleep(FOR_EVER);
}

impl Server {
    fn answer(&self, connection: &TcpStream) -> anyhow::Result<()> {
        connection.set_nodelay(true)?;
        let (path, body) = read_request(connection)?;
        if self.launch.mute {
            std::thread::sleep(FOR_EVER);
        }
        match path.as_str() {
            "/health" => {
                let left = self.unready.load(Ordering::Relaxed);
                if left == 0 {
                    return write_plain(connection, 200, r#"{"status":"ok"}"#);
                }
                self.unready.fetch_sub(i64::from(left > 0), Ordering::Relaxed);
                write_plain(connection, 503, r#"{"error":{"message":"Loading model"}}"#)
            }
            "/tokenize" => {
                let count = self.launch.tokenize_plain(&body["content"]).len();
                write_plain(connection, 200, &json!({"tokens": vec![1; count]}).to_string())
            }
            "/v1/completions" => self.complete(connection, &body["prompt"], &body, false),
            "/v1/chat/completions" => {
                self.complete(connection, &body["messages"][0]["content"], &body, true)
            }
            _ => write_plain(connection, 404, r#"{"detail":"Not Found"}"#),
        }
    }

    fn complete(
        &self,
        connection: &TcpStream,
        prompt: &Value,
        body: &Value,
        is_chat: bool,
    ) -> anyhow::Result<()> {
        let number = self.asked.fetch_add(1, Ordering::Relaxed);
        let reply = self.launch.plan_reply(number);
        let tokens = self.launch.tokenize(prompt);
        let prompt_tokens = tokens.len() as u64;
        let cached_tokens = self.keep(tokens);
        if let Some(log) = &self.request_log {
            append(Path::new(log), &format!("{number} {prompt_tokens} {cached_tokens}\n"))?;
        }
        std::io::stderr().write_all(reply.stderr.as_bytes())?;
        std::thread::sleep(Duration::from_millis(reply.wait_ms));
        if let Some(status) = reply.status {
            return write_plain(connection, status, &reply.body);
        }
        let prefill = (prompt_tokens - cached_tokens) * self.launch.prefill_us;
        std::thread::sleep(Duration::from_micros(prefill));
        let max_tokens = body["max_tokens"].as_u64().unwrap_or(16);
        let asked = Asked { is_chat, prompt_tokens, cached_tokens, max_tokens };
        self.stream(connection, &reply, asked)
    }

    /// Keeps a prompt, where there is a cache. Gives how much of it was there.
    fn keep(&self, tokens: Vec<String>) -> u64 {
        if !self.launch.prefix_cache {
            return 0;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let common = common_prefix(&kept, &tokens);
        kept.push(tokens);
        common
    }

    fn stream(
        &self,
        mut connection: &TcpStream,
        reply: &Reply,
        asked: Asked,
    ) -> anyhow::Result<()> {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
        connection.write_all(head.as_bytes())?;
        let start = Instant::now();
        let mut ticks = 0;
        for step in plan_stream(reply, asked) {
            match step {
                Step::Tick => {
                    ticks += 1;
                    let due =
                        start + Duration::from_micros(self.launch.step_us.unwrap_or(4000)) * ticks;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                Step::Write(bytes) => {
                    let packet = reply.packet_bytes.unwrap_or(bytes.len()).max(1);
                    for piece in bytes.chunks(packet) {
                        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
                        chunk.extend_from_slice(piece);
                        chunk.extend_from_slice(b"\r\n");
                        connection.write_all(&chunk)?;
                    }
                }
                Step::Log(text) => std::io::stderr().write_all(text.as_bytes())?,
                Step::Hang => std::thread::sleep(FOR_EVER),
                Step::Close => return Ok(connection.shutdown(std::net::Shutdown::Both)?),
                Step::Exit(code) => {
                    std::io::stderr().flush()?;
                    // SAFETY: ends this very process; nothing of it needs to be unwound.
                    unsafe { libc::_exit(code) }
                }
                Step::Signal(signal) => kill_self(signal),
            }
        }
        Ok(connection.write_all(b"0\r\n\r\n")?)
    }
}

/// The path of a request, and its body as JSON.
fn read_request(connection: &TcpStream) -> anyhow::Result<(String, Value)> {
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((path, serde_json::from_slice(&body).unwrap_or_default()))
}

fn write_plain(mut connection: &TcpStream, status: u16, body: &str) -> anyhow::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    connection.write_all(head.as_bytes())?;
    Ok(connection.write_all(body.as_bytes())?)
}
