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

/// The last end of a cell in the journal.
fn end_of(workspace: &Workspace) -> serde_json::Value {
    let lines = workspace.read_json_lines("out.csv.journal.jsonl");
    lines.into_iter().rfind(|line| line["event"] == "cell_end").expect("an end")
}

/// What the last cell's evidence says of its result.
fn evidence(workspace: &Workspace, key: &str) -> serde_json::Value {
    end_of(workspace)["evidence"][key].clone()
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
        assert_eq!(end_of(&workspace)["measured"]["decode_ms"], 620.0);
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

/// A runner that is stopped for a while before it says what it measured, if `when` holds in the shell.
fn stopped(when: &str) -> Workspace {
    let workspace = workspace("");
    let script = format!(
        "if {when}; then (sleep 0.5; kill -CONT $$) & kill -STOP $$; wait; fi\ntouch was-here\n\
         cat said.txt"
    );
    workspace.write_program("say.sh", &script);
    workspace
}

fn sweep_with(workspace: &Workspace, more: &[&str]) -> Ran {
    workspace.write("said.txt", WHOLE);
    let args = ["sweep", "--config", "bench-configs/sweep/odd.toml", "--output", "out.csv"];
    workspace.run(&[&args, more].concat()).exits_with(0)
}

#[test]
fn a_cell_that_was_stopped_is_marked() {
    let workspace = stopped("true");
    let ran = sweep_with(&workspace, &[]);
    let why = "disturbed: the process was stopped for 0.";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("50.00 tok/s*\n* disturbed while it was measured"),
        "{}",
        ran.stderr
    );
    let ends = workspace.read_json_lines("out.csv.journal.jsonl");
    let end = ends.iter().find(|line| line["event"] == "cell_end").expect("an end");
    let found = end["quiet"]["disturbances"][0].as_str().unwrap_or_default();
    assert!(found.starts_with("the process was stopped for 0."), "{end}");

    let workspace = stopped("true");
    let ran = sweep_with(&workspace, &["--quiet", "off"]);
    assert!(!ran.stderr.contains("disturbed"), "{}", ran.stderr);
}

#[test]
fn a_disturbed_cell_is_repeated_and_nothing_that_was_measured_is_lost() {
    for (when, launches, is_marked) in [("[ ! -e was-here ]", 2, false), ("true", 3, true)] {
        let workspace = stopped(when);
        let ran = sweep_with(&workspace, &["--quiet", "repeat"]);
        assert_eq!(ran.stderr.contains("tok/s*"), is_marked, "{}", ran.stderr);
        assert!(ran.stderr.contains("[again] a @ 512: disturbed: "), "{}", ran.stderr);
        let rows = workspace.read("out.csv");
        assert_eq!(rows.lines().count(), 2, "{rows}");
        let journal = workspace.read_json_lines("out.csv.journal.jsonl");
        let events = |event: &str| journal.iter().filter(|line| line["event"] == event).count();
        assert_eq!((events("cell_launch"), events("cell_end")), (launches, launches));
        let first = journal.iter().find(|line| line["event"] == "cell_end").expect("an end");
        assert!(first["row"].is_null() && !first["quiet"].is_null(), "{first}");
        assert_eq!(first["reason"], "disturbed, and repeated");
        assert_eq!(first["measured"]["decode_tok_s"], 50.0);
    }
}

/// A runner whose decode takes 31 tokens in 620 ms at first, then 500, then 775.
fn varied() -> Workspace {
    let workspace = workspace("");
    workspace.write_program(
        "say.sh",
        "echo x >> launched\nset -- 620.00 500.00 775.00\nshift $(($(wc -l < launched) - 1))\n\
         sed \"s/Decode:.*/Decode: $1 ms ($(awk \"BEGIN { printf \\\"%.2f\\\", 31000 / $1 }\") tok\\/s)/\" said.txt",
    );
    let path = "bench-configs/sweep/odd.toml";
    workspace.write(path, workspace.read(path) + "repeats = 3\nquiet = \"off\"\n");
    workspace
}

#[test]
fn the_row_of_several_runs_is_the_median_and_all_of_them_are_in_the_journal() {
    let workspace = varied();
    let ran = sweep_with(&workspace, &[]);
    let rows = workspace.read("out.csv");
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.contains(",620.00,50.00,"), "{rows}");
    // From 40 to 62 tok/s around 50.
    assert!(ran.stderr.contains("50.00 tok/s ±22.0 %"), "{}", ran.stderr);
    let journal = workspace.read_json_lines("out.csv.journal.jsonl");
    let ends: Vec<_> = journal.iter().filter(|line| line["event"] == "cell_end").collect();
    assert_eq!(ends.len(), 4);
    assert_eq!(ends[1]["reason"], "run 2 of 3");
    assert_eq!(ends[1]["measured"]["decode_tok_s"], 62.0);
    assert!(ends[3]["measured"].is_null());
    assert!(ends[..3].iter().all(|end| end["row"].is_null()));
    assert_eq!(ends[3]["repeats"]["decode_tok_s"], serde_json::json!([50.0, 62.0, 40.0]));
}

#[test]
fn a_sweep_that_ended_between_runs_measures_the_cell_anew() {
    let workspace = varied();
    sweep_with(&workspace, &[]);
    // As a kill after the second run would leave it.
    let journal = workspace.read("out.csv.journal.jsonl");
    let kept: Vec<&str> = journal.lines().take(5).collect();
    workspace.write("out.csv.journal.jsonl", kept.join("\n") + "\n");
    let header = workspace.read("out.csv").lines().next().unwrap_or_default().to_owned();
    workspace.write("out.csv", header + "\n");
    workspace.remove("launched");
    let ran = workspace.run(&["sweep", "--resume", "out.csv"]).exits_with(0);
    assert!(ran.stderr.contains("50.00 tok/s ±22.0 %"), "{}", ran.stderr);
    assert_eq!(workspace.read("launched").lines().count(), 3);
    let rows = workspace.read("out.csv");
    assert_eq!(rows.lines().count(), 2, "{rows}");
    // What is in the first two runs is still there.
    assert!(workspace.read("out.csv.journal.jsonl").starts_with(&kept.join("\n")));
}

#[test]
fn a_sweep_that_was_killed_after_the_last_run_has_its_row_from_the_journal() {
    let workspace = varied();
    sweep_with(&workspace, &[]);
    let rows = workspace.read("out.csv");
    let journal = workspace.read("out.csv.journal.jsonl");
    let kept: Vec<&str> = journal.lines().take(7).collect();
    assert!(kept[6].contains("run 3 of 3"), "{}", kept[6]);
    workspace.write("out.csv.journal.jsonl", kept.join("\n") + "\n");
    workspace.write("out.csv", rows.lines().next().unwrap_or_default().to_owned() + "\n");

    let listed = workspace.run(&["sweep", "--resume", "out.csv", "--list"]).exits_with(0);
    assert_eq!(listed.stdout, "a  512  row  its runs are in the journal\n");
    let ran = workspace.run(&["sweep", "--resume", "out.csv"]).exits_with(0);
    assert!(ran.stderr.contains("[done] a @ 512: its 3 runs are in the journal\n"), "{ran}");
    assert!(ran.stderr.contains("50.00 tok/s ±22.0 %"), "{ran}");
    assert_eq!(workspace.read("out.csv"), rows);
    assert_eq!(workspace.read("launched").lines().count(), 3, "nothing is launched again");
    let ran = workspace.run(&["sweep", "--resume", "out.csv"]).exits_with(0);
    assert!(ran.stderr.contains("50.00 tok/s ±22.0 %"), "{ran}");
    assert_eq!(workspace.read("out.csv"), rows);
}

#[test]
fn variants_are_rows_of_their_own_and_forbid_what_they_are_declared_to() {
    let workspace = workspace("");
    workspace.write_program("say.sh", "echo \"$@\" >> launched; sed \"s/tokens: 512/tokens: $4/; s/Prefill.*/Prefill: 1.00 ms ($4000.00 tok\\/s)/\" said.txt");
    workspace.write(
        "bench-configs/sweep/odd.toml",
        "models = [\"a\"]\nlengths = [256, 512]\nmax_tokens = 32\nrunner = \"say\"\nquiet = \"off\"\n\
         [[variant]]\nname = \"small\"\nargs = [\"--kv\", \"q8\"]\n\
         uses_no_more_memory_than = [\"large\"]\n\
         [[variant]]\nname = \"large\"\nargs = [\"--kv\", \"f32\"]\n",
    );
    let ran = sweep_with(&workspace, &["--fake-oom", "a+small:512"]);
    let rows = workspace.read("out.csv");
    let classes: Vec<String> = rows
        .lines()
        .skip(1)
        .map(|row| {
            let fields: Vec<&str> = row.split(',').collect();
            format!("{} {} {}", fields[0], fields[14], fields.get(15).unwrap_or(&"measured"))
        })
        .collect();
    assert_eq!(
        classes,
        [
            "a 256 measured",
            "a 512 measured",
            "a+small 256 measured",
            "a+small 512 SKIP:oom",
            "a+large 256 measured",
            "a+large 512 SKIP:oom_backstop",
        ],
        "{}",
        ran.stderr
    );
    let launched = workspace.read("launched");
    assert_eq!(launched.lines().filter(|line| line.ends_with("--kv f32")).count(), 1, "{launched}");
    assert!(workspace.read("benchmarks/.oom-record").starts_with("a+small,512,"));

    // The record says the same to the next sweep.
    workspace.remove("out.csv");
    workspace.remove("out.csv.journal.jsonl");
    let ran = sweep_with(&workspace, &[]);
    let rows = workspace.read("out.csv");
    assert_eq!(rows.matches("SKIP:oom_record").count(), 2, "{rows}");
    assert!(ran.stderr.contains("a+large @ 512: SKIP:oom_record"), "{}", ran.stderr);
}

/// Lengths may say how many tokens are generated: such cells have rows of their own, are told so, and are
/// forbidden by what failed with no more of either. Placeholders that a variant sets reach the runner, and
/// `oom-record confirm` launches a recorded cell with all of it.
#[test]
fn pairs_and_placeholders_reach_the_runner_the_record_and_confirm() {
    let workspace = workspace("");
    workspace.write_program(
        "say.sh",
        "echo \"$@\" >> launched\nsteps=$(($6 - 1))\necho \"Prompt tokens: $4\"\n\
         echo \"Generated tokens: $6\"\necho \"Prefill: 1.00 ms (${4}000.00 tok/s)\"\n\
         echo \"Decode: ${steps}0.00 ms (100.00 tok/s)\"",
    );
    workspace.write(
        "bench-configs/runners/say.toml",
        "result = \"profile-text\"\nplaceholders = { kv = \"f16\" }\ncommand = [\"./say.sh\", \"--model\", \
         \"{model}\", \"--prompt-tokens\", \"{prompt_tokens}\", \"--max-tokens\", \"{max_tokens}\", \
         \"--kv\", \"{kv}\"]\n",
    );
    workspace.write(
        "bench-configs/sweep/odd.toml",
        "models = [\"a\"]\nlengths = [256, [256, 8], [512, 8], [512, 64]]\nmax_tokens = 32\n\
         runner = \"say\"\nquiet = \"off\"\nplain = false\n\
         [[variant]]\nname = \"small\"\nset = { kv = \"q8_0\" }\n",
    );
    let ran = sweep_with(&workspace, &["--fake-oom", "a+small+g8:512"]);
    let rows = workspace.read("out.csv");
    let shown: Vec<String> = rows
        .lines()
        .skip(1)
        .map(|row| {
            let fields: Vec<&str> = row.split(',').collect();
            let class = fields.get(15).unwrap_or(&"measured");
            format!("{} {} {} {class}", fields[0], fields[14], fields[12])
        })
        .collect();
    assert_eq!(
        shown,
        [
            "a+small+g8 256 8 measured",
            "a+small+g8 512 8 SKIP:oom",
            "a+small 256 32 measured",
            "a+small+g64 512 64 SKIP:oom_backstop",
        ],
        "{}",
        ran.stderr
    );
    let launched = workspace.read("launched");
    let expected = ["256 --max-tokens 8 --kv q8_0", "256 --max-tokens 32 --kv q8_0"];
    for (line, expected) in launched.lines().zip(expected) {
        assert!(line.ends_with(expected), "{launched}");
    }
    assert_eq!(launched.lines().count(), 2);
    assert!(
        ran.stderr.contains("\na+small+g64             -  SKIP:oom_backstop"),
        "{}",
        ran.stderr
    );

    let ran = workspace.run(&["sweep", "--resume", "out.csv"]);
    assert_eq!(workspace.read("launched"), launched, "nothing is left to do: {}", ran.stderr);

    let confirm = ["oom-record", "confirm", "a+small+g8", "--cell-memory-limit-mb", "8000"];
    let ran = workspace.run(&confirm).exits_with(0);
    assert!(ran.stderr.contains("a+small+g8 ran at 512 tokens: 1 event removed"), "{ran}");
    let launched = workspace.read("launched");
    assert!(launched.ends_with("512 --max-tokens 8 --kv q8_0\n"), "{launched}");

    let text = workspace.read("bench-configs/sweep/odd.toml").replace("{ kv =", "{ kvv =");
    workspace.write("bench-configs/sweep/odd.toml", text);
    let args = ["sweep", "--config", "bench-configs/sweep/odd.toml", "--output", "x.csv"];
    let ran = workspace.run(&args).exits_with(2);
    assert!(ran.stderr.contains("variant `small`"), "{ran}");
    assert!(ran.stderr.contains("no placeholder `kvv` to set\nhint: did you mean `kv`?"), "{ran}");
}
