//! llama.cpp, through its own `llama-bench`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;

use crate::Contestant;

pub(crate) struct LlamaBench {
    pub(crate) program: PathBuf,
    pub(crate) model: PathBuf,
    pub(crate) threads: usize,
}

impl LlamaBench {
    /// Runs one test and returns its tokens per second. `llama-bench` warms up by itself.
    fn run(&self, prompt: usize, steps: usize, depth: usize) -> anyhow::Result<f64> {
        let output = Command::new(&self.program)
            .arg("-m")
            .arg(&self.model)
            .args(["-t", &self.threads.to_string(), "-r", "1", "-o", "json"])
            .args(["-p", &prompt.to_string(), "-n", &steps.to_string()])
            .args(["-d", &depth.to_string()])
            .output()
            .with_context(|| format!("cannot run `{}`", self.program.display()))?;
        anyhow::ensure!(
            output.status.success(),
            "`{}` failed: {}",
            self.program.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let tests: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        tests[0]["avg_ts"].as_f64().context("llama-bench gave no `avg_ts`")
    }
}

impl Contestant for LlamaBench {
    fn name(&self) -> &'static str {
        "llama.cpp"
    }

    fn prefill(&mut self, tokens: usize) -> anyhow::Result<f64> {
        self.run(tokens, 0, 0)
    }

    fn fill(&mut self, _kv: usize) -> anyhow::Result<()> {
        Ok(())
    }

    fn decode(&mut self, kv: usize, steps: usize) -> anyhow::Result<f64> {
        self.run(0, steps, kv)
    }
}
