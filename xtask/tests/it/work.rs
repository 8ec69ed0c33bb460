//! Results that cannot be true, over the real binary: each was once written as a measurement.

use testkit::{Ran, Workspace};

use crate::XTASK;

/// What a runner says of a cell of 512 tokens that generates 32.
const WHOLE: &str = "Prompt tokens: 512\nGenerated tokens: 32\nPrefill: 256.00 ms (2000.00 tok/s)\n\
                     Decode: 620.00 ms (50.00 tok/s)\n";

fn workspace(keys: &str) -> Workspace {
    let workspace = Workspace::new(XTASK, &["a"]);
    workspace.write_program("say.sh", "cat said.txt");
    workspace.write_runner("say", "profile-text", &["./say.sh"]);
    let path = "bench-configs/runners/say.toml";
    let text = workspace.read(path);
    workspace.write(path, format!("{keys}{text}"));
    workspace.write(
        "bench-configs/sweep/odd.toml",
        "models = [\"a\"]\nlengths = [512]\nmax_tokens = 32\nrunner = \"say\"\n",
    );
    workspace
}

fn sweep(workspace: &Workspace, said: &str) -> (Ran, String) {
    workspace.write("said.txt", said);
    let _ = std::fs::remove_file(workspace.path("out.csv"));
    let _ = std::fs::remove_file(workspace.path("out.csv.journal.jsonl"));
    let args = ["sweep", "--config", "bench-configs/sweep/odd.toml", "--output", "out.csv"];
    let ran = workspace.run(&args);
    let row = workspace.read("out.csv").lines().last().unwrap_or_default().to_owned();
    (ran, row)
}

/// What the last cell's evidence says of its result.
fn evidence(workspace: &Workspace, key: &str) -> serde_json::Value {
    let lines = workspace.read_json_lines("out.csv.journal.jsonl");
    let end = lines.into_iter().rfind(|line| line["event"] == "cell_end").expect("an end");
    end["evidence"][key].clone()
}

#[test]
fn other_work_and_contradictions_are_no_measurements() {
    let workspace = workspace("");
    let (ran, row) = sweep(&workspace, WHOLE);
    ran.exits_with(0);
    assert!(row.contains(",512,32,256.00,2000.00,620.00,50.00,"), "{row}");
    for (from, to, why) in [
        ("tokens: 512", "tokens: 17", "the prompt had 17 tokens instead of 512"),
        ("tokens: 32", "tokens: 20", "20 tokens were generated instead of 32"),
        (
            "Prefill: 256.00 ms (2000.00 tok/s)",
            "Prefill: 0.00 ms (32000000.00 tok/s)",
            "prefill took 0.00 ms, which is below what can be told",
        ),
        (
            "620.00 ms (50.00",
            "620.00 ms (80.00",
            "decode: 32 tokens in 620.00 ms are 51.61 tok/s, but 80.00 tok/s are given",
        ),
    ] {
        let (ran, row) = sweep(&workspace, &WHOLE.replace(from, to));
        let ran = ran.exits_with(1);
        assert!(ran.stderr.contains(&format!("FAIL:wrong_work: {why}")), "{}", ran.stderr);
        assert!(row.ends_with(",512,FAIL:wrong_work"), "{row}");
        assert!(row.contains(",,,,,,"), "numbers in {row}");
        assert_eq!(evidence(&workspace, "result_problem"), why);
    }
}

#[test]
fn what_a_terminal_would_show_is_read() {
    let workspace = workspace("");
    let coloured = WHOLE.replace("Prefill: ", "\u{1b}[1;32mPrefill:\u{1b}[0m ");
    let coloured = coloured.replace("620.00 ms", "\u{1b}[33m620.00\u{1b}[0m ms");
    let grouped = WHOLE.replace("2000.00 tok/s", "2,000.00 tok/s");
    let over = WHOLE.replace("Decode:", "decoding 10 %\rdecoding 99 %\r\u{1b}[KDecode:");
    for said in [coloured, grouped, over] {
        let (ran, row) = sweep(&workspace, &said);
        ran.exits_with(0);
        assert!(row.contains(",512,32,256.00,2000.00,620.00,50.00,"), "{said:?}: {row}");
        assert!(evidence(&workspace, "result_notes").is_null(), "{said:?}");
    }
}

#[test]
fn a_column_that_cannot_be_read_is_noted() {
    let workspace = workspace("");
    let (ran, row) = sweep(&workspace, &WHOLE.replace("256.00 ms", "fast"));
    let ran = ran.exits_with(0);
    assert!(row.contains(",512,32,,,620.00,50.00,"), "{row}");
    let note = "`Prefill: fast (2000.00 tok/s)` cannot be read whole";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    assert_eq!(evidence(&workspace, "result_notes")[0], note);
}

#[test]
fn a_runner_may_say_that_it_stops_by_itself_or_does_not_count() {
    let short = WHOLE.replace("tokens: 32", "tokens: 20").replace("620.00", "380.00");
    let (ran, row) = sweep(&workspace("stops_at_end_of_sequence = true\n"), &short);
    ran.exits_with(0);
    assert!(row.contains(",512,20,"), "{row}");

    let workspace = workspace("counts_tokens = false\n");
    let (ran, row) = sweep(&workspace, &WHOLE.replace("tokens: 512", "tokens: 17"));
    let ran = ran.exits_with(0);
    assert!(row.contains(",,,256.00,2000.00,620.00,50.00,"), "{row}");
    assert!(ran.stderr.contains("runner `say` does not count tokens"), "{}", ran.stderr);
    let (ran, _) = sweep(&workspace, &WHOLE.replace("620.00 ms", "0.00 ms"));
    ran.exits_with(1);
}
