//! The scenarios that need no engine, each over the real binary. `cargo xtask scenarios` runs them
//! all, the one with the real engine included.

use std::process::{Command, Output};

fn scenarios(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("scenarios")
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap()
}

fn prove(name: &str) {
    let output = scenarios(&[name]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.starts_with(&format!("ok      {name}")), "{stdout}");
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                prove($name);
            }
        )*

        const PROVED: &[&str] = &[$($name),*];
    };
}

scenarios! {
    fake_oom: "fake-oom",
    unsorted: "unsorted",
    record: "record",
    isolation: "isolation",
    names: "names",
    signatures: "signatures",
    results: "results",
    flood: "flood",
    kill: "kill",
    lost: "lost",
    interrupt: "interrupt",
    full_disk: "full-disk",
    two_sweeps: "two-sweeps",
}

#[test]
fn every_scenario_is_proved_here_but_the_one_that_builds_the_engine() {
    let output = scenarios(&["--list"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> =
        stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, [PROVED, &["real-oom"]].concat());
}

#[test]
fn an_unknown_scenario_is_refused() {
    let output = scenarios(&["oom"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no scenario `oom`"));
}
