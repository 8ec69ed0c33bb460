use proptest::prelude::*;

use super::*;
use crate::base::diagnostic::render_error;

fn args(env: &[&str], legs: &[&str]) -> Args {
    Args {
        env: env.iter().map(|text| (*text).to_owned()).collect(),
        leg: legs.iter().map(|text| (*text).to_owned()).collect(),
        ..Args::default()
    }
}

fn message(args: &Args) -> String {
    render_error(&parse_ab(None, args).unwrap_err())
}

#[test]
fn base_and_null_are_always_there_and_the_test_leg_comes_third() {
    let plan = parse_ab(None, &args(&["A=0", "B=x=y"], &["small:C=1,D="])).unwrap();
    let legs: Vec<(&str, LegRole, usize)> =
        plan.legs.iter().map(|leg| (leg.name.as_str(), leg.role, leg.env.len())).collect();
    assert_eq!(
        legs,
        [
            ("base", LegRole::Base, 0),
            ("null", LegRole::Null, 0),
            ("test", LegRole::Test, 2),
            ("small", LegRole::Test, 2),
        ]
    );
    assert_eq!(plan.legs[2].env[1], ("B".to_owned(), "x=y".to_owned()));
    assert_eq!(plan.legs[3].env[1], ("D".to_owned(), String::new()));
    assert_eq!(plan.variables().into_iter().collect::<Vec<_>>(), ["A", "B", "C", "D"]);
    assert_eq!((plan.min_blocks, plan.max_blocks, plan.max_minutes), (6, 40, Some(2.5)));
}

#[test]
fn the_command_line_goes_over_the_file() {
    let text = "model = \"m\"\nseed = 4\nenv = { A = \"0\" }\ngates = [\"load_ms <= 9\"]\n\
                runner_args = [\"--x\"]\nmargin_pct = 2.0\n[[leg]]\nname = \"l\"\n\
                env = { B = \"1\" }\n";
    let plan = parse_ab(Some(("a.toml", text)), &Args::default()).unwrap();
    assert_eq!((plan.model.as_str(), plan.seed, plan.margin_pct), ("m", 4, 2.0));
    assert_eq!(plan.legs.len(), 4);
    let over = Args {
        model: Some("n".to_owned()),
        pairs: Some(8),
        gate: vec!["decode_tok_s >= -1%".to_owned()],
        baseline_bin: Some("before".into()),
        runner_args: vec!["--y".to_owned()],
        ..args(&["C=1"], &[])
    };
    let plan = parse_ab(Some(("a.toml", text)), &over).unwrap();
    assert_eq!((plan.model.as_str(), plan.min_blocks, plan.max_blocks), ("n", 8, 8));
    assert_eq!((plan.max_minutes, plan.gates.len()), (None, 1));
    assert_eq!(plan.runner_args, ["--y"]);
    let names: Vec<&str> = plan.legs.iter().map(|leg| leg.name.as_str()).collect();
    assert_eq!(names, ["base", "null", "test", "l", "baseline"]);
    assert_eq!(plan.legs[2].env[0].0, "C");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_way_out() {
    assert!(message(&Args::default()).contains("hint: give --env K=V"));
    assert!(message(&args(&["A"], &[])).contains("hint: write NAME=VALUE, for example A=0"));
    assert!(message(&args(&["1A=0"], &[])).contains("`1A` is not a variable name"));
    assert!(message(&args(&["A=0", "A=1"], &[])).contains("sets A twice"));
    assert!(message(&args(&[], &["A=0"])).contains("has no name"));
    assert!(message(&args(&[], &["base:A=0"])).contains("two legs are called `base`"));
    assert!(message(&args(&["A=0"], &["b:A=0"])).contains("set the same variables"));
    assert!(message(&args(&[], &["a.b:A=0"])).contains("only letters, digits"));
    let with = |change: fn(&mut Args)| {
        let mut args = args(&["A=0"], &[]);
        change(&mut args);
        message(&args)
    };
    assert!(with(|r| r.pairs = Some(4)).contains("at least 5"));
    assert!(with(|r| r.margin = Some(0.0)).contains("margin_pct must be above 0"));
    assert!(with(|r| r.max_tokens = Some(1)).contains("no decode step"));
    assert!(with(|r| r.gate = vec!["tok_s >= 1".into()]).contains("no metric `tok_s`"));
    assert!(with(|r| r.gate = vec!["x.load_ms >= 1".into()]).contains("no leg `x`; the legs are"));
    assert!(with(|r| r.gate = vec!["base.load_ms >= 1%".into()]).contains("against itself"));
}

#[test]
fn an_unknown_key_or_metric_names_the_nearest() {
    let error = |text| {
        render_error(&parse_ab(Some(("ab/x.toml", text)), &args(&["A=0"], &[])).unwrap_err())
    };
    let unknown = error("model = \"m\"\nmargin = 2.0\n");
    assert!(unknown.contains("ab/x.toml:2"), "{unknown}");
    assert!(unknown.contains("did you mean `margin_pct`?"), "{unknown}");
    assert!(error("primary = \"decode\"\n").contains("did you mean `decode_tok_s`?"));
}

#[test]
fn slugs_are_plain() {
    let mut plan = parse_ab(None, &args(&["ARC_CANDLE_ALLOC_CACHE=0"], &[])).unwrap();
    assert_eq!(plan.slug(), "arc-candle-alloc-cache-0-tiny");
    plan.runner_args = vec!["--host-driver".to_owned(), "mmap".to_owned()];
    assert_eq!(plan.slug(), "arc-candle-alloc-cache-0-tiny-host-driver-mmap");
}

proptest! {
    #[test]
    fn no_text_panics(env in ".{0,20}", leg in ".{0,30}", file in ".{0,60}") {
        let _ = parse_ab(Some(("a", &file)), &args(&[&env], &[&leg]));
    }

    #[test]
    fn a_slug_is_a_plain_name_whatever_the_model(model in ".{1,200}") {
        let mut plan = parse_ab(None, &args(&["A=0"], &[])).unwrap();
        plan.model = model;
        let slug = plan.slug();
        prop_assert!(slug.starts_with("a-0") && slug.len() <= 80);
        prop_assert!(slug.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }
}

#[test]
fn a_limit_that_json_could_not_keep_is_refused() {
    for (name, value) in [("max_other_load_pct", "inf"), ("flat_mib_per_token", "nan")] {
        let text = format!("{name} = {value}\n");
        let error = parse_ab(Some(("a.toml", &text)), &args(&["A=0"], &[])).unwrap_err();
        assert!(format!("{error:#}").contains(&format!("{name} must be ")), "{error:#}");
    }
}
