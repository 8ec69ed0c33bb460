//! Runs that end early, are gone on with, or are made again.

use testkit::{Command, Started};

use super::script::{Fault, Figures};
use super::{Lab, SEED};

#[test]
fn a_version_is_run_once_unless_the_report_may_say_why_again() {
    let lab = Lab::frozen(&Figures::default());
    lab.prereg(&["run", "seed"]).exits_with(1);
    let output = lab.prereg(&["run", "seed"]).exits_with(2);
    assert!(output.stderr.contains("this version has been run: "), "{}", output.stderr);
    let output = lab.prereg(&["run", "seed", "--resume"]).exits_with(2);
    assert!(output.stderr.contains("is complete"), "{}", output.stderr);
    lab.prereg(&["run", "seed", "--again", "the fan was broken"]).exits_with(1);
    let second = lab.runs().pop().unwrap();
    let report = lab.read(second.join("report.md"));
    assert!(report.contains("run again after ") && report.contains(": the fan was broken"));
}

#[test]
fn at_the_ceiling_it_stops_and_goes_on_only_with_a_reason() {
    // Loading was not counted: a launch costs half an hour instead of twelve minutes.
    let figures = Figures { machine_s: 1_800.0, ..Figures::default() };
    let lab = Lab::frozen(&figures);
    let output = lab.prereg(&["run", "seed"]).exits_with(1);
    assert!(output.stdout.starts_with("incomplete: "), "{}", output.stdout);
    let result = lab.result();
    assert_eq!(result["status"], "incomplete");
    assert!(result["cost"]["spent_min"].as_f64().unwrap() <= 180.0, "{}", result["cost"]);
    assert!(result["scorecard"].is_null());
    let before = lab.launches().len();
    lab.prereg(&["run", "seed", "--resume"]).exits_with(1);
    assert_eq!(lab.launches().len(), before, "it launched past the ceiling");
    let args = ["run", "seed", "--resume", "--over-ceiling", "agreed in review"];
    lab.prereg(&args).exits_with(1);
    let result = lab.result();
    assert_eq!((&result["status"], &result["rule"]), (&"decided".into(), &"below_bar".into()));
    assert_eq!(result["cost"]["over_ceiling"], serde_json::json!(["agreed in review"]));
    let report = lab.report();
    assert!(report.contains("330.0 of 180 min of machine time"), "{report}");
    assert!(report.contains("Continued past the ceiling: agreed in review"), "{report}");
}

#[test]
fn killed_at_random_twenty_times_it_ends_as_if_it_never_was() {
    let figures = Figures { pause_ms: 25, ..Figures::default() };
    let whole = Lab::frozen(&figures);
    whole.prereg(&["run", "seed"]).exits_with(1);
    let mut kills = 0;
    // A fixed sequence that looks random: each moment between 0 and 160 ms after the start.
    let mut moments = 0x9e37_79b9_7f4a_7c15_u64;
    // A fast machine is done before the twentieth kill, and is given another ladder.
    while kills < 20 {
        let lab = Lab::frozen(&figures);
        while kills < 20 {
            moments ^= moments << 13;
            moments ^= moments >> 7;
            moments ^= moments << 17;
            let child = lab.command(&run_or_resume(&lab)).start();
            std::thread::sleep(std::time::Duration::from_millis(moments % 160));
            let ran = child.kill();
            if ran.code.is_some() {
                break;
            }
            kills += 1;
        }
        let last = lab.prereg(&run_or_resume(&lab));
        assert!(last.code == Some(1) || last.stderr.contains("is complete"), "{}", last.stderr);
        for file in ["samples.jsonl", "report.md", "result.json"] {
            assert_eq!(read_redacted(&lab, file), read_redacted(&whole, file), "{file}");
        }
    }
}

#[test]
fn a_recorded_model_is_not_launched_and_an_oom_of_its_own_is_recorded_once() {
    let lab = Lab::frozen(&Figures::default());
    lab.write("benchmarks/.oom-record", "model,50,2026-07-03,abc1234,,old.csv\n");
    let ran = lab.prereg(&["run", "seed"]).exits_with(2);
    let said = "not launched: the OOM record holds `model,50,2026-07-03,abc1234,,old.csv`";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let hint = "`cargo xtask prereg run seed --ignore-oom-record`";
    assert!(ran.stderr.contains(hint), "{}", ran.stderr);
    assert!(lab.launches().is_empty() && lab.runs().is_empty());

    let lab = Lab::frozen(&Figures { fault: Fault::OneItemCrashes, ..Figures::default() });
    lab.prereg(&["run", "seed"]);
    let record = lab.read("benchmarks/.oom-record");
    assert!(record.starts_with("model+P1,") && record.lines().count() == 1, "{record}");
    assert!(record.trim_end().ends_with("/samples.jsonl,prereg run"), "{record}");
}

#[test]
fn a_run_that_was_killed_before_its_report_is_given_one() {
    let lab = Lab::frozen(&Figures::default());
    lab.prereg(&["run", "seed"]).exits_with(1);
    let folder = lab.run_folder();
    let files = ["report.md", "result.json"].map(|name| folder.join(name));
    let written = files.each_ref().map(|path| lab.read(path));
    lab.remove(&files[0]);
    lab.write(&files[1], "{}");
    lab.prereg(&["run", "seed", "--resume"]).exits_with(1);
    assert_eq!(files.each_ref().map(|path| lab.read(path)), written);
}

fn run_or_resume(lab: &Lab) -> Vec<&'static str> {
    match lab.runs().is_empty() {
        true => vec!["run", "seed"],
        false => vec!["run", "seed", "--resume"],
    }
}

/// The text with nothing in place of the hashes that tie lines of samples to each other: the first
/// line names a commit, and every later hash depends on it.
fn without_links(mut text: String) -> String {
    for marker in ["\"previous\":\"", "\"last_sha256\": \"", "the SHA-256 of the last is "] {
        let parts: Vec<String> = (text.split(marker).enumerate())
            .map(|(at, part)| if at == 0 { part } else { &part[64..] }.to_owned())
            .collect();
        text = parts.join(marker);
    }
    text
}

/// A file of the run. Two workspaces are two repositories: their commits, and with them the hashes of
/// the chain, differ, and nothing else does.
fn read_redacted(lab: &Lab, file: &str) -> String {
    let text = lab.read(lab.run_folder().join(file));
    let commit = lab.git(&["rev-parse", "HEAD"]);
    let frozen = lab.read_json("bench-configs/prereg/seed.frozen.json");
    let version = &frozen["versions"][0];
    let entry = version["entry_sha256"].as_str().unwrap();
    without_links(text)
        .replace(&commit, "[commit]")
        .replace(version["pins"]["commit"].as_str().unwrap(), "[frozen commit]")
        .replace(entry, "[entry]")
        .replace(&entry[..12], "[entry]")
}

#[test]
fn a_launch_that_the_machine_did_not_survive_is_not_repeated() {
    let lab = Lab::frozen(&Figures { p1_loss_difference: 0.0, ..Figures::default() });
    lab.prereg(&["run", "seed"]).exits_with(0);
    let folder = lab.run_folder();
    // As the disk is after the machine went down in the middle of rung C: a launch without an end,
    // from another start of the machine.
    let keep_until = |file: &str, marker: &str, inclusive: bool| {
        let text = lab.read(folder.join(file));
        let at = text.find(marker).unwrap();
        let line = text[..at].rfind('\n').map_or(0, |at| at + 1);
        let end = if inclusive { at + text[at..].find('\n').unwrap() + 1 } else { line };
        lab.write(folder.join(file), &text[..end]);
    };
    keep_until("samples.jsonl", "\"rung\":\"C\"", false);
    keep_until("journal.jsonl", "\"rung\":\"C\"", true);
    let journal = lab.read(folder.join("journal.jsonl"));
    let boot = journal.split("\"boot\":\"").nth(1).unwrap()[..12].to_owned();
    lab.write(folder.join("journal.jsonl"), journal.replace(&boot, "0123456789ab"));
    let before = lab.launches().len();
    let output = lab.prereg(&["run", "seed", "--resume"]);
    assert!(output.stderr.contains("the host was lost during rung C 1/1"), "{}", output.stderr);
    let result = lab.result();
    let crash = result["rounds"][0]["crashed"]["C"].as_str().unwrap();
    assert!(crash.contains("FAIL:host_lost"), "{crash}");
    assert_eq!(result["rounds"][0]["rules"][3]["result"], "fired");
    let report = lab.report();
    assert!(report.contains("- the host went down during a launch"), "{report}");
    // A again, then the second pass over the ladder: A, B, C′, A again.
    let after = lab.launches().len();
    assert_eq!(after - before, 5, "{:?}", lab.launches());
}

#[test]
fn a_disturbed_launch_is_made_again_twice_and_then_counts_with_a_word() {
    let document = SEED
        .replace("cost_field = \"machine_s\"\n", "max_other_load = \"20 %\"\n")
        .replace("launch_estimate_min = 12", "launch_estimate_min = 1");
    let lab = Lab::new(&document, &Figures::default());
    lab.freeze();
    // Every processor is busy with something else.
    let processors = std::thread::available_parallelism().unwrap().get();
    let spin = Command::new("/bin/sh", lab.root()).args(["-c", "while :; do :; done"]);
    let busy: Vec<Started> = (0..processors).map(|_| spin.start()).collect();
    let output = lab.prereg(&["run", "seed"]).exits_with(1);
    drop(busy);
    assert!(output.stderr.contains("rung A 1/1 was disturbed and is launched again"));
    assert_eq!(lab.ladder_launches(), 12, "four rungs, three times each");
    let report = lab.report();
    let told = |text: &str| report.lines().filter(|line| line.contains(text)).count();
    assert_eq!(told("was not counted: it was disturbed: other processes took"), 8, "{report}");
    assert_eq!(told("counts although it was disturbed: other processes took"), 4, "{report}");
    assert_eq!(lab.result()["rule"], "below_bar");
    let said = "; contended: 4 launches count although other work disturbed them";
    assert!(output.stdout.trim_end().ends_with(said), "{}", output.stdout);
    assert!(report.contains("Contended: 4 launches of the ladder count although"), "{report}");
}
