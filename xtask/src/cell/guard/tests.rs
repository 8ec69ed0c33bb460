use super::*;
use crate::cell::grid;
use crate::model::reference::ResolvedModel;
use crate::oom_record::parse_record;

fn model(name: &str) -> ResolvedModel {
    ResolvedModel { weight_bytes: Some(1 << 30), ..grid::tests::model(name) }
}

fn guard() -> Guard {
    Guard::new(OomRecord::default(), RecordRule::InForce, Some(8 << 30), 1.0)
}

#[test]
fn a_variant_that_needs_less_and_fails_forbids_what_needs_more_alone() {
    let variant = |name: &str, below: &[&str]| Variant {
        name: name.to_owned(),
        args: vec!["-x".to_owned()],
        set: Default::default(),
        uses_no_more_memory_than: below.iter().map(|&name| name.to_owned()).collect(),
    };
    let mut guard = guard().with_variants(vec![variant("q8", &["plain"]), variant("wide", &[])]);
    let model = model("m");
    let refused = |guard: &Guard, variant: Option<&str>, len| {
        matches!(guard.admit(Cell { model: &model, len, variant }), Admission::Refuse { .. })
    };
    let table = |guard: &Guard, len| {
        [None, Some("c4"), Some("q8"), Some("q8+c4"), Some("wide"), Some("wide+c4")]
            .map(|variant| refused(guard, variant, len))
    };
    guard.note_true_oom("m", 2048);
    assert_eq!(table(&guard, 2047), [false; 6]);
    assert_eq!(table(&guard, 2048), [true, true, false, false, false, false]);
    guard.note_true_oom("m+q8", 1024);
    assert_eq!(table(&guard, 1024), [true, true, true, true, false, false]);
    guard.note_true_oom("m+wide+c4", 512);
    assert_eq!(table(&guard, 512), [false, false, false, false, false, true]);
    // What no definition knows is forbidden by the model as it is.
    assert!(refused(&guard, Some("other"), 2048));
}

/// A cell that generates `g` tokens after a prompt of `p` is forbidden by what ran out of memory with no
/// longer a prompt and no more tokens, and by nothing else.
#[test]
fn pairs_are_ordered_in_both_directions() {
    let model = model("m");
    let names = [None, Some("g8"), Some("g32"), Some("g256"), Some("g256+c4")];
    let refused = |guard: &Guard, len| {
        names.map(|variant| {
            matches!(guard.admit(Cell { model: &model, len, variant }), Admission::Refuse { .. })
        })
    };
    // Without a suffix 64 tokens are generated.
    let mut guard = guard().with_max_tokens(64);
    guard.note_true_oom("m+g32", 1024);
    assert_eq!(refused(&guard, 1023), [false; 5]);
    assert_eq!(refused(&guard, 1024), [true, false, true, true, true]);
    guard.note_true_oom("m", 512);
    assert_eq!(refused(&guard, 512), [true, false, false, true, true]);
    guard.note_true_oom("m+g256+c4", 128);
    assert_eq!(refused(&guard, 128), [false, false, false, false, true]);
    let mut guard = Guard { record: parse_record("m+g8,2048,d,c,,x\nm+g512,1,d,c,,x\n"), ..guard };
    guard.oom_lengths.clear();
    assert_eq!(refused(&guard, 2047), [false; 5]);
    assert_eq!(refused(&guard, 2048), [true; 5], "a later sweep with other pairs knows it as well");
    // Where names do not speak of tokens, such a name is a variant like any other.
    let mut guard = Guard { max_tokens: None, names_say_tokens: false, ..guard };
    assert_eq!(refused(&guard, 2048), [false, true, false, false, false]);
    // Another command knows how many it generates itself.
    guard = guard.with_most_tokens(8);
    assert_eq!(refused(&guard, 2048), [true; 5]);
    assert_eq!(refused(&guard, 2047), [false; 5]);
    guard = guard.with_most_tokens(7);
    assert_eq!(refused(&guard, 2048), [false, true, false, false, false]);
    let cell = Cell { model: &model, len: 2048, variant: None };
    let error = guard.with_most_tokens(8).require(cell, "ab").unwrap_err();
    let said = crate::base::diagnostic::render_error(&error);
    assert!(said.contains("holds `m+g8,2048,"), "{said}");
    assert!(said.contains("`cargo xtask oom-record prune --model m+g8`"), "{said}");
    // A leg of a comparison may be called so and says nothing of tokens.
    let guard = super::tests::guard().with_most_tokens(64);
    let guard = Guard { record: parse_record("m+g8,2048,d,c,,x,ab\n"), ..guard };
    assert_eq!(refused(&guard, 2048), [false, true, false, false, false]);
}

proptest::proptest! {
    /// Whatever is measured in whatever order, no cell is launched that is implied, and none is
    /// refused that is not.
    #[test]
    fn what_is_implied_is_refused_and_nothing_else(
        ooms in proptest::collection::vec((1u64..5, 1u64..5), 0..6),
        cell in (1u64..5, 1u64..5),
    ) {
        const DEFAULT: u64 = 2;
        let name = |count: u64| (count != DEFAULT).then(|| generate_name(count));
        let mut guard = guard().with_max_tokens(DEFAULT);
        for &(prompt, count) in &ooms {
            let suffix = name(count).map(|name| format!("+{name}")).unwrap_or_default();
            guard.note_true_oom(&format!("m{suffix}"), prompt);
        }
        let implied = ooms.iter().any(|oom| oom.0 <= cell.0 && oom.1 <= cell.1);
        let (model, variant) = (model("m"), name(cell.1));
        let admitted =
            guard.admit(Cell { model: &model, len: cell.0, variant: variant.as_deref() });
        proptest::prop_assert_eq!(admitted != Admission::Launch, implied);
    }
}

fn class(guard: &Guard, name: &str, len: u64) -> Option<Classification> {
    match guard.admit(Cell { model: &model(name), len, variant: None }) {
        Admission::Launch => None,
        Admission::Fake(class) | Admission::Refuse { class, .. } => Some(class),
    }
}

#[test]
fn the_backstop_is_the_least_length_whatever_the_order() {
    for order in [[512, 2048], [2048, 512]] {
        let mut guard = guard();
        for len in order {
            guard.note_true_oom("a", len);
        }
        assert_eq!(class(&guard, "a", 511), None);
        assert_eq!(class(&guard, "a", 512), Some(Classification::OomBackstop));
        assert_eq!(class(&guard, "a", 32768), Some(Classification::OomBackstop));
        assert_eq!(class(&guard, "b", 32768), None);
    }
}

#[test]
fn the_record_blocks_exactly_its_model_from_its_length_on() {
    let mut guard = guard();
    guard.record = parse_record("llama,512,2026-07-03,abc,,x.csv\n");
    assert_eq!(class(&guard, "llama", 511), None);
    assert_eq!(class(&guard, "llama", 512), Some(Classification::OomRecord));
    assert_eq!(class(&guard, "llama", 513), Some(Classification::OomRecord));
    for other in ["llama-8b", "llam", "Llama"] {
        assert_eq!(class(&guard, other, 513), None, "{other}");
    }
    let Admission::Refuse { reason, .. } =
        guard.admit(Cell { model: &model("llama"), len: 600, variant: None })
    else {
        panic!("not refused")
    };
    assert_eq!(reason, "the OOM record holds `llama,512,2026-07-03,abc,,x.csv`");
}

#[test]
fn the_backstop_comes_first_and_a_fake_before_the_estimate() {
    let mut guard = guard();
    guard.overhead_factor = 1e6;
    assert_eq!(class(&guard, "a", 512), Some(Classification::OomEstimate));
    let (model, class_) = ("a".to_owned(), Classification::FailBench);
    guard.fakes.push(FakeCell { model, len: 512, class: class_ });
    assert_eq!(class(&guard, "a", 512), Some(Classification::FailBench));
    guard.record = parse_record("a,1,d,c,,x\n");
    assert_eq!(class(&guard, "a", 512), Some(Classification::OomRecord));
    guard.note_true_oom("a", 1);
    assert_eq!(class(&guard, "a", 512), Some(Classification::OomBackstop));
}

#[test]
fn a_missing_model_is_that_before_all_else() {
    let mut guard = guard();
    guard.note_true_oom("a", 1);
    let missing = ResolvedModel { kind: ModelKind::Missing, ..model("a") };
    let admission = guard.admit(Cell { model: &missing, len: 512, variant: None });
    assert!(matches!(admission, Admission::Refuse { class: Classification::FailMissingModel, .. }));
}

#[test]
fn weights_are_held_against_85_percent_of_memory() {
    let limit = 850;
    assert_eq!(check_weights(Some(limit), 1.0, Some(1000)), None);
    assert!(check_weights(Some(limit + 1), 1.0, Some(1000)).is_some());
    assert!(check_weights(Some(500), 2.0, Some(1000)).is_some());
    assert_eq!(check_weights(None, 1.0, Some(1)), None);
    assert_eq!(check_weights(Some(1), 1.0, None), None);
}

#[test]
fn a_factor_that_is_none_is_reported_and_one() {
    assert_eq!(parse_overhead_factor(None), (1.0, None));
    assert_eq!(parse_overhead_factor(Some(" ")), (1.0, None));
    assert_eq!(parse_overhead_factor(Some(" 1.5 ")), (1.5, None));
    for text in ["x", "nan", "inf", "-1", "1,5"] {
        let (factor, warning) = parse_overhead_factor(Some(text));
        assert_eq!(factor, 1.0);
        assert!(warning.unwrap().contains(text));
    }
}
