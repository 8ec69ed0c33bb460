//! The document: the template, what the linter refuses, and the ladders that are shipped.

use std::path::Path;

use testkit::{Command, Ran};

use super::script::Figures;
use super::{Lab, SEED};
use crate::XTASK;

#[test]
fn the_template_is_a_ladder_that_checks() {
    let lab = Lab::new(SEED, &Figures::default());
    let output = lab.prereg(&["new", "fresh"]).exits_with(0);
    assert_eq!(output.stdout, "bench-configs/prereg/fresh.toml\n");
    // It is not overwritten.
    lab.prereg(&["new", "fresh"]).exits_with(2);
    lab.edit("bench-configs/prereg/fresh.toml", "decode-bench", "scripted");
    let output = lab.prereg(&["check", "fresh"]).exits_with(1);
    // The scripted runner writes no cell report, which the linter sees.
    assert!(output.stdout.contains("guard-without-metric:memory"), "{}", output.stdout);
}

#[test]
fn a_document_with_an_unknown_key_names_the_nearest() {
    let text = SEED.replacen("ceiling_min", "cieling_min", 1);
    let lab = Lab::new(&text, &Figures::default());
    let output = lab.prereg(&["check", "seed"]).exits_with(2);
    assert!(output.stderr.contains("did you mean `ceiling_min`?"), "{}", output.stderr);
}

/// In the workspace that holds this test.
fn own(args: &[&str]) -> Ran {
    Command::new(XTASK, own_root()).args(["prereg"]).args(args).run()
}

fn own_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The names of the folders in a folder, none where there is none.
fn folders(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn the_shipped_ladders_have_no_finding() {
    for name in ["alloc-cache", "prefill-chunk"] {
        assert_eq!(own(&["check", name]).exits_with(0).stdout, "", "{name}");
    }
}

#[test]
fn committed_reports_are_what_their_samples_say() {
    let ladders = own_root().join("benchmarks/prereg");
    for name in folders(&ladders) {
        for date in folders(&ladders.join(&name)) {
            own(&["report", &name, "--run", &date, "--check"]).exits_with(0);
        }
    }
}
