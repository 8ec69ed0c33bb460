//! Holds the architecture invariants that a test can see in the tree (ARCHITECTURE.md).
//!
//! The rules are functions over paths and texts, so that each is also shown to find what it forbids.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms that features share, the lowest first: each may use those before it.
const SHARED_ROOMS: [&str; 6] = ["base", "sys", "stats", "oom_record", "model", "cell"];

/// What code that touches the world has in it: files, processes, the environment, the clock, waits.
/// All are looked for with blanks removed.
const WORLD: &[&str] = &[
    "std::fs",
    "std::process",
    "std::net",
    "std::env",
    "std::io::std",
    "fs::read",
    "fs::write",
    "fs::copy",
    "fs::create_dir",
    "fs::remove",
    "fs::rename",
    "File::open",
    "File::create",
    "OpenOptions",
    "Command::new",
    "Instant::now",
    "SystemTime::now",
    "Utc::now",
    "Local::now",
    "thread::sleep",
    "thread::spawn",
    "thread::Builder",
    "tempfile::",
    "xshell",
    "duct::",
    "libc::",
    "rustix::",
    "nvml_wrapper",
    "glob::glob",
    ".exists()",
    ".try_exists()",
    ".is_file()",
    ".is_dir()",
    ".is_symlink()",
    ".canonicalize()",
    ".metadata()",
    ".symlink_metadata()",
    ".read_dir()",
    ".read_link()",
];

/// What is in the list above and touches nothing.
const HARMLESS: &[&str] = &["std::env::consts", "std::process::ExitCode", "libc::SIG"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every `.rs` file below `dir`, as a path from it, with its text.
fn sources(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(dir).unwrap().to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty(), "nothing to check in {}", dir.display());
    found.sort();
    found
}

/// The program's code without tests, comments and blanks, a line of the file for each item.
fn code(path: &Path, text: &str) -> Vec<String> {
    if path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests") {
        return Vec::new();
    }
    let end = text
        .find("#[cfg(test)]\nmod tests {")
        .or_else(|| text.find("#[cfg(test)]\npub(crate) mod tests {"));
    text[..end.unwrap_or(text.len())]
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""))
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// Whether a file may touch the world: `run.rs` and `file.rs` with what lies below them, `read/`,
/// everything in `sys`, and `main.rs`.
fn may_touch_the_world(path: &Path) -> bool {
    let names: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    let is_world = |name: &str| matches!(name.trim_end_matches(".rs"), "run" | "file" | "read");
    names[0].trim_end_matches(".rs") == "sys"
        || path == Path::new("main.rs")
        || names.iter().any(|name| is_world(name))
}

/// Pure files that touch the world.
fn find_impure(sources: &[(PathBuf, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| !may_touch_the_world(path)) {
        for (number, line) in code(path, text).into_iter().enumerate() {
            let line = HARMLESS.iter().fold(line, |line, harmless| line.replace(harmless, ""));
            if let Some(what) = WORLD.iter().find(|what| line.contains(**what)) {
                found.push(format!("{}:{}: `{what}`", path.display(), number + 1));
            }
        }
    }
    found
}

/// The room that a file belongs to.
fn room_of(path: &Path) -> String {
    path.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// Uses of one room by another that the order of rooms forbids: a feature is used by nobody but
/// `main` and `cli`, and a shared room by those above it.
fn find_forbidden_uses(sources: &[(PathBuf, String)]) -> Vec<String> {
    let level = |room: &str| SHARED_ROOMS.iter().position(|shared| *shared == room);
    let mut found = Vec::new();
    for (path, text) in sources {
        let room = room_of(path);
        if room == "main" || room == "cli" {
            continue;
        }
        let joined = code(path, text).concat();
        let used: BTreeSet<&str> = joined
            .match_indices("crate::")
            .map(|(at, word)| &joined[at + word.len()..])
            .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
            .filter(|used| *used != room)
            .collect();
        for used in used {
            let allowed = match (level(&room), level(used)) {
                (None, Some(_)) => true,
                (Some(own), Some(other)) => other < own,
                (_, None) => false,
            };
            if !allowed {
                found.push(format!("{}: `{room}` uses `{used}`", path.display()));
            }
        }
    }
    found
}

fn sample(path: &str, text: &str) -> Vec<(PathBuf, String)> {
    vec![(path.into(), text.to_owned())]
}

#[test]
fn only_run_file_read_and_sys_touch_the_world() {
    for source in ["xtask/src", "lockcheck/src"] {
        let found = find_impure(&sources(&root().join(source)));
        assert!(found.is_empty(), "pure files of {source} that touch the world: {found:#?}");
    }
}

#[test]
fn a_pure_file_that_reads_the_clock_or_a_file_is_found() {
    for text in [
        "fn f() -> Instant {\n    Instant::now()\n}\n",
        "use std::fs;\n",
        "fn f(p: &Path) -> bool { p\n    .exists() }\n",
        "fn f(p: &Path) { p.canonicalize(); }",
        "fn f() { let sh = xshell::Shell::new(); }",
        "fn f() { create_dir_all; std::fs::create_dir(p) }",
        "fn f() { std::fs::copy(a, b); }",
    ] {
        assert_eq!(find_impure(&sample("sweep/eta.rs", text)).len(), 1, "{text}");
        for world in ["sweep/run.rs", "sweep/run/output.rs", "sys/clock.rs", "model/store/file.rs"]
        {
            assert!(find_impure(&sample(world, text)).is_empty(), "{world}");
        }
        let in_test = format!("fn g() {{}}\n\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert!(find_impure(&sample("sweep/eta.rs", &in_test)).is_empty());
    }
}

#[test]
fn features_do_not_use_each_other_and_shared_rooms_keep_their_order() {
    let found = find_forbidden_uses(&sources(&root().join("xtask/src")));
    assert!(found.is_empty(), "forbidden uses:\n{}", found.join("\n"));
}

#[test]
fn a_feature_that_uses_another_is_found() {
    let found = find_forbidden_uses(&sample("ab/config.rs", "use crate::prereg::expr::Number;\n"));
    assert_eq!(found, ["ab/config.rs: `ab` uses `prereg`"]);
    let found = find_forbidden_uses(&sample("cell.rs", "fn f(x: crate::sweep::Args) {}\n"));
    assert_eq!(found, ["cell.rs: `cell` uses `sweep`"]);
    let found = find_forbidden_uses(&sample("base/flag.rs", "use crate::sys::env;\n"));
    assert_eq!(found, ["base/flag.rs: `base` uses `sys`"]);
    let fine = "use crate::cell::journal;\nuse crate::base::flag;\nuse crate::ab::config;\n";
    assert!(find_forbidden_uses(&sample("ab/run.rs", fine)).is_empty());
}

/// What starts children or loads NVML, and the only files and rooms that may: measured children, all
/// others, the CI script, and the child that asks the driver. A cell is started in `cell` alone; the
/// self-test's checkout runs this program with its memory peak.
const STARTERS: &[(&str, &[&str])] = &[
    ("run_child", &["cell", "selftest/checkout/run.rs"]),
    ("Command::new", &["cell/child/run.rs", "selftest/scripted/run.rs", "selftest/server/run.rs"]),
    (
        "process::Command",
        &[
            "cell/child/run.rs",
            "selftest/scripted/run.rs",
            "selftest/server/run.rs",
            "sys/command.rs",
        ],
    ),
    ("duct::", &["sys/command.rs"]),
    ("xshell", &["ci/run.rs"]),
    ("nvml_wrapper", &["sys/driver/nvml.rs"]),
];

/// Files that start children, or load the driver's library, where others do it for them.
fn find_strange_starters(sources: &[(PathBuf, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources {
        let code = code(path, text).concat();
        for (what, allowed) in STARTERS {
            if code.contains(what) && !allowed.iter().any(|place| path.starts_with(place)) {
                found.push(format!("{}: `{what}`", path.display()));
            }
        }
    }
    found
}

#[test]
fn children_are_started_in_few_places() {
    let found = find_strange_starters(&sources(&root().join("xtask/src")));
    assert!(found.is_empty(), "children that are started elsewhere:\n{}", found.join("\n"));
    let by_hand = sample("gpu/run.rs", "fn f() { std::process::Command::new(\"git\"); }");
    let found = find_strange_starters(&by_hand);
    assert_eq!(found, ["gpu/run.rs: `Command::new`", "gpu/run.rs: `process::Command`"]);
    assert!(find_strange_starters(&sample("sys/command.rs", "duct::cmd(a, b)")).is_empty());
}

#[test]
fn a_cell_that_is_started_outside_its_room_is_found() {
    for text in [
        "fn f(executor: &mut impl Executor) { executor.run_child(&spec)?; }",
        "use crate::cell::child::run::run_child;",
        "fn f() { crate::cell::child::run\n    ::run_child(&spec, interrupt) }",
    ] {
        let found = find_strange_starters(&sample("ab/run/measure.rs", text));
        assert_eq!(found, ["ab/run/measure.rs: `run_child`"], "{text}");
        assert!(find_strange_starters(&sample("cell/session.rs", text)).is_empty());
    }
}

/// Names of all packages that `start` reaches through `Cargo.lock`.
fn reachable(lock: &str, start: &str) -> BTreeSet<String> {
    let lock: toml::Table = lock.parse().unwrap();
    let mut edges: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap().to_owned();
        let dependencies = package.get("dependencies").and_then(|list| list.as_array());
        edges.entry(name).or_default().extend(
            dependencies
                .into_iter()
                .flatten()
                .map(|entry| entry.as_str().unwrap().split(' ').next().unwrap().to_owned()),
        );
    }
    let mut seen = BTreeSet::new();
    let mut queue = vec![start.to_owned()];
    while let Some(name) = queue.pop() {
        if seen.insert(name.clone()) {
            queue.extend(edges.get(&name).into_iter().flatten().cloned());
        }
    }
    seen
}

#[test]
fn xtask_reaches_neither_the_engine_nor_candle() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let from_xtask = reachable(&lock, "xtask");
    assert!(from_xtask.contains("formats"), "the walk is broken: {from_xtask:?}");
    let forbidden: Vec<_> =
        from_xtask.iter().filter(|name| *name == "engine" || name.starts_with("candle")).collect();
    assert!(forbidden.is_empty(), "xtask must not depend on {forbidden:?}");
    assert!(reachable(&lock, "engine").contains("candle-core"), "the walk is broken");
}

#[test]
fn lockcheck_reaches_neither_the_engine_nor_candle_nor_xtask() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let from_lockcheck = reachable(&lock, "lockcheck");
    assert!(from_lockcheck.contains("toml"), "the walk is broken: {from_lockcheck:?}");
    let forbidden: Vec<_> = from_lockcheck
        .iter()
        .filter(|name| *name == "engine" || *name == "xtask" || name.starts_with("candle"))
        .collect();
    assert!(forbidden.is_empty(), "lockcheck must not depend on {forbidden:?}");
}

#[test]
fn the_allocator_core_knows_no_cuda_and_no_candle() {
    for (path, text) in sources(&root().join("engine/src/alloc")) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let names_one = ["candle_", "cudarc", "crate::cuda", "crate::model", "crate::decode"]
                .iter()
                .any(|name| code.contains(name));
            assert!(!names_one, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

#[test]
fn no_flag_is_read_by_presence() {
    for folder in ["engine/src", "xtask/src"] {
        for (path, text) in sources(&root().join(folder)) {
            let joined: String = text.split_whitespace().collect();
            for call in ["env::var(", "env::var_os("] {
                for (at, _) in joined.match_indices(call) {
                    let rest = &joined[at + call.len()..];
                    let after = rest.split_once(')').map_or("", |(_, after)| after);
                    let by_presence = [".is_some()", ".is_ok()", ".is_none()", ".is_err()"]
                        .iter()
                        .any(|test| after.starts_with(test));
                    assert!(!by_presence, "{}: {}", path.display(), &after[..after.len().min(60)]);
                }
            }
        }
    }
}
