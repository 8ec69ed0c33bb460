use super::*;
use crate::prereg::fixture::{SEED, parse, seed_with};

fn findings_with(text: &str, surroundings: Surroundings) -> Vec<String> {
    let document = parse(text);
    check_document(&document, surroundings)
        .iter()
        .filter(|finding| finding.waived.is_none())
        .map(Finding::name)
        .collect()
}

fn findings(text: &str) -> Vec<String> {
    findings_with(text, Surroundings::default())
}

fn finding_of(text: &str, name: &str) -> String {
    let document = parse(text);
    let all = check_document(&document, Surroundings::default());
    let names: Vec<String> = all.iter().map(Finding::name).collect();
    match all.iter().find(|finding| finding.name() == name) {
        Some(finding) => finding.to_string(),
        None => panic!("no {name} among {names:?}"),
    }
}

#[test]
fn the_seed_has_one_finding_a_crash_of_its_base() {
    assert_eq!(findings(SEED), ["uncovered-crash:rules"]);
    assert_eq!(
        finding_of(SEED, "uncovered-crash:rules"),
        "warning[uncovered-crash:rules]: no rule covers: A crashes; the run would end undecided"
    );
}

#[test]
fn the_template_has_no_finding() {
    assert_eq!(findings(&crate::prereg::template::render_template("x")), Vec::<String>::new());
}

#[test]
fn a_rung_that_nothing_reads_is_an_error() {
    let text = format!("{SEED}\n[[rungs]]\nid = \"D\"\nitems = [\"P2\"]\n");
    assert!(findings(&text).contains(&"unused-rung:D".to_owned()));
}

#[test]
fn an_item_that_no_rung_carries_is_an_error() {
    let text =
        seed_with("items = [\"P1\", \"P2\", \"P3\", \"P4\"]", "items = [\"P1\", \"P2\", \"P3\"]");
    assert!(findings(&text).contains(&"unused-item:P4".to_owned()));
}

#[test]
fn an_outcome_without_a_rule_is_named() {
    let text = seed_with("primary < 5 % or not guard(vram)", "primary < 4 % or not guard(vram)");
    assert_eq!(
        finding_of(&text, "uncovered:rules"),
        "error[uncovered:rules]: no rule covers: primary = +4.00 %"
    );
    let text = seed_with("primary < 5 % or not guard(vram)", "primary < 5 %");
    assert_eq!(
        finding_of(&text, "uncovered:rules"),
        "error[uncovered:rules]: no rule covers: guard vram fails"
    );
    let text = seed_with("primary >= 5 % and not oracle(checks_green)", "primary >= 50 %");
    assert!(finding_of(&text, "uncovered:rules").contains("oracle checks_green fails"));
}

#[test]
fn a_rule_that_contradicts_itself_and_one_that_comes_too_late_are_errors() {
    let text =
        seed_with("primary >= 5 % and oracle", "primary >= 5 % and primary < 4 % and oracle");
    assert!(findings(&text).contains(&"contradiction:land".to_owned()));
    let text = seed_with("surviving_items == 0", "always");
    assert!(findings(&text).contains(&"unreachable:land".to_owned()));
}

#[test]
fn a_clause_that_cannot_bind_is_an_error() {
    let text =
        seed_with("primary >= 5 % and oracle", "primary >= 5 % and primary >= 3 % and oracle");
    assert!(finding_of(&text, "idle-clause:land").contains("`primary >= 3 %` can never matter"));
    let text =
        seed_with("primary < 5 % or not guard", "primary < 5 % or primary < 2 % or not guard");
    assert!(
        finding_of(&text, "idle-clause:below_bar").contains("`primary < 2 %` can never matter")
    );
    let text = seed_with(
        "primary < 5 % or not guard",
        "not (primary >= 5 % and primary >= 2 %) or not guard",
    );
    assert!(
        finding_of(&text, "idle-clause:below_bar").contains("`primary >= 2 %` can never matter")
    );
}

#[test]
fn a_bar_below_the_noise_is_an_error_where_the_noise_is_known() {
    let noise = |measured_noise| Surroundings { measured_noise, ..Surroundings::default() };
    let name = "threshold-below-noise:land".to_owned();
    assert!(findings_with(SEED, noise(Some(0.06))).contains(&name));
    assert!(!findings_with(SEED, noise(Some(0.04))).contains(&name));
    let text = seed_with("seed = 0", "seed = 0\nnoise_floor = \"6 %\"");
    assert!(findings(&text).contains(&name));
    let text = seed_with("seed = 0", "seed = 0\nnoise_floor = \"1 %\"");
    assert!(
        findings_with(&text, noise(Some(0.02)))
            .contains(&"noise-floor-too-low:protocol".to_owned())
    );
}

#[test]
fn a_guard_without_its_metric_in_the_reports_is_an_error() {
    let from = "from = \"log\"\nfield = \"vram_window_peak_gib\"";
    let text = seed_with(from, "from = \"report\"\nfield = \"memory.vram_peak\"");
    assert!(findings(&text).contains(&"guard-without-metric:vram".to_owned()));
    let text = seed_with(from, "from = \"report\"\nfield = \"memory.total_peak_bytes\"");
    assert!(!findings(&text).contains(&"guard-without-metric:vram".to_owned()));
    let none = Surroundings { reports: Reports::None, ..Surroundings::default() };
    assert!(findings_with(&text, none).contains(&"guard-without-metric:vram".to_owned()));
    // A guard that fails nothing and that no rule asks for never binds.
    let text = seed_with("fails = [\"primary\"]\n", "").replace(" or not guard(vram)", "");
    assert!(findings(&text).contains(&"unused-guard:vram".to_owned()));
}

#[test]
fn an_oracle_without_a_bound_or_a_use_is_an_error() {
    for (from, name) in [
        ("bound = \"abs <= 1e-3\"\n", "p1_loss"),
        ("bound = \"band <= 1\"\n", "p1_curve"),
        ("exit = 0\n", "checks_green"),
    ] {
        let found = findings(&seed_with(from, ""));
        assert!(found.contains(&format!("oracle-without-bound:{name}")), "{found:?}");
    }
    let text = seed_with("oracles = [\"p4_bitwise\"]\n", "");
    let found = findings(&text);
    assert!(found.contains(&"unused-oracle:p4_bitwise".to_owned()), "{found:?}");
    assert!(found.contains(&"item-without-oracle:P4".to_owned()), "{found:?}");
}

#[test]
fn an_action_without_a_rung_is_an_error() {
    let text = seed_with(
        "lands_unmeasured = \"bitwise equal, gradients included, and strictly less work\"\n",
        "",
    );
    let found = finding_of(&text, "no-rung:below_bar");
    assert!(found.contains("it lands P4 alone, which no rung measures"), "{found}");
    let text =
        seed_with("items = [\"P1\"]\ntext = \"The fast", "items = [\"P2\"]\ntext = \"The fast");
    assert!(!findings(&text).contains(&"no-rung:unstable".to_owned()));
    let text = text.replace("items = [\"P1\", \"P2\", \"P3\", \"P4\"]", "items = [\"P2\"]");
    assert!(findings(&text).contains(&"no-rung:unstable".to_owned()));
}

#[test]
fn a_ladder_that_cannot_fit_its_ceiling_is_an_error() {
    // Nine oracle launches, four rungs, and the ladder again for the rule that drops an item.
    let text = seed_with("ceiling_min = 180", "ceiling_min = 100");
    let found = finding_of(&text, "over-ceiling:protocol");
    assert!(found.contains("launches of 12 min take"), "{found}");
    let text = seed_with("launch_estimate_min = 12\n", "");
    assert!(findings(&text).contains(&"no-estimate:protocol".to_owned()));
}

#[test]
fn rungs_carry_what_their_items_need_and_no_clash() {
    let text = seed_with("env = { P3 = \"1\" }", "env = { P1 = \"2\" }");
    assert!(findings(&text).contains(&"items-clash:C".to_owned()));
    let text = seed_with("env = { P1 = \"1\" }", "env = { P1 = \"1\" }\nneeds = [\"P2\"]");
    assert!(findings(&text).contains(&"rung-without-need:B".to_owned()));
    let text = seed_with("env = { P1 = \"1\" }", "env = { P1 = \"1\" }\nneeds = [\"P1\"]");
    assert!(findings(&text).contains(&"needs-itself:P1".to_owned()));
}

#[test]
fn a_waiver_silences_its_finding_alone_and_an_idle_one_is_told() {
    let text = format!(
        "{SEED}\n[[waivers]]\nfinding = \"uncovered-crash:rules\"\nwhy = \"then I look\"\n"
    );
    assert_eq!(findings(&text), Vec::<String>::new());
    let text = format!("{SEED}\n[[waivers]]\nfinding = \"unused-rung:Z\"\nwhy = \"none\"\n");
    assert!(findings(&text).contains(&"idle-waiver:unused-rung:Z".to_owned()));
}

#[test]
fn a_relative_change_beside_a_number_above_one_is_an_error() {
    let found = finding_of(
        &seed_with("primary >= 5 % and oracle", "primary >= 5 and oracle"),
        "bar-without-percent:land",
    );
    assert!(
        found.contains(
            "`primary >= 5` compares a relative change with 5, which is 500 %; write `5 %`"
        ),
        "{found}"
    );
    let text = seed_with("passes = \"value <= 2 %\"", "passes = \"value <= 2\"");
    assert!(findings(&text).contains(&"bar-without-percent:vram".to_owned()));
    let text = seed_with("holds = \"p1_alone >= 4 %\"", "holds = \"p1_alone >= 4\"");
    assert!(findings(&text).contains(&"bar-without-percent:2".to_owned()));
    // A ratio of 5 is five times; a fraction below 1 may be meant.
    let ratio = seed_with("value = \"(A - B) / A\"", "value = \"A / B\"");
    let ratio = ratio.replace("p1_alone >= 4 %", "p1_alone >= 4");
    assert!(!findings(&ratio).contains(&"bar-without-percent:2".to_owned()));
    let text = seed_with("primary >= 5 % and oracle", "primary >= 0.05 and oracle");
    assert!(!findings(&text).contains(&"bar-without-percent:land".to_owned()));
}

#[test]
fn the_end_of_an_interval_needs_launches_and_leaves_a_gap_that_is_seen() {
    let text = seed_with("primary >= 5 % and oracle", "lower(primary) >= 5 % and oracle");
    assert!(findings(&text).contains(&"no-interval:land".to_owned()));
    let text = text
        .replace("repeats = 1", "repeats = 6")
        .replace("ceiling_min = 180", "ceiling_min = 1800");
    let found = findings(&text);
    assert!(!found.contains(&"no-interval:land".to_owned()), "{found:?}");
    // A read above the bar whose interval reaches below it: no rule speaks of that.
    let told = finding_of(&text, "uncovered:rules");
    assert!(told.contains("lower(primary) = ") && told.contains("primary = +5.00 %"), "{told}");
}

#[test]
fn a_rule_that_the_noise_always_swallows_is_an_error() {
    let bar = "primary >= 5 % and primary <= 8 % and oracle";
    let text = seed_with("primary >= 5 % and oracle", bar);
    let noise = |measured_noise| Surroundings { measured_noise, ..Surroundings::default() };
    let name = "never-shown:land".to_owned();
    assert!(findings_with(&text, noise(Some(0.09))).contains(&name));
    assert!(!findings_with(&text, noise(Some(0.07))).contains(&name));
}

#[test]
fn an_oracle_may_take_less_than_a_launch_of_the_ladder() {
    // Seven launches for oracles and eight of rungs take 180 min at 12 each.
    let tight = seed_with("ceiling_min = 180", "ceiling_min = 130");
    assert!(findings(&tight).contains(&"over-ceiling:protocol".to_owned()));
    let short = tight
        .replace("steps = 1\n", "steps = 1\nestimate_min = 1\n")
        .replace("steps = 50\n", "steps = 50\nestimate_min = 3\n");
    assert!(!findings(&short).contains(&"over-ceiling:protocol".to_owned()));
    let text = short.replace("ceiling_min = 130", "ceiling_min = 100");
    let found = finding_of(&text, "over-ceiling:protocol");
    assert!(
        found.contains("8 launches of 12 min and 13.0 min of oracles take 109.0 min, over"),
        "{found}"
    );
}
