//! Rungs of other revisions: each is built in a tree of its own.

use super::script::Figures;
use super::{DOCUMENT, Lab, SEED};

/// A workspace with a program of its own, which the ladder builds.
fn built_workspace() -> Lab {
    let document = r#"
question = "Does the change make a step at least 10 % faster?"
[protocol]
runner = "built"
model = "model.toml"
prompt_tokens = 8
steps = 4
repeats = 2
order = "interleaved"
seed = 1
ceiling_min = 10
launch_estimate_min = 0.01
[[metrics]]
id = "step_ms"
from = "report"
field = "timing.decode_step_ms"
[[oracles]]
id = "same_tokens"
kind = "tokens-equal"
[[items]]
id = "fast"
rev = "fast"
oracles = ["same_tokens"]
[[rungs]]
id = "A"
[[rungs]]
id = "B"
items = ["fast"]
[[reads]]
id = "gain"
role = "primary"
metric = "step_ms"
value = "(A - B) / A"
[[rules]]
id = "land"
when = "gain >= 10 %"
then = "land-all"
[[rules]]
id = "park"
when = "always"
then = "park"
"#;
    let lab = Lab::new(SEED, &Figures::default());
    lab.write(DOCUMENT, document);
    lab.write(
        "bench-configs/runners/built.toml",
        "result = \"report\"\ncommand = [\"{target_dir}/release/step\", \"{model}\", \
         \"{prompt_tokens}\", \"{report}\"]\n[build]\npackage = \"step\"\nbin = \"step\"\n",
    );
    lab.write("Cargo.toml", "[workspace]\nmembers = [\"step\"]\nresolver = \"2\"\n");
    lab.write(".gitignore", "/target\n/benchmarks/.sweep.lock\n");
    lab.write(
        "step/Cargo.toml",
        "[package]\nname = \"step\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[[bin]]\nname = \
         \"step\"\npath = \"main.rs\"\n",
    );
    lab.write("step/main.rs", step_program(10));
    lab.write("Cargo.lock", "version = 3\n\n[[package]]\nname = \"step\"\nversion = \"0.1.0\"\n");
    lab.commit("x");
    lab
}

fn step_program(step_ms: u64) -> String {
    format!(
        "fn main() {{\n    let args: Vec<String> = std::env::args().collect();\n    let text = \
         format!(\"{{{{\\\"schema\\\":1,\\\"prompt\\\":{{{{\\\"target_tokens\\\":{{}}}}}},\\\"timing\\\":\
         {{{{\\\"decode_step_ms\\\":[{step_ms},{step_ms},{step_ms}]}}}},\\\"output\\\":\
         {{{{\\\"token_hash\\\":\\\"ff\\\"}}}}}}}}\", args[2]);\n    std::fs::write(&args[3], \
         text).unwrap();\n}}\n"
    )
}

#[test]
fn a_revision_is_built_in_a_tree_of_its_own_and_the_users_stays_as_it_is() {
    let lab = built_workspace();
    lab.git(&["branch", "--quiet", "fast"]);
    lab.git(&["checkout", "--quiet", "fast"]);
    lab.write("step/main.rs", step_program(8));
    lab.commit("x");
    lab.git(&["checkout", "--quiet", "-"]);
    lab.freeze();
    let before = lab.git(&["rev-parse", "HEAD"]);
    lab.prereg(&["run", "seed"]).exits_with(0);
    let result = lab.result();
    assert_eq!(result["rule"], "land");
    assert_eq!(result["rounds"][0]["figures"]["step_ms"]["B"]["value"], 8.0);
    assert_eq!(lab.git(&["rev-parse", "HEAD"]), before);
    assert_eq!(lab.git(&["status", "--porcelain", "--", "step"]), "");
    assert_eq!(lab.git(&["worktree", "list"]).lines().count(), 1, "no tree is left behind");

    // The branch moves: the revision is no longer what was frozen.
    lab.git(&["checkout", "--quiet", "fast"]);
    lab.write("step/main.rs", step_program(7));
    lab.commit("x");
    lab.git(&["checkout", "--quiet", "-"]);
    let output = lab.prereg(&["run", "seed", "--again", "x"]).exits_with(2);
    assert!(output.stderr.contains("revision `fast` has moved since"), "{}", output.stderr);
}

#[test]
fn changed_code_of_a_base_rung_is_refused_committed_or_not() {
    let lab = built_workspace();
    lab.git(&["branch", "--quiet", "fast"]);
    lab.freeze();
    lab.write("step/main.rs", step_program(5));
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    assert!(output.stderr.contains("not committed: step/main.rs"), "{}", output.stderr);
    lab.commit("x");
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    let told = output.stderr;
    assert!(
        told.contains("the code that the rungs run differs from what was frozen at commit")
            && told.contains(": `step/main.rs`\n"),
        "{told}"
    );
}
