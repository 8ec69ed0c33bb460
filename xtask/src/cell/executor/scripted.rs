//! The executor that plays endings: no process, no file, no wait. For tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::Executor;
use crate::cell::capture::{Capture, CaptureLimits};
use crate::cell::child::{ChildEnd, ChildSpec};
use crate::cell::classify::{ExitKind, StopReason};
use crate::cell::evidence::search::Search;
use crate::cell::evidence::verdict::judge;
use crate::cell::health::Look;
use crate::cell::quiet::{HostSample, LostTime};
use crate::cell::serving::{ServeFailure, Served};
use crate::oom_record::OomEntry;

#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub(crate) exit: ExitKind,
    pub(crate) stopped: Option<StopReason>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// What it writes to the file that its `--report` argument names.
    pub(crate) report: Option<String>,
    /// How long it could not go on.
    pub(crate) lost: LostTime,
    /// What its client saw, where it is a server.
    pub(crate) served: Option<Result<Served, ServeFailure>>,
}

impl Ending {
    /// An exit code, with something on stderr.
    pub(crate) fn exit(code: i32, stderr: &str) -> Ending {
        Ending {
            exit: ExitKind::Code(code),
            stopped: None,
            stdout: String::new(),
            stderr: stderr.to_owned(),
            report: None,
            lost: LostTime::default(),
            served: None,
        }
    }

    /// Success, with the speeds of a profile on stdout, and no counts that would have to fit a cell.
    pub(crate) fn measured(decode_tok_s: f64) -> Ending {
        let stdout = format!(
            "Prefill: 100.00 ms (5120.00 tok/s)\nDecode: {:.2} ms ({decode_tok_s:.2} tok/s)\n",
            32_000.0 / decode_tok_s
        );
        Ending { stdout, ..Ending::exit(0, "") }
    }

    /// What an allocator says, and exit code 1.
    pub(crate) fn oom() -> Ending {
        Ending::exit(1, "CUDA_ERROR_OUT_OF_MEMORY\n")
    }
}

/// Decides how a process ends; an error where it cannot be started.
type Script<'a> = Box<dyn FnMut(&ChildSpec) -> anyhow::Result<Ending> + 'a>;

pub(crate) struct ScriptedExecutor<'a> {
    script: Script<'a>,
    files: BTreeMap<PathBuf, String>,
    /// Every process that was started, as words.
    pub(crate) launched: Vec<Vec<String>>,
    pub(crate) pauses: Vec<Duration>,
    pub(crate) recorded: Vec<OomEntry>,
    /// What the system is said to have counted, one for each look; the last stays.
    pub(crate) samples: Vec<HostSample>,
    /// How the machine is said to be, one for each look; the last stays.
    pub(crate) looks: Vec<Look>,
    /// How often it was asked.
    pub(crate) looked: usize,
    pub(crate) is_interrupted: bool,
    pub(crate) boot_id: String,
}

impl<'a> ScriptedExecutor<'a> {
    pub(crate) fn new(
        script: impl FnMut(&ChildSpec) -> anyhow::Result<Ending> + 'a,
    ) -> ScriptedExecutor<'a> {
        ScriptedExecutor {
            script: Box::new(script),
            files: BTreeMap::new(),
            launched: Vec::new(),
            pauses: Vec::new(),
            recorded: Vec::new(),
            samples: Vec::new(),
            looks: Vec::new(),
            looked: 0,
            is_interrupted: false,
            boot_id: "boot".to_owned(),
        }
    }
}

impl Executor for ScriptedExecutor<'_> {
    fn run_child(&mut self, spec: &ChildSpec) -> anyhow::Result<ChildEnd> {
        let args = spec.args.iter().map(|arg| arg.to_string_lossy().into_owned());
        let words: Vec<String> =
            std::iter::once(spec.program.to_string_lossy().into_owned()).chain(args).collect();
        let ending = (self.script)(spec)?;
        let report = words.iter().skip_while(|word| *word != "--report").nth(1);
        if let (Some(path), Some(text)) = (report, &ending.report) {
            self.files.insert(spec.current_dir.join(path), text.clone());
        }
        self.launched.push(words);
        self.is_interrupted |= ending.stopped == Some(StopReason::Interrupt);
        let capture = |text: &str| {
            let mut capture = Capture::new(CaptureLimits::default());
            capture.feed(text.as_bytes());
            capture
        };
        let [stdout, stderr] = [&ending.stdout, &ending.stderr].map(|text| {
            let mut search = Search::new(Arc::clone(&spec.signatures));
            search.feed(text.as_bytes());
            search.end();
            (search, capture(text))
        });
        Ok(ChildEnd {
            exit: ending.exit,
            stopped: ending.stopped,
            wall: Duration::from_secs(1),
            cpu: Duration::from_secs(1),
            rss_peak_bytes: Some(1 << 20),
            lost: ending.lost,
            said: judge(
                &spec.signatures,
                ending.exit != ExitKind::Code(0),
                (&stderr.0, &stderr.1),
                (&stdout.0, &stdout.1),
            ),
            stdout: stdout.1,
            stderr: stderr.1,
            available_low_bytes: None,
            memory_bytes: None,
            cgroup_oom_kills: None,
            kernel_oom_line: None,
            served: ending.served,
        })
    }

    fn find_free_port(&mut self) -> anyhow::Result<u16> {
        Ok(4242)
    }

    fn read_text(&mut self, path: &Path, limit_bytes: u64) -> Option<String> {
        self.files.get(path).filter(|text| text.len() as u64 <= limit_bytes).cloned()
    }

    fn look(&mut self) -> Look {
        self.looked += 1;
        match self.looks.len() {
            0 => Look::default(),
            1 => self.looks[0].clone(),
            _ => self.looks.remove(0),
        }
    }

    fn sample_host(&mut self) -> HostSample {
        match self.samples.len() {
            0 => HostSample::default(),
            1 => self.samples[0],
            _ => self.samples.remove(0),
        }
    }

    fn pause(&mut self, duration: Duration) -> Option<Duration> {
        self.pauses.push(duration);
        (!self.is_interrupted).then_some(duration)
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    fn record_oom(&mut self, entry: &OomEntry) -> anyhow::Result<()> {
        self.recorded.push(entry.clone());
        Ok(())
    }

    fn today(&self) -> String {
        "2026-01-31".to_owned()
    }

    fn now(&self) -> String {
        "2026-01-31T12:00:00.000Z".to_owned()
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }
}
