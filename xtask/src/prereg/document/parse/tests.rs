use super::*;
use crate::base::diagnostic::render_error;
use crate::prereg::fixture::{SEED, seed_with};

/// What is said of the seed with one passage replaced.
fn error_of(from: &str, to: &str) -> String {
    render_error(&parse_document("seed.toml", &seed_with(from, to)).unwrap_err())
}

#[test]
fn an_unknown_word_is_an_error_with_its_line_and_the_nearest_one() {
    for (from, to, says) in [
        ("\"sequential\"", "\"sequentially\"", "seed.toml:15: unknown value `sequentially`"),
        ("role = \"primary\"", "role = \"main\"", "expected one of `primary`, `secondary`"),
        ("on_drop = \"measure\"", "on_drop = \"keep\"", "expected one of `recompose`, `measure`"),
        ("from = \"log\"", "from = \"logs\"", "hint: did you mean `log`?"),
        ("statistic = \"last\"", "statistic = \"latest\"", "hint: did you mean `last`?"),
        ("\"medium-high\"", "\"medium high\"", "hint: did you mean `medium-high`?"),
    ] {
        let error = error_of(from, to);
        assert!(error.contains(says), "{to}: {error}");
    }
}

#[test]
fn every_problem_is_named_at_once() {
    let text = SEED
        .replacen("passes = \"value <= 2 %\"", "passes = \"value + 2 %\"", 1)
        .replacen("fails = [\"primary\"]", "fails = [\"primry\"]", 1)
        .replacen("then = \"drop\"\nitems = [\"P1\"]", "then = \"drop\"", 1)
        .replacen("bound = \"abs <= 1e-3\"", "bound = \"about 1e-3\"", 1)
        .replacen("steps = 320", "steps = 80", 1)
        .replacen("guard(vram)", "gaurd(vram)", 1)
        .replacen("oracle(checks_green)", "oracle(checks_green, C)", 1);
    let error = render_error(&parse_document("seed.toml", &text).unwrap_err());
    insta::assert_snapshot!(error, @r"
    error: `seed.toml` has 7 problems:
      protocol: `discard_steps = 80` leaves none of the 80 steps
      oracle `p1_loss`: `about 1e-3` is not a bound; write `abs <= 1e-3` or `rel <= 1 %`
      rule `unstable`: `drop` needs exactly one item in `items`
      guard `vram`: unknown read `primry`; did you mean `primary`?
      guard `vram`: passes: a condition is needed here, but this is a number
      rule `land`: when: `oracle` takes (oracle)
      rule `below_bar`: when: unknown function `gaurd`; did you mean `guard`?
    hint: `cargo xtask prereg new NAME` writes a document that explains every key
    ");
}

#[test]
fn an_oracle_takes_the_keys_of_its_kind_alone() {
    let error = error_of("kind = \"file-equal\"", "kind = \"file-equal\"\nexit = 1");
    assert!(error.contains("a `file-equal` oracle takes no `exit`"), "{error}");
    let error = error_of("file = \"decode.npz\"", "file = \"../decode.npz\"");
    assert!(error.contains("`file` must lie in the launch's output folder"), "{error}");
    let error = error_of("kind = \"overlay\"", "kind = \"overlap\"");
    assert!(error.contains("unknown kind of oracle `overlap`; did you mean `overlay`?"), "{error}");
}

#[test]
fn an_item_may_land_under_a_condition_and_a_transfer_may_have_fewer_steps() {
    let text = seed_with("items = [\"P2\", \"P4\"]", "items = [\"P2\", \"P4 if guard(vram)\"]");
    let document = parse_document("seed.toml", &text).unwrap();
    assert_eq!(document.rules[2].action.to_string(), "land only P2, P4 (if guard(vram))");
    let error = error_of("items = [\"P2\", \"P4\"]", "items = [\"P2\", \"P4 if gaurd(vram)\"]");
    let said = "rule `below_bar`: item P4: unknown function `gaurd`; did you mean `guard`?";
    assert!(error.contains(said), "{error}");
    let error = error_of("items = [\"P2\", \"P4\"]", "items = [\"P2\", \"P4 if primary\"]");
    assert!(error.contains("a condition is needed here"), "{error}");
    let reads = "reads = [\"primary\"]\n";
    let text = seed_with(reads, "reads = [\"primary\"]\nsteps = 100\n");
    let transfer = parse_document("seed.toml", &text).unwrap().transfer.unwrap();
    assert_eq!(transfer.steps, Some(100));
    let error = error_of(reads, "reads = [\"primary\"]\nsteps = 80\n");
    assert!(error.contains("transfer: `discard_steps = 80` leaves none of its `steps`"), "{error}");
}

#[test]
fn a_model_has_a_prompt_and_formulas_reach_other_metrics_by_name() {
    let error = error_of("prompt_tokens = 1100\n", "");
    assert!(error.contains("protocol: `prompt_tokens` is missing"), "{error}");
    let without =
        SEED.replacen("prompt_tokens = 1100\n", "", 1).replacen("model = \"model.toml\"\n", "", 1);
    assert_eq!(parse_document("seed.toml", &without).unwrap().protocol.model, None);
    let error = error_of("value = \"(C - A) / A\"", "value = \"(C - value(vram_liftime, A)) / A\"");
    assert!(
        error.contains("unknown metric `vram_liftime`; did you mean `vram_lifetime`?"),
        "{error}"
    );
    let error = error_of("value = \"(C - A) / A\"", "value = \"C - lower(primary)\"");
    assert!(error.contains("`lower` cannot be used here"), "{error}");
}
