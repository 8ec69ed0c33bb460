//! `cargo xtask prereg` as people use it: the real binary over a workspace with the scripted runner.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[path = "prereg/script.rs"]
mod script;

use script::{Fault, Figures, render_script};

const SEED: &str = include_str!("prereg/seed.toml");

/// A workspace of its own, under git, with a ladder called `seed`.
struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    fn new(document: &str, figures: &Figures) -> Workspace {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace { folder };
        workspace.write("Cargo.toml", "[workspace]\n");
        workspace.write("model.toml", "layers = 1\n");
        workspace.write("checks.sh", &format!("exit {}\n", i32::from(!figures.checks_green)));
        workspace.write("script.toml", &render_script(figures));
        workspace.write("bench-configs/prereg/seed.toml", document);
        let mut runner = String::from("result = \"profile-text\"\ncommand = [\n");
        for part in [
            env!("CARGO_BIN_EXE_xtask"),
            "scripted-runner",
            "--script",
            "script.toml",
            "--model",
            "{model}",
            "--prompt-tokens",
            "{prompt_tokens}",
            "--max-tokens",
            "{max_tokens}",
        ] {
            writeln!(runner, "  {part:?},").unwrap();
        }
        workspace.write("bench-configs/runners/scripted.toml", &(runner + "]\n"));
        workspace.git(&["init", "--quiet"]);
        workspace.git(&["config", "user.name", "test"]);
        workspace.git(&["config", "user.email", "test@example.invalid"]);
        workspace.commit();
        workspace
    }

    /// The seed with these figures, frozen and committed.
    fn frozen(figures: &Figures) -> Workspace {
        let workspace = Workspace::new(SEED, figures);
        workspace.freeze();
        workspace
    }

    fn freeze(&self) {
        let output = self.prereg(&["freeze", "seed"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        self.commit();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    fn edit(&self, path: &str, from: &str, to: &str) {
        let text = self.read(path);
        assert!(text.contains(from), "{path} has no `{from}`");
        self.write(path, &text.replacen(from, to, 1));
    }

    fn git(&self, args: &[&str]) -> String {
        let output =
            Command::new("git").arg("-C").arg(self.folder.path()).args(args).output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", "x"]);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("prereg").args(args).current_dir(self.folder.path());
        // What the shell of the developer has set is no part of a ladder.
        command.env("P1", "1").env("ARC_ALLOC_CACHE_MAX_MB", "7");
        command
    }

    fn prereg(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The folder of the only run.
    fn run_folder(&self) -> PathBuf {
        let folders = folders(&self.path("benchmarks/prereg/seed"));
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders[0].clone()
    }

    fn result(&self) -> serde_json::Value {
        let text = std::fs::read_to_string(self.run_folder().join("result.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn report(&self) -> String {
        std::fs::read_to_string(self.run_folder().join("report.md")).unwrap()
    }
}

fn folders(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    found.sort();
    found
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the seed with these figures: exit code, and the result.
fn run_seed(figures: &Figures) -> (i32, serde_json::Value, Workspace) {
    let workspace = Workspace::frozen(figures);
    let output = workspace.prereg(&["run", "seed"]);
    assert!(code(&output) < 2, "{}", stderr(&output));
    let result = workspace.result();
    (code(&output), result, workspace)
}

fn redacted() -> insta::Settings {
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"\d{4}-\d{2}-\d{2}(-\d+)?", "[date]");
    settings.add_filter(r"commit [0-9a-f]{40}", "commit [commit]");
    settings.add_filter(r"entry [0-9a-f]{12,64}", "entry [hash]");
    settings.add_filter(r"on [A-Za-z0-9_().@-]+_\d+GB", "on [machine]");
    settings
}

#[test]
fn the_seed_ladder_comes_out_as_it_did() {
    let (exit, result, workspace) = run_seed(&Figures::default());
    assert_eq!(exit, 1, "an oracle failed");
    assert_eq!(result["status"], "decided");
    assert_eq!(result["rule"], "below_bar");
    assert_eq!(result["landing"]["land"], serde_json::json!(["P2", "P4"]));
    assert_eq!(result["dropped"][0]["item"], "P1");
    let ladder = &result["rounds"][0]["ladder"];
    assert_eq!(ladder[1]["state"], "receipt");
    assert_eq!(ladder[2]["name"], "C′");
    assert_eq!(ladder[2]["items"], serde_json::json!(["P2", "P3", "P4"]));
    redacted().bind(|| insta::assert_snapshot!("seed_report", workspace.report()));
}

#[test]
fn the_landing_rule_fires_when_the_bundle_is_fast_and_everything_is_green() {
    let figures = Figures { p1_loss_difference: 2e-4, c: 2.10, ..Figures::default() };
    let (exit, result, _workspace) = run_seed(&figures);
    assert_eq!((exit, &result["rule"]), (0, &"land".into()));
    assert_eq!(result["landing"]["land"], serde_json::json!(["P1", "P2", "P3", "P4"]));
    assert_eq!(result["dropped"], serde_json::json!([]));
}

#[test]
fn the_parity_rule_fires_when_no_item_survives_and_no_rung_runs() {
    let figures = Figures { every_oracle_fails: true, ..Figures::default() };
    let (exit, result, workspace) = run_seed(&figures);
    assert_eq!((exit, &result["rule"]), (1, &"parity".into()));
    assert_eq!(result["landing"]["land"], serde_json::json!([]));
    let samples = std::fs::read_to_string(workspace.run_folder().join("samples.jsonl")).unwrap();
    assert!(!samples.contains("\"rung\":\"C\""), "nothing is left to measure");
}

#[test]
fn the_last_rule_fires_when_the_checks_are_not_green() {
    let figures =
        Figures { p1_loss_difference: 0.0, c: 2.10, checks_green: false, ..Figures::default() };
    let (exit, result, _workspace) = run_seed(&figures);
    assert_eq!((exit, &result["rule"]), (1, &"not_green".into()));
}

#[test]
fn a_crash_of_the_bundle_drops_the_item_and_measures_again() {
    let figures = Figures {
        p1_loss_difference: 0.0,
        c: 2.10,
        c_without_p1: 2.12,
        fault: Fault::BundleCrashes,
        ..Figures::default()
    };
    let (exit, result, workspace) = run_seed(&figures);
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    assert!(rounds[0]["crashed"]["C"].as_str().unwrap().contains("illegal memory access"));
    let rules = rounds[0]["rules"].as_array().unwrap();
    assert_eq!(rules[1]["result"], "does_not_apply");
    assert_eq!((&rules[3]["rule"], &rules[3]["result"]), (&"unstable".into(), &"fired".into()));
    assert_eq!(rounds[1]["ladder"][2]["name"], "C′");
    assert_eq!((exit, &result["rule"]), (0, &"land".into()));
    assert_eq!(result["landing"]["park"], serde_json::json!(["P1"]));
    let report = workspace.report();
    assert!(report.contains("Dropped after pass 1: P1 (rule `unstable`)."), "{report}");
    assert!(
        report.contains(
            "| 4 | the fast backend does not crash in its backward pass | \
                             medium-high (75 %) | **did not hold**"
        ),
        "{report}"
    );
}

#[test]
fn a_crash_of_one_rung_leaves_the_others_and_is_not_launched_twice() {
    let figures = Figures {
        p1_loss_difference: 0.0,
        c: 2.10,
        c_without_p1: 2.12,
        fault: Fault::OneItemCrashes,
        ..Figures::default()
    };
    let (_, result, workspace) = run_seed(&figures);
    // The landing rule comes first, and speaks of C alone.
    assert_eq!(result["rule"], "land");
    assert!(result["rounds"][0]["crashed"]["B"].as_str().unwrap().contains("SKIP:oom"));
    let launches = workspace.read("launches.log");
    let ladder = launches.lines().filter(|line| line.ends_with(" 1100")).count();
    assert_eq!(ladder, 4, "A, B, C and A again, each once: {launches}");
}

#[test]
fn a_nan_at_step_37_fails_the_curve_and_drops_the_item() {
    let figures =
        Figures { p1_loss_difference: 0.0, fault: Fault::NanInCurve, ..Figures::default() };
    let (exit, result, _workspace) = run_seed(&figures);
    assert_eq!(exit, 1);
    let failed: Vec<&serde_json::Value> = (result["oracles"].as_array().unwrap().iter())
        .filter(|trial| trial["verdict"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0]["oracle"], &failed[0]["item"]), (&"p1_curve".into(), &"P1".into()));
    assert_eq!(failed[0]["measured"], "the item: NaN at step 37");
}

#[test]
fn a_nan_at_step_37_of_a_rung_makes_it_unstable() {
    let figures = Figures {
        p1_loss_difference: 0.0,
        c: 2.10,
        fault: Fault::NanInBundle,
        ..Figures::default()
    };
    let (_, result, _workspace) = run_seed(&figures);
    assert_eq!(result["rounds"][0]["non_finite"]["C"], "C has loss NaN at step 37");
    assert_eq!(result["rounds"][0]["rules"][3]["result"], "fired");
    assert_eq!(result["dropped"][0]["item"], "P1");
}

#[test]
fn the_guard_fails_at_2_1_percent_and_passes_at_1_9() {
    for (growth, rule, passes) in
        [(0.021, "below_bar", false), (0.02, "land", true), (0.019, "land", true)]
    {
        let figures = Figures {
            p1_loss_difference: 0.0,
            c: 2.10,
            bundle_memory_growth: growth,
            ..Figures::default()
        };
        let (exit, result, _workspace) = run_seed(&figures);
        let round = &result["rounds"][0];
        assert_eq!(round["guards"][0]["passes"], passes, "{growth}");
        assert_eq!(result["rule"], rule, "{growth}");
        assert_eq!(exit, i32::from(!passes), "{growth}");
        assert_eq!(round["reads"][0]["failed_by"].is_null(), passes, "{growth}");
    }
}

#[test]
fn progress_shows_cost_and_no_figure_before_every_rung_is_in() {
    let workspace = Workspace::frozen(&Figures::default());
    let output = workspace.prereg(&["run", "seed"]);
    let progress = stderr(&output);
    assert!(progress.contains("rung C′ 1/1"), "{progress}");
    assert!(progress.contains("min spent"), "{progress}");
    for figure in ["2.251", "2.495", "2.415", "8.7e-3", "passed", "failed", "faster", "%"] {
        assert!(!progress.contains(figure), "progress tells `{figure}`:\n{progress}");
    }
    assert!(stdout(&output).starts_with("rule `below_bar` fired"), "{}", stdout(&output));
}

#[test]
fn one_byte_after_freezing_is_refused_with_its_diff() {
    let workspace = Workspace::frozen(&Figures::default());
    workspace.edit("bench-configs/prereg/seed.toml", "primary >= 5 % and", "primary >= 4 % and");
    workspace.commit();
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    redacted().bind(|| insta::assert_snapshot!("edited", stderr(&output)));
    assert!(folders(&workspace.path("benchmarks/prereg/seed")).is_empty(), "nothing was run");
}

#[test]
fn rules_in_another_order_are_refused() {
    let workspace = Workspace::frozen(&Figures::default());
    let text = workspace.read("bench-configs/prereg/seed.toml");
    let at = |id: &str| text.find(&format!("[[rules]]\nid = \"{id}\"")).unwrap();
    let (land, below) = (at("land"), at("below_bar"));
    let unstable = at("unstable");
    let text =
        [&text[..land], &text[below..unstable], &text[land..below], &text[unstable..]].concat();
    workspace.write("bench-configs/prereg/seed.toml", &text);
    workspace.commit();
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("changed after version 1 was frozen"), "{}", stderr(&output));
}

#[test]
fn a_swapped_model_runner_or_program_is_refused() {
    for (file, from, to, says) in [
        ("model.toml", "layers = 1", "layers = 2", "model `model.toml` changed after"),
        ("bench-configs/runners/scripted.toml", "\"--model\"", "\"--model\" ", "runner `scripted`"),
        (
            "script.toml",
            "2.495",
            "2.395",
            "the code that the rungs run differs from what was frozen",
        ),
    ] {
        let workspace = Workspace::frozen(&Figures::default());
        workspace.edit(file, from, to);
        workspace.commit();
        let output = workspace.prereg(&["run", "seed"]);
        assert_eq!(code(&output), 2, "{file}");
        assert!(stderr(&output).contains(says), "{file}: {}", stderr(&output));
    }
}

#[test]
fn what_is_not_committed_is_refused_and_a_commit_on_top_is_a_note() {
    let workspace = Workspace::new(SEED, &Figures::default());
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("ladder `seed` is not frozen"), "{}", stderr(&output));
    workspace.prereg(&["freeze", "seed"]);
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    let told = stderr(&output);
    assert!(told.contains("not committed: bench-configs/prereg/seed.frozen.json"), "{told}");
    workspace.commit();
    workspace.write("README.md", "prose\n");
    workspace.commit();
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 1);
    let told = stderr(&output);
    assert!(
        told.contains("note: commit ") && told.contains("the code that the rungs run is the same")
    );
}

#[test]
fn another_machine_is_a_note_at_the_start_and_a_refusal_in_the_middle() {
    let workspace = Workspace::frozen(&Figures::default());
    // As if it had been frozen elsewhere: the machine is rewritten, and the entry hashed anew.
    let frozen = workspace.read("bench-configs/prereg/seed.frozen.json");
    let machine = serde_json::from_str::<serde_json::Value>(&frozen).unwrap()["versions"][0]["pins"]
        ["machine"]
        .as_str()
        .unwrap()
        .to_owned();
    let elsewhere = rehash(&frozen.replace(&machine, "NVIDIA_GB10_122GB"));
    workspace.write("bench-configs/prereg/seed.frozen.json", &elsewhere);
    workspace.commit();
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("the ladder was frozen on NVIDIA_GB10_122GB"));
    let report = workspace.report();
    assert!(report.contains("- frozen on NVIDIA_GB10_122GB and run on "), "{report}");

    // A run that began elsewhere is not gone on with here.
    let samples = workspace.run_folder().join("samples.jsonl");
    let text = std::fs::read_to_string(&samples).unwrap();
    let first: Vec<&str> = text.lines().take(3).collect();
    let text = first.join("\n").replace(&machine, "NVIDIA_GB10_122GB") + "\n";
    std::fs::write(&samples, text).unwrap();
    let output = workspace.prereg(&["run", "seed", "--resume"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("rungs from two machines do not compare"),
        "{}",
        stderr(&output)
    );
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
    let workspace = Workspace::frozen(&Figures::default());
    let output = workspace.prereg(&["amend", "seed", "--why", "nothing"]);
    assert_eq!(code(&output), 2, "nothing changed: {}", stdout(&output));
    workspace.edit("bench-configs/prereg/seed.toml", "at least 5 % of a", "at least 5 % of one");
    let output = workspace.prereg(&["amend", "seed", "--why", "a word in the question"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    workspace.commit();
    assert_eq!(code(&workspace.prereg(&["run", "seed"])), 1);
    let report = workspace.report();
    assert!(report.contains("frozen before any data existed: a word in the question"), "{report}");

    let document = "bench-configs/prereg/seed.toml";
    workspace.edit(document, "primary < 5 % or", "primary < 4 % or");
    let output = workspace.prereg(&["amend", "seed", "--why", "the bar was too high"]);
    // The linter sees what the hasty change left uncovered, before it is frozen.
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("no rule covers: primary = +4.00 %"), "{}", stderr(&output));
    workspace.edit(document, "primary >= 5 % and o", "primary >= 4 % and o");
    workspace.edit(document, "primary >= 5 % and not", "primary >= 4 % and not");
    let output = workspace.prereg(&["amend", "seed", "--why", "the bar was too high"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("11 launches in 1 run existed"), "{}", stderr(&output));
    workspace.commit();
    assert_eq!(code(&workspace.prereg(&["run", "seed"])), 1);
    let second = folders(&workspace.path("benchmarks/prereg/seed")).pop().unwrap();
    let report = std::fs::read_to_string(second.join("report.md")).unwrap();
    assert!(
        report.contains("frozen **after 11 launches in 1 run**: the bar was too high"),
        "{report}"
    );
}

#[test]
fn a_version_is_run_once_unless_the_report_may_say_why_again() {
    let workspace = Workspace::frozen(&Figures::default());
    assert_eq!(code(&workspace.prereg(&["run", "seed"])), 1);
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("this version has been run: "), "{}", stderr(&output));
    let output = workspace.prereg(&["run", "seed", "--resume"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("is complete"), "{}", stderr(&output));
    let output = workspace.prereg(&["run", "seed", "--again", "the fan was broken"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let second = folders(&workspace.path("benchmarks/prereg/seed")).pop().unwrap();
    let report = std::fs::read_to_string(second.join("report.md")).unwrap();
    assert!(report.contains("run again after ") && report.contains(": the fan was broken"));
}

#[test]
fn at_the_ceiling_it_stops_and_goes_on_only_with_a_reason() {
    // Loading was not counted: a launch costs half an hour instead of twelve minutes.
    let figures = Figures { machine_s: 1_800.0, ..Figures::default() };
    let workspace = Workspace::frozen(&figures);
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).starts_with("incomplete: "), "{}", stdout(&output));
    let result = workspace.result();
    assert_eq!(result["status"], "incomplete");
    assert!(result["cost"]["spent_min"].as_f64().unwrap() <= 180.0, "{}", result["cost"]);
    assert!(result["scorecard"].is_null());
    let before = workspace.read("launches.log").lines().count();
    assert_eq!(code(&workspace.prereg(&["run", "seed", "--resume"])), 1);
    assert_eq!(
        workspace.read("launches.log").lines().count(),
        before,
        "it launched past the ceiling"
    );
    let args = ["run", "seed", "--resume", "--over-ceiling", "agreed in review"];
    assert_eq!(code(&workspace.prereg(&args)), 1);
    let result = workspace.result();
    assert_eq!((&result["status"], &result["rule"]), (&"decided".into(), &"below_bar".into()));
    assert_eq!(result["cost"]["over_ceiling"], serde_json::json!(["agreed in review"]));
    let report = workspace.report();
    assert!(report.contains("330.0 of 180 min of machine time"), "{report}");
    assert!(report.contains("Continued past the ceiling: agreed in review"), "{report}");
}

#[test]
fn the_report_follows_from_the_samples_alone() {
    let (_, _, workspace) = run_seed(&Figures::default());
    let folder = workspace.run_folder();
    let report = workspace.report();
    assert_eq!(code(&workspace.prereg(&["report", "seed", "--check"])), 0);
    // Neither the document as it is now nor the report that was there matters.
    workspace.edit("bench-configs/prereg/seed.toml", "primary >= 5 %", "primary >= 1 %");
    std::fs::remove_file(folder.join("result.json")).unwrap();
    std::fs::write(folder.join("report.md"), report.replace("−7.29 %", "+7.29 %")).unwrap();
    let output = workspace.prereg(&["report", "seed", "--check"]);
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).contains("+7.29 %"), "{}", stdout(&output));
    assert_eq!(code(&workspace.prereg(&["report", "seed"])), 1);
    assert_eq!(workspace.report(), report);
    assert_eq!(code(&workspace.prereg(&["report", "seed", "--check"])), 0);
    // One reading that was changed is seen.
    let samples = folder.join("samples.jsonl");
    let text = std::fs::read_to_string(&samples).unwrap();
    assert!(text.contains("2.497"));
    std::fs::write(&samples, text.replacen("2.497", "2.097", 1)).unwrap();
    assert_eq!(code(&workspace.prereg(&["report", "seed", "--check"])), 1);
}

#[test]
fn a_transfer_records_and_does_not_re_open_the_decision() {
    let figures = Figures { p1_loss_difference: 0.0, c: 2.10, ..Figures::default() };
    let (exit, result, workspace) = run_seed(&figures);
    assert_eq!(exit, 0);
    let output = workspace.prereg(&["transfer", "seed"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stdout(&output).contains("| primary | +6.71 % | +6.71 % |"), "{}", stdout(&output));
    assert!(stdout(&output).contains("it held"), "{}", stdout(&output));
    assert_eq!(workspace.result(), result);
    assert_eq!(code(&workspace.prereg(&["report", "seed", "--check"])), 0);
}

#[test]
fn killed_at_random_twenty_times_it_ends_as_if_it_never_was() {
    let figures = Figures { pause_ms: 25, ..Figures::default() };
    let whole = Workspace::frozen(&figures);
    let output = whole.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 1);
    let mut kills = 0;
    // A fixed sequence that looks random: each moment between 0 and 160 ms after the start.
    let mut moments = 0x9e37_79b9_7f4a_7c15_u64;
    // A fast machine is done before the twentieth kill, and is given another ladder.
    while kills < 20 {
        let workspace = Workspace::frozen(&figures);
        while kills < 20 {
            moments ^= moments << 13;
            moments ^= moments >> 7;
            moments ^= moments << 17;
            let mut child = workspace
                .command(&run_or_resume(&workspace))
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(std::time::Duration::from_millis(moments % 160));
            if child.try_wait().unwrap().is_none() {
                child.kill().unwrap();
                kills += 1;
            }
            if child.wait().unwrap().code().is_some() {
                break;
            }
        }
        let last = workspace.prereg(&run_or_resume(&workspace));
        assert!(code(&last) == 1 || stderr(&last).contains("is complete"), "{}", stderr(&last));
        for file in ["samples.jsonl", "report.md", "result.json"] {
            assert_eq!(read_redacted(&workspace, file), read_redacted(&whole, file), "{file}");
        }
    }
}

#[test]
fn a_run_that_was_killed_before_its_report_is_given_one() {
    let workspace = Workspace::frozen(&Figures::default());
    assert_eq!(code(&workspace.prereg(&["run", "seed"])), 1);
    let folder = workspace.run_folder();
    let files = ["report.md", "result.json"].map(|name| folder.join(name));
    let written = files.each_ref().map(|path| std::fs::read_to_string(path).unwrap());
    std::fs::remove_file(&files[0]).unwrap();
    std::fs::write(&files[1], "{}").unwrap();
    assert_eq!(code(&workspace.prereg(&["run", "seed", "--resume"])), 1);
    assert_eq!(files.each_ref().map(|path| std::fs::read_to_string(path).unwrap()), written);
}

fn run_or_resume(workspace: &Workspace) -> Vec<&'static str> {
    match folders(&workspace.path("benchmarks/prereg/seed")).is_empty() {
        true => vec!["run", "seed"],
        false => vec!["run", "seed", "--resume"],
    }
}

/// A file of the run. Two workspaces are two repositories: their commits, and with them the hashes of
/// the chain, differ, and nothing else does.
fn read_redacted(workspace: &Workspace, file: &str) -> String {
    let text = std::fs::read_to_string(workspace.run_folder().join(file)).unwrap();
    let commit = workspace.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let frozen = workspace.read("bench-configs/prereg/seed.frozen.json");
    let frozen: serde_json::Value = serde_json::from_str(&frozen).unwrap();
    let version = &frozen["versions"][0];
    let entry = version["entry_sha256"].as_str().unwrap();
    text.replace(&commit, "[commit]")
        .replace(version["pins"]["commit"].as_str().unwrap(), "[frozen commit]")
        .replace(entry, "[entry]")
        .replace(&entry[..12], "[entry]")
}

#[test]
fn the_template_is_a_ladder_that_checks() {
    let workspace = Workspace::new(SEED, &Figures::default());
    let output = workspace.prereg(&["new", "fresh"]);
    assert_eq!(code(&output), 0);
    assert_eq!(stdout(&output), "bench-configs/prereg/fresh.toml\n");
    assert_eq!(code(&workspace.prereg(&["new", "fresh"])), 2, "it is not overwritten");
    workspace.edit("bench-configs/prereg/fresh.toml", "decode-bench", "scripted");
    let output = workspace.prereg(&["check", "fresh"]);
    // The scripted runner writes no cell report, which the linter sees.
    assert_eq!(code(&output), 1);
    assert!(stdout(&output).contains("guard-without-metric:memory"), "{}", stdout(&output));
}

#[test]
fn a_document_with_an_unknown_key_names_the_nearest() {
    let text = SEED.replacen("ceiling_min", "cieling_min", 1);
    let workspace = Workspace::new(&text, &Figures::default());
    let output = workspace.prereg(&["check", "seed"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("did you mean `ceiling_min`?"), "{}", stderr(&output));
}

#[test]
fn a_frozen_file_that_was_tampered_with_is_refused() {
    let workspace = Workspace::frozen(&Figures::default());
    workspace.edit("bench-configs/prereg/seed.frozen.json", "primary >= 5 %", "primary >= 1 %");
    workspace.edit("bench-configs/prereg/seed.toml", "primary >= 5 %", "primary >= 1 %");
    workspace.commit();
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("was changed after it was frozen"), "{}", stderr(&output));
}

/// A workspace with a program of its own, which the ladder builds.
fn built_workspace() -> Workspace {
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
    let workspace = Workspace::new(SEED, &Figures::default());
    workspace.write("bench-configs/prereg/seed.toml", document);
    workspace.write(
        "bench-configs/runners/built.toml",
        "result = \"report\"\ncommand = [\"{target_dir}/release/step\", \"{model}\", \
         \"{prompt_tokens}\", \"{report}\"]\n[build]\npackage = \"step\"\nbin = \"step\"\n",
    );
    workspace.write("Cargo.toml", "[workspace]\nmembers = [\"step\"]\nresolver = \"2\"\n");
    workspace.write(".gitignore", "/target\n/benchmarks/.sweep.lock\n");
    workspace.write(
        "step/Cargo.toml",
        "[package]\nname = \"step\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[[bin]]\nname = \
         \"step\"\npath = \"main.rs\"\n",
    );
    workspace.write("step/main.rs", &step_program(10));
    workspace
        .write("Cargo.lock", "version = 3\n\n[[package]]\nname = \"step\"\nversion = \"0.1.0\"\n");
    workspace.commit();
    workspace
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
    let workspace = built_workspace();
    workspace.git(&["branch", "--quiet", "fast"]);
    workspace.git(&["checkout", "--quiet", "fast"]);
    workspace.write("step/main.rs", &step_program(8));
    workspace.commit();
    workspace.git(&["checkout", "--quiet", "-"]);
    workspace.freeze();
    let before = workspace.git(&["rev-parse", "HEAD"]);
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let result = workspace.result();
    assert_eq!(result["rule"], "land");
    assert_eq!(result["rounds"][0]["figures"]["step_ms"]["B"]["value"], 8.0);
    assert_eq!(workspace.git(&["rev-parse", "HEAD"]), before);
    assert_eq!(workspace.git(&["status", "--porcelain", "--", "step"]), "");
    assert_eq!(workspace.git(&["worktree", "list"]).lines().count(), 1, "no tree is left behind");

    // The branch moves: the revision is no longer what was frozen.
    workspace.git(&["checkout", "--quiet", "fast"]);
    workspace.write("step/main.rs", &step_program(7));
    workspace.commit();
    workspace.git(&["checkout", "--quiet", "-"]);
    let output = workspace.prereg(&["run", "seed", "--again", "x"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("revision `fast` has moved since"), "{}", stderr(&output));
}

#[test]
fn changed_code_of_a_base_rung_is_refused_committed_or_not() {
    let workspace = built_workspace();
    workspace.git(&["branch", "--quiet", "fast"]);
    workspace.freeze();
    workspace.write("step/main.rs", &step_program(5));
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("not committed: step/main.rs"), "{}", stderr(&output));
    workspace.commit();
    let output = workspace.prereg(&["run", "seed"]);
    assert_eq!(code(&output), 2);
    let told = stderr(&output);
    assert!(
        told.contains("the code that the rungs run differs from what was frozen at commit"),
        "{told}"
    );
}

#[test]
fn a_launch_that_the_machine_did_not_survive_is_not_repeated() {
    let workspace = Workspace::frozen(&Figures { p1_loss_difference: 0.0, ..Figures::default() });
    assert_eq!(code(&workspace.prereg(&["run", "seed"])), 0);
    let folder = workspace.run_folder();
    // As the disk is after the machine went down in the middle of rung C: a launch without an end,
    // from another start of the machine.
    let keep_until = |file: &str, marker: &str, inclusive: bool| {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        let at = text.find(marker).unwrap();
        let line = text[..at].rfind('\n').map_or(0, |at| at + 1);
        let end = if inclusive { at + text[at..].find('\n').unwrap() + 1 } else { line };
        std::fs::write(folder.join(file), &text[..end]).unwrap();
    };
    keep_until("samples.jsonl", "\"rung\":\"C\"", false);
    keep_until("journal.jsonl", "\"rung\":\"C\"", true);
    let journal = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    let boot = journal.split("\"boot\":\"").nth(1).unwrap()[..12].to_owned();
    std::fs::write(folder.join("journal.jsonl"), journal.replace(&boot, "0123456789ab")).unwrap();
    let before = workspace.read("launches.log").lines().count();
    let output = workspace.prereg(&["run", "seed", "--resume"]);
    assert!(stderr(&output).contains("the host was lost during rung C 1/1"), "{}", stderr(&output));
    let result = workspace.result();
    let crash = result["rounds"][0]["crashed"]["C"].as_str().unwrap();
    assert!(crash.contains("FAIL:host_lost"), "{crash}");
    assert_eq!(result["rounds"][0]["rules"][3]["result"], "fired");
    let report = workspace.report();
    assert!(report.contains("- the host went down during a launch"), "{report}");
    // A again, then the second pass over the ladder: A, B, C′, A again.
    let after = workspace.read("launches.log").lines().count();
    assert_eq!(after - before, 5, "{}", workspace.read("launches.log"));
}

#[test]
fn a_disturbed_launch_is_made_again_twice_and_then_counts_with_a_word() {
    let document = SEED
        .replace("cost_field = \"machine_s\"\n", "max_other_load = \"20 %\"\n")
        .replace("launch_estimate_min = 12", "launch_estimate_min = 1");
    let workspace = Workspace::new(&document, &Figures::default());
    workspace.freeze();
    // Every processor is busy with something else.
    let processors = std::thread::available_parallelism().unwrap().get();
    let mut busy: Vec<std::process::Child> = (0..processors)
        .map(|_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
        .collect();
    let output = workspace.prereg(&["run", "seed"]);
    for child in &mut busy {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("rung A 1/1 was disturbed and is made again"));
    let launches = workspace.read("launches.log");
    let ladder = launches.lines().filter(|line| line.ends_with(" 1100")).count();
    assert_eq!(ladder, 12, "four rungs, three times each");
    let report = workspace.report();
    let told = |text: &str| report.lines().filter(|line| line.contains(text)).count();
    assert_eq!(told("was not counted: it was disturbed: other processes took"), 8, "{report}");
    assert_eq!(told("counts although it was disturbed: other processes took"), 4, "{report}");
    assert_eq!(workspace.result()["rule"], "below_bar");
}

/// The workspace that holds this test.
fn own_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn own_prereg(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("prereg").args(args).current_dir(own_root()).output().unwrap()
}

#[test]
fn the_shipped_ladders_have_no_finding() {
    for name in ["alloc-cache", "prefill-chunk"] {
        let output = own_prereg(&["check", name]);
        assert_eq!(code(&output), 0, "{name}: {}", stdout(&output));
        assert_eq!(stdout(&output), "", "{name}");
    }
}

#[test]
fn committed_reports_are_what_their_samples_say() {
    for ladder in folders(&own_root().join("benchmarks/prereg")) {
        let name = ladder.file_name().unwrap().to_str().unwrap();
        for run in folders(&ladder) {
            let date = run.file_name().unwrap().to_str().unwrap();
            let output = own_prereg(&["report", name, "--run", date, "--check"]);
            assert_eq!(code(&output), 0, "{name} {date}: {}", stdout(&output));
        }
    }
}
