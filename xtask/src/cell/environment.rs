//! The environment that measured children inherit: what of it is recorded, and what of it is known to
//! change speed or memory. It is told the variables and reads none; docs/FORMATS.md has its lists.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::base::hash::sha256_hex;
use crate::base::scrub::Scrub;

/// Variables that say who is where and in which terminal, and nothing about the work.
const SESSION_NAMES: &[&str] = &[
    "_",
    "ARC_SHARED_DATA",
    "COLORTERM",
    "COLUMNS",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
    "EDITOR",
    "HOST",
    "HOSTNAME",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "LINES",
    "LOGNAME",
    "LS_COLORS",
    "MAIL",
    "OLDPWD",
    "PAGER",
    "PS1",
    "PWD",
    "RUST_RECURSION_COUNT",
    "SHELL",
    "SHLVL",
    "STY",
    "TERM",
    "TMUX",
    "TMUX_PANE",
    "USER",
    "USERNAME",
    "VISUAL",
    "WAYLAND_DISPLAY",
    "WINDOWID",
];
/// The same by how they begin: also what cargo and rustup tell the programs that they start, and what
/// this workflow asks of itself.
const SESSION_PREFIXES: &[&str] = &[
    "BENCH_",
    "CARGO",
    "GPG_",
    "INSTA_",
    "MLXCEL_BENCH_",
    "RUSTUP_",
    "SSH_",
    "SUDO_",
    "TERM_",
    "VSCODE_",
    "XDG_",
];
/// Parts of names whose values nobody may read.
const SECRET_PARTS: &[&str] = &[
    "AUTH",
    "COOKIE",
    "CREDENTIAL",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "SECRET",
    "TOKEN",
    "_KEY",
];
/// How switches begin that change what engines, thread pools, BLAS, CUDA or malloc do.
const SWITCH_PREFIXES: &[&str] = &[
    "ARC_",
    "BLIS_",
    "CANDLE_",
    "CUBLAS_",
    "CUDA_",
    "GGML_",
    "GOMP_",
    "GOTO_",
    "KMP_",
    "LLAMA_",
    "MALLOC_",
    "MIMALLOC_",
    "MKL_",
    "NCCL_",
    "NUMEXPR_",
    "NVIDIA_",
    "OMP_",
    "OPENBLAS_",
    "RAYON_",
    "TCMALLOC_",
    "VECLIB_",
    "_RJEM_MALLOC_",
];
const SWITCH_NAMES: &[&str] =
    &["GLIBC_TUNABLES", "LD_AUDIT", "LD_BIND_NOW", "LD_PRELOAD", "RUST_MIN_STACK"];
/// What an installation says of itself under those prefixes.
const INSTALLED: &[&str] = &[
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VERSION",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_PRODUCT_NAME",
    "NVIDIA_REQUIRE_CUDA",
];
/// Variables that may hold a name that is kept out of tracked files.
const NAMES_OF_PEOPLE: &[&str] = &["HOST", "HOSTNAME", "LOGNAME", "USER", "USERNAME"];
/// What stands for a value that is not shown.
const WITHHELD: &str = "(not shown)";

/// What the children of a run inherit, besides what the runner and the legs set or remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Inherited {
    /// SHA-256 over every variable but those of the session, in lower-case hex.
    pub(crate) sha256: String,
    /// The same variables by name. Secrets, and values with the user's or the host's name in them, are
    /// `(not shown)`.
    pub(crate) variables: BTreeMap<String, String>,
}

impl Inherited {
    /// What is left of the variables of a shell once those in `changed` are set or removed.
    pub(crate) fn of(shell: &BTreeMap<String, String>, changed: &BTreeSet<String>) -> Inherited {
        let people: Vec<&str> = NAMES_OF_PEOPLE
            .iter()
            .filter_map(|name| shell.get(*name))
            .map(String::as_str)
            // Shorter words, and the name that every container has, are parts of ordinary values.
            .filter(|word| word.len() >= 3 && *word != "root" && *word != "localhost")
            .collect();
        let mut whole = String::new();
        let mut variables = BTreeMap::new();
        for (name, value) in shell {
            if is_of_session(name) || changed.contains(name) {
                continue;
            }
            whole += &format!("{name}={value}\0");
            let is_private = is_secret(name) || people.iter().any(|word| value.contains(word));
            let shown = if is_private { WITHHELD.to_owned() } else { value.clone() };
            variables.insert(name.clone(), shown);
        }
        Inherited { sha256: sha256_hex(whole.as_bytes()), variables }
    }

    /// The same with this machine's paths taken out of the values, as journals have them.
    pub(crate) fn scrubbed(&self, scrub: &Scrub) -> Inherited {
        let variables = self.variables.iter();
        Inherited {
            sha256: self.sha256.clone(),
            variables: variables.map(|(name, value)| (name.clone(), scrub.text(value))).collect(),
        }
    }

    /// The variables that are known to change speed or memory, as `NAME=VALUE`.
    pub(crate) fn switches(&self) -> Vec<String> {
        let known = self.variables.iter().filter(|(name, _)| is_switch(name));
        known.map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// What differs from `now`, in words; empty where nothing does.
    pub(crate) fn changes(&self, now: &Inherited) -> Vec<String> {
        if self.sha256 == now.sha256 {
            return Vec::new();
        }
        let names: BTreeSet<&String> = self.variables.keys().chain(now.variables.keys()).collect();
        let of = |value: Option<&String>| {
            value.map_or("not set".to_owned(), |value| format!("`{value}`"))
        };
        let mut changes: Vec<String> = names
            .into_iter()
            .map(|name| (name, self.variables.get(name), now.variables.get(name)))
            .filter(|(_, then, now)| then != now)
            .map(|(name, then, now)| format!("{name} was {} and is now {}", of(then), of(now)))
            .collect();
        if changes.is_empty() {
            changes.push("a variable whose value is not shown has another".to_owned());
        }
        changes
    }
}

fn is_of_session(name: &str) -> bool {
    SESSION_NAMES.contains(&name)
        || SESSION_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.is_empty()
}

fn is_secret(name: &str) -> bool {
    let upper = name.to_uppercase();
    SECRET_PARTS.iter().any(|part| upper.contains(part))
}

fn is_switch(name: &str) -> bool {
    let begins = SWITCH_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (begins || SWITCH_NAMES.contains(&name)) && !INSTALLED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited(variables: &[(&str, &str)]) -> Inherited {
        let own = |text: &&str| (*text).to_owned();
        let shell = variables.iter().map(|(name, value)| (own(name), own(value))).collect();
        Inherited::of(&shell, &BTreeSet::from(["FEATURE".to_owned()]))
    }

    #[test]
    fn what_a_session_has_and_what_legs_change_is_left_out() {
        let plain = inherited(&[("PATH", "/bin")]);
        let other = [
            ("PATH", "/bin"),
            ("SHLVL", "3"),
            ("SSH_TTY", "/dev/pts/1"),
            ("CARGO_PKG_NAME", "xtask"),
            ("FEATURE", "1"),
        ];
        assert_eq!(plain, inherited(&other));
        assert_eq!(plain.variables.keys().collect::<Vec<_>>(), ["PATH"]);
        assert_eq!(plain.sha256, sha256_hex(b"PATH=/bin\0"));
    }

    #[test]
    fn switches_are_known_by_name_and_installations_are_none() {
        let shell = [
            ("ARC_CANDLE_ALLOC_CACHE", "off"),
            ("CUDA_HOME", "/usr/local/cuda"),
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("LD_PRELOAD", "libjemalloc.so"),
            ("MALLOC_ARENA_MAX", "1"),
            ("OMP_NUM_THREADS", "1"),
            ("OPENBLAS_NUM_THREADS", "2"),
            ("PATH", "/bin"),
            ("RAYON_NUM_THREADS", "1"),
        ];
        assert_eq!(
            inherited(&shell).switches().join(" "),
            "ARC_CANDLE_ALLOC_CACHE=off CUDA_VISIBLE_DEVICES=1 LD_PRELOAD=libjemalloc.so \
             MALLOC_ARENA_MAX=1 OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=2 RAYON_NUM_THREADS=1"
        );
    }

    #[test]
    fn secrets_and_names_of_people_are_in_the_hash_alone() {
        let with = |token| {
            inherited(&[("HF_TOKEN", token), ("USER", "somebody"), ("CACHE", "/x/somebody/c")])
        };
        let (then, now) = (with("one"), with("two"));
        assert!(then.variables.values().all(|value| value == WITHHELD), "{then:?}");
        assert_eq!(then.changes(&now), ["a variable whose value is not shown has another"]);
    }

    #[test]
    fn changes_are_named_with_both_values() {
        let then = inherited(&[("TG1", "0"), ("LANG", "C"), ("SAME", "1")]);
        let now = inherited(&[("TG1", "1"), ("RAYON_NUM_THREADS", "2"), ("SAME", "1")]);
        assert_eq!(then.changes(&then), [""; 0]);
        assert_eq!(
            then.changes(&now),
            [
                "LANG was `C` and is now not set",
                "RAYON_NUM_THREADS was not set and is now `2`",
                "TG1 was `0` and is now `1`"
            ]
        );
    }
}
