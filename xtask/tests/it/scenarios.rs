//! The scenarios that need no engine, each over the real binary. `cargo xtask scenarios` runs them
//! all, the one with the real engine included.

use testkit::{Command, Ran};

use crate::XTASK;

fn scenarios(args: &[&str]) -> Ran {
    Command::new(XTASK, env!("CARGO_MANIFEST_DIR")).args(["scenarios"]).args(args).run()
}

fn prove(name: &str) {
    let ran = scenarios(&[name]).exits_with(0);
    assert!(ran.stdout.starts_with(&format!("ok      {name}")), "{ran}");
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
    let stdout = scenarios(&["--list"]).stdout;
    let names: Vec<&str> =
        stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, [PROVED, &["real-oom"]].concat());
}

#[test]
fn an_unknown_scenario_is_refused() {
    let ran = scenarios(&["oom"]).exits_with(2);
    assert!(ran.stderr.contains("no scenario `oom`"), "{ran}");
}
