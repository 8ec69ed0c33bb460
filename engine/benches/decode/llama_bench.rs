//! llama.cpp and its offspring ik_llama.cpp, through their own `llama-bench`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::Contestant;

/// Whose `llama-bench` it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Llama,
    /// Repacks weights when it loads, as it does best.
    IkLlama,
}

pub(crate) struct LlamaBench {
    pub(crate) kind: Kind,
    pub(crate) program: PathBuf,
    pub(crate) model: PathBuf,
    pub(crate) threads: usize,
}

impl LlamaBench {
    /// Runs one test and returns its tokens per second. `llama-bench` warms up by itself.
    fn run(&self, test: &[String]) -> anyhow::Result<f64> {
        let mut command = Command::new(&self.program);
        command.arg("-m").arg(&self.model);
        command.args(["-t", &self.threads.to_string(), "-r", "1", "-o", "json"]).args(test);
        if self.kind == Kind::IkLlama {
            command.args(["-rtr", "1"]);
        }
        let output =
            command.output().with_context(|| format!("cannot run `{}`", self.program.display()))?;
        anyhow::ensure!(
            output.status.success(),
            "`{}` failed: {}",
            self.program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        // ik_llama.cpp prints other lines before the tests.
        let start = output.stdout.iter().position(|&byte| byte == b'[').unwrap_or(0);
        let tests: serde_json::Value = serde_json::from_slice(&output.stdout[start..])?;
        tests[0]["avg_ts"].as_f64().context("llama-bench gave no `avg_ts`")
    }
}

impl Contestant for LlamaBench {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Llama => "llama.cpp",
            Kind::IkLlama => "ik_llama.cpp",
        }
    }

    fn prefill(&mut self, tokens: usize) -> anyhow::Result<f64> {
        self.run(&["-p".into(), tokens.to_string(), "-n".into(), "0".into()])
    }

    fn fill(&mut self, _kv: usize) -> anyhow::Result<()> {
        Ok(())
    }

    fn decode(&mut self, kv: usize, steps: usize) -> anyhow::Result<f64> {
        let none = ["-p", "0", "-n"].map(String::from);
        let depth = match self.kind {
            Kind::Llama => [steps.to_string(), "-d".into(), kv.to_string()],
            Kind::IkLlama => ["0".into(), "-gp".into(), format!("{kv},{steps}")],
        };
        self.run(&[none, depth].concat())
    }
}
