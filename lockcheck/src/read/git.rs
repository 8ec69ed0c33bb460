//! Asks a local git clone about commits, and the workspace's own repository for an older lock. It
//! runs git, which must not fetch; what the answers mean is `lock::ancestry`'s.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use xshell::{Cmd, Shell, cmd};

use crate::diagnostic::HintExt as _;
use crate::lock::ancestry::{CommitFacts, PinFact};
use crate::lock::source::{GitReference, is_full_commit, is_hex_rev};

/// A git repository on disk.
#[derive(Debug)]
pub(crate) struct GitRepo {
    shell: Shell,
    dir: PathBuf,
}

impl GitRepo {
    /// Opens the repository that a folder is in.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let repo = Self { shell: Shell::new()?, dir: dir.to_owned() };
        let shell = &repo.shell;
        let found = repo.answer(cmd!(shell, "git rev-parse --git-dir"))?;
        if found.is_none() {
            return Err(anyhow::anyhow!("`{}` is no git repository", dir.display()))
                .hint("clone the repository there, or give the folder of a clone");
        }
        Ok(repo)
    }

    /// The text of a file beside the folder at a revision.
    pub(crate) fn read_file_at(&self, rev: &str, file: &str) -> anyhow::Result<String> {
        let commit = self
            .resolve(rev)?
            .with_context(|| format!("`{}` has no revision `{rev}`", self.dir.display()))?;
        let shell = &self.shell;
        let object = format!("{commit}:./{file}");
        self.answer(cmd!(shell, "git show --end-of-options {object}"))?.with_context(|| {
            format!("revision `{rev}` has no `{file}` in `{}`", self.dir.display())
        })
    }

    /// What the repository says of two commits.
    pub(crate) fn read_commit_facts(&self, old: &str, new: &str) -> anyhow::Result<CommitFacts> {
        let (old, new) = (self.resolve(old)?, self.resolve(new)?);
        let (mut old_leads_to_new, mut new_leads_to_old) = (false, false);
        if let (Some(old), Some(new)) = (&old, &new) {
            old_leads_to_new = self.is_ancestor(old, new)?;
            new_leads_to_old = self.is_ancestor(new, old)?;
        }
        Ok(CommitFacts { old, new, old_leads_to_new, new_leads_to_old })
    }

    /// What the repository says of a reference that is locked at a commit.
    pub(crate) fn read_pin_fact(
        &self,
        reference: &GitReference,
        commit: &str,
    ) -> anyhow::Result<PinFact> {
        if self.resolve(commit)?.is_none() {
            return Ok(PinFact::CommitMissing);
        }
        match reference {
            GitReference::Tag(tag) => {
                Ok(PinFact::TagAt(self.resolve(&format!("refs/tags/{tag}"))?))
            }
            GitReference::Branch(branch) => self.read_branch_fact(branch, commit),
            GitReference::Rev(rev) if is_hex_rev(rev) && !is_full_commit(rev) => {
                self.count_commits(rev).map(PinFact::Candidates)
            }
            GitReference::Rev(_) | GitReference::DefaultBranch => Ok(PinFact::Settled),
        }
    }

    /// The whole id of a commit, where the repository has it.
    fn resolve(&self, rev: &str) -> anyhow::Result<Option<String>> {
        let shell = &self.shell;
        let rev = format!("{rev}^{{commit}}");
        self.answer(cmd!(shell, "git rev-parse --verify --quiet --end-of-options {rev}"))
    }

    fn is_ancestor(&self, old: &str, new: &str) -> anyhow::Result<bool> {
        let shell = &self.shell;
        let asked = cmd!(shell, "git merge-base --is-ancestor {old} {new}");
        Ok(self.answer(asked)?.is_some())
    }

    /// A branch of the clone itself or of any of its remotes.
    fn read_branch_fact(&self, branch: &str, commit: &str) -> anyhow::Result<PinFact> {
        let shell = &self.shell;
        let refs = self
            .answer(cmd!(shell, "git for-each-ref --format=%(refname) refs/heads refs/remotes"))?
            .unwrap_or_default();
        let is_branch = |name: &&str| {
            let remote = name.strip_prefix("refs/remotes/").and_then(|name| name.split_once('/'));
            name.strip_prefix("refs/heads/") == Some(branch)
                || remote.is_some_and(|(_, name)| name == branch)
        };
        let mut on_branch = None;
        for name in refs.lines().filter(is_branch) {
            let holds = self.is_ancestor(commit, name)?;
            on_branch = Some(on_branch.unwrap_or(false) || holds);
        }
        Ok(PinFact::OnBranch(on_branch))
    }

    /// How many commits an abbreviation may mean.
    fn count_commits(&self, prefix: &str) -> anyhow::Result<usize> {
        let shell = &self.shell;
        let disambiguate = format!("--disambiguate={prefix}");
        let objects = self.answer(cmd!(shell, "git rev-parse {disambiguate}"))?.unwrap_or_default();
        let mut commits = 0;
        for object in objects.lines() {
            let kind = self.answer(cmd!(shell, "git cat-file -t {object}"))?;
            commits += usize::from(kind.as_deref() == Some("commit"));
        }
        Ok(commits)
    }

    /// Runs git in the folder: its output, or nothing where it says no.
    fn answer(&self, command: Cmd<'_>) -> anyhow::Result<Option<String>> {
        let _in_dir = self.shell.push_dir(&self.dir);
        // A partial clone must not fetch what it lacks, and a hook's environment must not lead to
        // another repository.
        let command = command
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .env_remove("GIT_INDEX_FILE")
            .quiet()
            .ignore_stderr()
            .ignore_status();
        let output = command.output().context("cannot run git").hint("is git installed?")?;
        if !output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8(output.stdout).context("git answered with no UTF-8")?;
        Ok(Some(text.trim_end_matches('\n').to_owned()))
    }
}
