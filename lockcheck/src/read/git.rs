//! Asks a local git clone about commits, and the workspace's own repository for an older lock. It
//! runs git, which must not fetch; what the answers mean is for [`crate::ancestry`].

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Error;
use crate::ancestry::{CommitFacts, PinFact};
use crate::parse::source::{GitReference, is_full_commit, is_hex_rev};

/// How long git may take for one answer. The slowest, an ancestry in a repository of a million
/// commits, takes seconds.
const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct GitRepo {
    dir: PathBuf,
}

impl GitRepo {
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let repo = Self { dir: dir.to_owned() };
        match repo.ask(&["rev-parse", "--git-dir"])? {
            Some(_) => Ok(repo),
            None => Err(Error::NotARepository { dir: repo.display() }),
        }
    }

    pub(crate) fn read_file_at(&self, rev: &str, file: &str) -> Result<String, Error> {
        let commit = self
            .resolve(rev)?
            .ok_or_else(|| Error::NoRevision { dir: self.display(), rev: rev.to_owned() })?;
        let object = format!("{commit}:./{file}");
        self.ask(&["show", "--end-of-options", &object])?.ok_or_else(|| Error::NoFileAtRevision {
            dir: self.display(),
            rev: rev.to_owned(),
            file: file.to_owned(),
        })
    }

    pub(crate) fn read_commit_facts(&self, old: &str, new: &str) -> Result<CommitFacts, Error> {
        let (old, new) = (self.resolve(old)?, self.resolve(new)?);
        let (mut old_leads_to_new, mut new_leads_to_old) = (false, false);
        if let (Some(old), Some(new)) = (&old, &new) {
            old_leads_to_new = self.is_ancestor(old, new)?;
            new_leads_to_old = self.is_ancestor(new, old)?;
        }
        Ok(CommitFacts { old, new, old_leads_to_new, new_leads_to_old })
    }

    pub(crate) fn read_pin_fact(
        &self,
        reference: &GitReference,
        commit: &str,
    ) -> Result<PinFact, Error> {
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

    fn display(&self) -> String {
        self.dir.display().to_string()
    }

    /// The whole id of a commit, where the repository has it.
    fn resolve(&self, rev: &str) -> Result<Option<String>, Error> {
        let rev = format!("{rev}^{{commit}}");
        self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", &rev])
    }

    fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, Error> {
        Ok(self.ask(&["merge-base", "--is-ancestor", old, new])?.is_some())
    }

    /// A branch of the clone itself or of any of its remotes.
    fn read_branch_fact(&self, branch: &str, commit: &str) -> Result<PinFact, Error> {
        let refs = self
            .ask(&["for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"])?
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
    fn count_commits(&self, prefix: &str) -> Result<usize, Error> {
        let disambiguate = format!("--disambiguate={prefix}");
        let objects = self.ask(&["rev-parse", &disambiguate])?.unwrap_or_default();
        let mut commits = 0;
        for object in objects.lines() {
            let kind = self.ask(&["cat-file", "-t", object])?;
            commits += usize::from(kind.as_deref() == Some("commit"));
        }
        Ok(commits)
    }

    /// Runs git in the folder: its output, or nothing where it says no.
    fn ask(&self, args: &[&str]) -> Result<Option<String>, Error> {
        // A partial clone must not fetch what it lacks, and a hook's environment must not lead to
        // another repository.
        let git = duct::cmd("git", args)
            .dir(&self.dir)
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .env_remove("GIT_INDEX_FILE");
        run(&git, &format!("git {}", args.join(" ")), DEADLINE)
    }
}

/// Runs a child to its end, or kills it at the deadline: its stdout, or nothing where it fails.
fn run(
    child: &duct::Expression,
    command: &str,
    deadline: Duration,
) -> Result<Option<String>, Error> {
    let failed = |source| Error::Git { command: command.to_owned(), source };
    let child = child.stdin_null().stdout_capture().stderr_capture().unchecked();
    let handle = child.start().map_err(failed)?;
    let Some(output) = handle.wait_timeout(deadline).map_err(failed)? else {
        handle.kill().map_err(failed)?;
        return Err(Error::GitTimeout { command: command.to_owned(), limit_s: deadline.as_secs() });
    };
    if !output.status.success() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&output.stdout)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Ok(Some(text.trim_end_matches('\n').to_owned()))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_answered_or_refused_and_killed_when_it_hangs() {
        let run = |script: &str, ms| {
            run(&duct::cmd("sh", ["-c", script]), "git x", Duration::from_millis(ms))
        };
        assert_eq!(run("echo yes; echo no >&2", 60_000).unwrap().as_deref(), Some("yes"));
        assert_eq!(run("echo yes; exit 1", 60_000).unwrap(), None);
        // Its own process becomes the sleep, so the kill reaches it.
        let error = run("exec sleep 600", 50).unwrap_err();
        assert!(matches!(error, Error::GitTimeout { .. }), "{error}");
        let missing = duct::cmd("no-such-program-at-all", [""; 0]);
        let error = super::run(&missing, "git x", DEADLINE).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("is git installed?"));
    }
}
