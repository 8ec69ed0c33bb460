//! What is frozen: whatever has changed since is refused, unless it was amended with a reason.

use testkit::assert_shown;

use super::script::Figures;
use super::{DOCUMENT, Lab, SEED, redacted};

#[test]
fn one_byte_after_freezing_is_refused_with_its_diff() {
    let lab = Lab::frozen(&Figures::default());
    lab.edit(DOCUMENT, "primary >= 5 % and", "primary >= 4 % and");
    lab.commit("x");
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    assert_shown!(redacted(&lab), output);
    assert!(lab.runs().is_empty(), "nothing was run");
}

#[test]
fn rules_in_another_order_are_refused() {
    let lab = Lab::frozen(&Figures::default());
    let text = lab.read(DOCUMENT);
    let at = |id: &str| text.find(&format!("[[rules]]\nid = \"{id}\"")).unwrap();
    let (land, below) = (at("land"), at("below_bar"));
    let unstable = at("unstable");
    let text =
        [&text[..land], &text[below..unstable], &text[land..below], &text[unstable..]].concat();
    lab.write(DOCUMENT, text);
    lab.commit("x");
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    assert!(output.stderr.contains("changed after version 1 was frozen"), "{}", output.stderr);
}

#[test]
fn a_swapped_model_runner_or_program_is_refused() {
    for (file, from, to, says) in [
        ("model.toml", "layers = 1", "layers = 2", "model `model.toml` changed after"),
        ("bench-configs/runners/scripted.toml", "\"--model\"", "\"--model\" ", "runner `scripted`"),
        ("script.toml", "2.495", "2.395", "differs from what was frozen at commit"),
    ] {
        let lab = Lab::frozen(&Figures::default());
        lab.edit(file, from, to);
        lab.commit("x");
        let output = lab.prereg(&["run", "seed"]).exits_with(2);
        assert!(output.stderr.contains(says), "{file}: {}", output.stderr);
        let hint = "cargo xtask prereg amend seed --why";
        assert!(output.stderr.contains(hint), "{file}: {}", output.stderr);
        let named = file != "script.toml" || output.stderr.contains(": `script.toml` was ");
        assert!(named, "{}", output.stderr);
    }
}

#[test]
fn what_is_not_committed_is_refused_and_a_commit_on_top_is_a_note() {
    let lab = Lab::new(SEED, &Figures::default());
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    assert!(output.stderr.contains("ladder `seed` is not frozen"), "{}", output.stderr);
    lab.prereg(&["freeze", "seed"]);
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    let told = output.stderr;
    assert!(told.contains("not committed: bench-configs/prereg/seed.frozen.json"), "{told}");
    lab.commit("x");
    lab.write("README.md", "prose\n");
    lab.commit("x");
    let output = lab.prereg(&["run", "seed"]).exits_with(1);
    let told = output.stderr;
    assert!(
        told.contains("note: commit ") && told.contains("the code that the rungs run is the same")
    );
}

#[test]
fn another_machine_is_a_note_at_the_start_and_a_refusal_in_the_middle() {
    let lab = Lab::frozen(&Figures::default());
    // As if it had been frozen elsewhere: the machine is rewritten, and the entry hashed anew.
    let frozen = lab.read("bench-configs/prereg/seed.frozen.json");
    let pins = &lab.read_json("bench-configs/prereg/seed.frozen.json")["versions"][0]["pins"];
    let machine = pins["machine"].as_str().unwrap();
    let elsewhere = rehash(&frozen.replace(machine, "NVIDIA_GB10_122GB"));
    lab.write("bench-configs/prereg/seed.frozen.json", &elsewhere);
    lab.commit("x");
    let output = lab.prereg(&["run", "seed"]).exits_with(1);
    assert!(output.stderr.contains("the ladder was frozen on NVIDIA_GB10_122GB"));
    let report = lab.report();
    assert!(report.contains("- frozen on NVIDIA_GB10_122GB and run on "), "{report}");

    // A run that began elsewhere is not gone on with here.
    let samples = lab.run_folder().join("samples.jsonl");
    let text = lab.read(&samples);
    let first: Vec<&str> = text.lines().take(3).collect();
    let text = first.join("\n").replace(machine, "NVIDIA_GB10_122GB") + "\n";
    lab.write(&samples, text);
    let output = lab.prereg(&["run", "seed", "--resume"]).exits_with(2);
    assert!(output.stderr.contains("rungs from two machines do not compare"), "{}", output.stderr);
}

/// The frozen file with its entry hashes made to fit what it says.
fn rehash(frozen: &str) -> String {
    use sha2::Digest as _;
    // Fields in their order: the hash is over the compact text of the entry with an empty hash.
    let hash_at = frozen.find("\"entry_sha256\": \"").unwrap() + "\"entry_sha256\": \"".len();
    let mut text = frozen.to_owned();
    text.replace_range(hash_at..hash_at + 64, "");
    let start = text.find("\"versions\": [").unwrap() + "\"versions\": [".len();
    let end = text.rfind(']').unwrap();
    let compact = compact_json(text[start..end].trim());
    let hash: String =
        sha2::Sha256::digest(compact.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    text.insert_str(hash_at, &hash);
    text
}

/// JSON without the white space between its tokens.
fn compact_json(text: &str) -> String {
    let (mut compact, mut in_string, mut escaped) = (String::new(), false, false);
    for c in text.chars() {
        if in_string || !c.is_whitespace() {
            compact.push(c);
        }
        in_string ^= c == '"' && !escaped;
        escaped = in_string && c == '\\' && !escaped;
    }
    compact
}

#[test]
fn an_amendment_is_named_with_whether_data_existed() {
    let lab = Lab::frozen(&Figures::default());
    lab.prereg(&["amend", "seed", "--why", "nothing"]).exits_with(2);
    lab.edit(DOCUMENT, "at least 5 % of a", "at least 5 % of one");
    lab.prereg(&["amend", "seed", "--why", "a word in the question"]).exits_with(0);
    lab.commit("x");
    lab.prereg(&["run", "seed"]).exits_with(1);
    let report = lab.report();
    assert!(report.contains("frozen before any data existed: a word in the question"), "{report}");
    let diff = "  -question = \"Does the bundle of four small changes buy at least 5 % of a training step?\"\n  +question";
    assert!(report.contains(diff), "{report}");

    lab.edit(DOCUMENT, "primary < 5 % or", "primary < 4 % or");
    // The linter sees what the hasty change left uncovered, before it is frozen.
    let output = lab.prereg(&["amend", "seed", "--why", "the bar was too high"]).exits_with(1);
    assert!(output.stderr.contains("no rule covers: primary = +4.00 %"), "{}", output.stderr);
    lab.edit(DOCUMENT, "primary >= 5 % and o", "primary >= 4 % and o");
    lab.edit(DOCUMENT, "primary >= 5 % and not", "primary >= 4 % and not");
    let output = lab.prereg(&["amend", "seed", "--why", "the bar was too high"]).exits_with(0);
    assert!(output.stderr.contains("11 launches in 1 run existed"), "{}", output.stderr);
    lab.commit("x");
    lab.prereg(&["run", "seed"]).exits_with(1);
    let second = lab.runs().pop().unwrap();
    let report = lab.read(second.join("report.md"));
    assert!(
        report.contains("frozen **after 11 launches in 1 run** (2")
            && report.contains("): the bar was too high"),
        "{report}"
    );
}

#[test]
fn a_frozen_file_that_was_tampered_with_is_refused() {
    let lab = Lab::frozen(&Figures::default());
    lab.edit("bench-configs/prereg/seed.frozen.json", "primary >= 5 %", "primary >= 1 %");
    lab.edit(DOCUMENT, "primary >= 5 %", "primary >= 1 %");
    lab.commit("x");
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    assert!(output.stderr.contains("was changed after it was frozen"), "{}", output.stderr);
}

#[test]
fn freezing_anew_over_data_says_what_data_there_was() {
    let lab = Lab::frozen(&Figures::default());
    lab.prereg(&["run", "seed"]).exits_with(1);
    let first = lab.run_folder().file_name().unwrap().to_string_lossy().into_owned();
    lab.remove("bench-configs/prereg/seed.frozen.json");
    lab.edit(DOCUMENT, "primary < 5 % or", "primary < 4 % or");
    lab.edit(DOCUMENT, "primary >= 5 % and o", "primary >= 4 % and o");
    lab.edit(DOCUMENT, "primary >= 5 % and not", "primary >= 4 % and not");
    lab.freeze();
    lab.prereg(&["run", "seed"]).exits_with(1);
    let report = lab.read(lab.runs().pop().unwrap().join("report.md"));
    let said =
        format!("frozen **after 11 launches in 1 run** ({first}): it was frozen anew, and what");
    assert!(report.contains(&said), "{report}");
}

#[test]
fn a_file_that_the_command_names_is_looked_at_before_every_launch() {
    let lab = Lab::new(SEED, &Figures::default());
    lab.write_runner("scripted", "profile-text", &["/bin/sh", "runner.sh"]);
    let edit = "if [ $(wc -l < launches.txt 2>/dev/null || echo 0) -ge 4 ]; then echo '#' >> runner.sh; fi";
    lab.write_scripted_program("runner.sh", "script.toml", edit);
    lab.commit("x");
    lab.freeze();
    let ran = lab.prereg(&["run", "seed"]).exits_with(2);
    assert!(ran.stderr.contains("error: the pinned file"), "{}", ran.stderr);
    assert!(ran.stderr.contains("changed during the run"), "{}", ran.stderr);
    assert_eq!(lab.launches().len(), 5);
    // What was measured before the edit is not gone on with after it.
    let ran = lab.prereg(&["run", "seed", "--resume"]).exits_with(2);
    assert!(ran.stderr.contains(": `runner.sh` was "), "{}", ran.stderr);
    assert_eq!(lab.launches().len(), 5);
}
