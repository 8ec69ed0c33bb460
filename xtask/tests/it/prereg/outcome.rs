//! What comes out of a ladder: every rule, crashes, readings that are not finite, the guard, transfer.

use serde_json::Value;
use testkit::assert_shown;

use super::script::{Fault, Figures};
use super::{DOCUMENT, Lab, SEED, redacted, run_seed};

#[test]
fn the_seed_ladder_comes_out_as_it_did() {
    let (exit, result, lab) = run_seed(&Figures::default());
    assert_eq!(exit, 1, "an oracle failed");
    assert_eq!(result["status"], "decided");
    assert_eq!(result["rule"], "below_bar");
    assert_eq!(result["landing"]["land"], serde_json::json!(["P2", "P4"]));
    assert_eq!(result["dropped"][0]["item"], "P1");
    let ladder = &result["rounds"][0]["ladder"];
    assert_eq!(ladder[1]["state"], "receipt");
    assert_eq!(ladder[2]["name"], "C′");
    assert_eq!(ladder[2]["items"], serde_json::json!(["P2", "P3", "P4"]));
    assert_shown!(redacted(&lab), lab.report());
}

#[test]
fn the_landing_rule_fires_when_the_bundle_is_fast_and_everything_is_green() {
    let figures = Figures { p1_loss_difference: 2e-4, c: 2.10, ..Figures::default() };
    let (exit, result, _lab) = run_seed(&figures);
    assert_eq!((exit, &result["rule"]), (0, &"land".into()));
    assert_eq!(result["landing"]["land"], serde_json::json!(["P1", "P2", "P3", "P4"]));
    assert_eq!(result["dropped"], serde_json::json!([]));
}

#[test]
fn the_parity_rule_fires_when_no_item_survives_and_no_rung_runs() {
    let figures = Figures { every_oracle_fails: true, ..Figures::default() };
    let (exit, result, lab) = run_seed(&figures);
    assert_eq!((exit, &result["rule"]), (1, &"parity".into()));
    assert_eq!(result["landing"]["land"], serde_json::json!([]));
    let samples = lab.read(lab.run_folder().join("samples.jsonl"));
    assert!(!samples.contains("\"rung\":\"C\""), "nothing is left to measure");
}

#[test]
fn the_last_rule_fires_when_the_checks_are_not_green() {
    let figures =
        Figures { p1_loss_difference: 0.0, c: 2.10, checks_green: false, ..Figures::default() };
    let (exit, result, _lab) = run_seed(&figures);
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
    let (exit, result, lab) = run_seed(&figures);
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 2);
    assert!(rounds[0]["crashed"]["C"].as_str().unwrap().contains("illegal memory access"));
    let rules = rounds[0]["rules"].as_array().unwrap();
    assert_eq!(rules[1]["result"], "does_not_apply");
    assert_eq!((&rules[3]["rule"], &rules[3]["result"]), (&"unstable".into(), &"fired".into()));
    assert_eq!(rounds[1]["ladder"][2]["name"], "C′");
    assert_eq!((exit, &result["rule"]), (0, &"land".into()));
    assert_eq!(result["landing"]["park"], serde_json::json!(["P1"]));
    let report = lab.report();
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
    let (_, result, lab) = run_seed(&figures);
    // The landing rule comes first, and speaks of C alone.
    assert_eq!(result["rule"], "land");
    assert!(result["rounds"][0]["crashed"]["B"].as_str().unwrap().contains("SKIP:oom"));
    assert_eq!(lab.ladder_launches(), 4, "A, B, C and A again, each once: {:?}", lab.launches());
}

#[test]
fn a_nan_at_step_37_fails_the_curve_and_drops_the_item() {
    let figures =
        Figures { p1_loss_difference: 0.0, fault: Fault::NanInCurve, ..Figures::default() };
    let (exit, result, _lab) = run_seed(&figures);
    assert_eq!(exit, 1);
    let failed: Vec<&Value> = (result["oracles"].as_array().unwrap().iter())
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
    let (_, result, _lab) = run_seed(&figures);
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
        let (exit, result, _lab) = run_seed(&figures);
        let round = &result["rounds"][0];
        assert_eq!(round["guards"][0]["passes"], passes, "{growth}");
        assert_eq!(result["rule"], rule, "{growth}");
        assert_eq!(exit, i32::from(!passes), "{growth}");
        assert_eq!(round["reads"][0]["failed_by"].is_null(), passes, "{growth}");
    }
}

#[test]
fn progress_shows_cost_and_no_figure_before_every_rung_is_in() {
    let lab = Lab::frozen(&Figures::default());
    let output = lab.prereg(&["run", "seed"]);
    let progress = output.stderr;
    assert!(progress.contains("rung C′ 1/1"), "{progress}");
    assert!(progress.contains("min spent"), "{progress}");
    for figure in ["2.251", "2.495", "2.415", "8.7e-3", "passed", "failed", "faster", "%"] {
        assert!(!progress.contains(figure), "progress tells `{figure}`:\n{progress}");
    }
    assert!(output.stdout.starts_with("rule `below_bar` fired"), "{}", output.stdout);
}

#[test]
fn the_report_follows_from_the_samples_alone() {
    let (_, _, lab) = run_seed(&Figures::default());
    let folder = lab.run_folder();
    let report = lab.report();
    lab.prereg(&["report", "seed", "--check"]).exits_with(0);
    // Neither the document as it is now nor the report that was there matters.
    lab.edit(DOCUMENT, "primary >= 5 %", "primary >= 1 %");
    lab.remove(folder.join("result.json"));
    lab.write(folder.join("report.md"), report.replace("−7.29 %", "+7.29 %"));
    let output = lab.prereg(&["report", "seed", "--check"]).exits_with(1);
    assert!(output.stdout.contains("+7.29 %"), "{}", output.stdout);
    lab.prereg(&["report", "seed"]).exits_with(1);
    assert_eq!(lab.report(), report);
    lab.prereg(&["report", "seed", "--check"]).exits_with(0);
    // One reading that was changed is seen.
    let samples = folder.join("samples.jsonl");
    let text = lab.read(&samples);
    assert!(text.contains("2.497"));
    let edited = text.replacen("2.497", "2.097", 1);
    lab.write(&samples, &edited);
    let output = lab.prereg(&["report", "seed", "--check"]).exits_with(1);
    let said = "does not hold the hash of the line before: a line was changed, added or removed";
    assert!(output.stdout.contains(said), "{}", output.stdout);
    let output = lab.prereg(&["report", "seed"]).exits_with(2);
    assert!(output.stderr.contains("were edited: line "), "{}", output.stderr);
    assert_eq!(lab.report(), report);
    // Whoever makes every hash anew as well changes the last one, which the report holds.
    lab.write(&samples, rechain(&edited));
    let output = lab.prereg(&["report", "seed", "--check"]).exits_with(1);
    assert!(output.stdout.contains("the SHA-256 of the last is"), "{}", output.stdout);
    lab.write(&samples, rechain(&text));
    lab.prereg(&["report", "seed", "--check"]).exits_with(0);
}

/// The lines with the hash of the line before made anew in each.
fn rechain(samples: &str) -> String {
    use sha2::Digest as _;
    let key = "{\"previous\":\"";
    let mut last: Option<String> = None;
    let mut whole = String::new();
    for line in samples.lines() {
        let bare = match line.strip_prefix(key) {
            Some(rest) => &rest[64 + 2..],
            None => &line[1..],
        };
        let line = match &last {
            Some(hash) => format!("{key}{hash}\",{bare}"),
            None => format!("{{{bare}"),
        };
        let digest = sha2::Sha256::digest(line.as_bytes());
        last = Some(digest.iter().map(|byte| format!("{byte:02x}")).collect());
        whole += &line;
        whole += "\n";
    }
    whole
}

#[test]
fn a_transfer_records_and_does_not_re_open_the_decision() {
    let figures = Figures { p1_loss_difference: 0.0, c: 2.10, ..Figures::default() };
    let (exit, result, lab) = run_seed(&figures);
    assert_eq!(exit, 0);
    let output = lab.prereg(&["transfer", "seed"]).exits_with(0);
    assert!(output.stdout.contains("| primary | +6.71 % | +6.71 % |"), "{}", output.stdout);
    assert!(output.stdout.contains("it held"), "{}", output.stdout);
    assert_eq!(lab.result(), result);
    lab.prereg(&["report", "seed", "--check"]).exits_with(0);
}

#[test]
fn a_base_that_writes_no_log_ends_the_run_undecided_at_that_launch() {
    let (exit, result, lab) =
        run_seed(&Figures { fault: Fault::BaseIsSilent, ..Figures::default() });
    assert_eq!((exit, &result["status"], &result["rule"]), (1, &"undecided".into(), &Value::Null));
    assert_eq!(lab.launches().len(), 1, "{:?}", lab.launches());
    assert_eq!(
        (&result["dropped"], &result["oracles"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
    let why = result["why_open"].as_str().unwrap();
    assert!(why.starts_with(
        "the base failed in the launch for oracles (base prompt=1 steps=1): FAIL:no_output"
    ));
    assert!(lab.report().contains("**Undecided: the base failed"), "{}", lab.report());
    lab.prereg(&["report", "seed", "--check"]).exits_with(0);
}

#[test]
fn a_wrong_field_of_a_metric_is_found_at_the_first_launch() {
    let document = SEED.replace("field = \"s_per_step\"", "field = \"s_per_stp\"");
    let lab = Lab::new(&document, &Figures::default());
    lab.freeze();
    let ran = lab.prereg(&["run", "seed"]).exits_with(1);
    assert_eq!(lab.launches().len(), 1, "{:?}", lab.launches());
    let said = "it reported no s_per_step: its log has no `s_per_stp`; did you mean `s_per_step`?";
    assert!(ran.stdout.starts_with("undecided: ") && ran.stdout.contains(said), "{}", ran.stdout);
}
