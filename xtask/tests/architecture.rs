//! Holds the architecture invariants that a test can see in the tree (ARCHITECTURE.md).
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every `.rs` file at or below `dir`, with its text.
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
                found.push((path, text));
            }
        }
    }
    found
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
    assert!(from_xtask.contains("cell-report"), "the walk is broken: {from_xtask:?}");
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
    let is_forbidden =
        |name: &&String| ["engine", "xtask"].contains(&name.as_str()) || name.starts_with("candle");
    let forbidden: Vec<_> = from_lockcheck.iter().filter(is_forbidden).collect();
    assert!(forbidden.is_empty(), "lockcheck must not depend on {forbidden:?}");
}

#[test]
fn lockcheck_touches_the_world_in_read_alone() {
    let source = root().join("lockcheck/src");
    for (path, text) in sources(&source) {
        let place = path.strip_prefix(&source).unwrap();
        if place.starts_with("read") || place.ends_with("tests.rs") {
            continue;
        }
        let production = text.split("#[cfg(test)]").next().unwrap();
        for (number, line) in production.lines().enumerate() {
            let code = line.split("//").next().unwrap();
            let touches =
                ["std::fs", "std::env", "process::Command", "duct", ".exists()", "is_file()"]
                    .iter()
                    .any(|call| code.contains(call));
            assert!(!touches, "{}:{}: {line}", path.display(), number + 1);
        }
    }
}

#[test]
fn only_the_edge_touches_processes_files_environment_and_clock() {
    let source = root().join("xtask/src");
    let lifted: Vec<_> = sources(&source)
        .into_iter()
        .filter(|(_, text)| text.contains("clippy::disallowed_methods"))
        .map(|(path, _)| path.strip_prefix(&source).unwrap().to_owned())
        .filter(|path| !path.starts_with("edge") && path != Path::new("edge.rs"))
        .filter(|path| !path.starts_with("bin") && !path.ends_with("tests.rs"))
        .collect();
    assert!(lifted.is_empty(), "only xtask/src/edge may lift the lint, not {lifted:?}");
}

#[test]
fn the_allocator_core_knows_no_cuda_and_no_candle() {
    let core = root().join("engine/src/alloc");
    for (path, text) in sources(&core) {
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
