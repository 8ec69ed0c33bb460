//! How a cell is started: a runner's command line with a model, a length and its limits filled in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::child::ChildSpec;
use super::runner::{CellVars, Runner, render_command, render_env};
use super::serving::ClientPlan;
use super::work::Asked;

/// How long a server has to give its memory back after SIGTERM before SIGKILL follows.
const SERVER_GRACE: Duration = Duration::from_secs(15);

/// What to start for one cell.
#[derive(Debug, Clone)]
pub(crate) struct CellSpec<'a> {
    /// Where the runner is started: the workspace, or a work tree of it.
    pub(crate) root: &'a Path,
    pub(crate) runner: &'a Runner,
    /// What the command line speaks of; its report's path is made by [`report_path`].
    pub(crate) vars: CellVars,
    /// Changes to the inherited environment that come before the runner's own.
    pub(crate) base_env: Vec<(String, Option<String>)>,
    /// Changes to the environment beyond the runner's own; `None` removes a variable.
    pub(crate) env: Vec<(String, Option<String>)>,
    pub(crate) timeout: Duration,
    pub(crate) memory_limit_bytes: Option<u64>,
}

impl CellSpec<'_> {
    pub(crate) fn command(&self) -> Vec<String> {
        render_command(self.runner, &self.vars)
    }

    /// Every change to the inherited environment, the later ones over the earlier.
    pub(crate) fn environment(&self) -> BTreeMap<String, Option<String>> {
        let own = render_env(self.runner, &self.vars);
        let own = own.into_iter().map(|(name, value)| (name, Some(value)));
        self.base_env.iter().cloned().chain(own).chain(self.env.iter().cloned()).collect()
    }

    /// What its result is held against.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            prompt_tokens: self.vars.prompt_tokens,
            max_tokens: self.vars.max_tokens,
            counts: self.runner.counts,
            may_stop: self.runner.may_stop,
        }
    }

    pub(crate) fn report_path(&self) -> PathBuf {
        self.root.join(&self.vars.report)
    }

    pub(crate) fn child(&self) -> ChildSpec {
        let command = self.command();
        let (program, args) = command.split_first().expect("a checked runner has a program");
        let mut child = ChildSpec::new(program_path(self.root, program), self.root);
        child.args = args.iter().map(Into::into).collect();
        child.env = self.environment().into_iter().collect();
        child.timeout = Some(self.timeout);
        child.memory_limit_bytes = self.memory_limit_bytes;
        child.signatures = Arc::clone(&self.runner.signatures);
        child.client = self.client();
        if child.client.is_some() {
            child.grace = SERVER_GRACE;
        }
        child
    }

    /// The same with a port for its server.
    pub(crate) fn with_port(&self, port: u16) -> CellSpec<'_> {
        let mut spec = self.clone();
        spec.vars.server.port = Some(port);
        spec
    }

    /// What is asked of the server that it starts, where it does.
    fn client(&self) -> Option<ClientPlan> {
        let server = self.runner.server.as_ref()?;
        Some(ClientPlan {
            server: server.clone(),
            port: self.vars.server.port?,
            model: server.model_name(&self.vars),
            prompt_tokens: self.vars.prompt_tokens,
            max_tokens: self.vars.max_tokens,
            warmup_tokens: self.vars.warmup_tokens,
            concurrency: self.vars.concurrency(),
            timeout: Some(self.timeout),
        })
    }
}

/// A path for the report of one launch, below `scratch`, that no launch had before: the report of
/// an earlier cell can never be taken for this one's.
pub(crate) fn report_path(root: &Path, scratch: &Path) -> String {
    static LAUNCHES: AtomicU64 = AtomicU64::new(0);
    let number = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let path = scratch.join(format!("cell-{number}.json"));
    path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned()
}

/// Where a runner's program lies: relative paths are meant from the workspace, names from `PATH`.
pub(crate) fn program_path(root: &Path, program: &str) -> PathBuf {
    if program.contains('/') { root.join(program) } else { program.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_launches_share_a_report() {
        let (root, scratch) = (Path::new("/w"), Path::new("/w/target/sweep/x"));
        let first = report_path(root, scratch);
        assert!(first.starts_with("target/sweep/x/cell-"), "{first}");
        assert_ne!(first, report_path(root, scratch));
    }

    #[test]
    fn programs_are_found_from_the_workspace_or_the_path() {
        assert_eq!(program_path(Path::new("/w"), "target/x"), Path::new("/w/target/x"));
        assert_eq!(program_path(Path::new("/w"), "/usr/x"), Path::new("/usr/x"));
        assert_eq!(program_path(Path::new("/w"), "llama-bench"), Path::new("llama-bench"));
    }
}
