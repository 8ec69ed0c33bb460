use crate::cell::classify::Classification;
use crate::prereg::document::Document;
use crate::prereg::fixture::{SEED, SMALL, launch, parse, series};
use crate::prereg::judge::{Phase, judge};
use crate::prereg::sample::{Failure, Judging, LaunchRecord, Record, RunRecord, Slot};

fn oracle_shot(key: &str, items: &[&str]) -> LaunchRecord {
    let mut launch = launch(Slot::Oracle { shot: key.to_owned() }, items);
    for metric in ["s_per_step", "loss", "grad_norm", "vram_window", "vram_lifetime"] {
        launch.series.insert(metric.to_owned(), series(&[1.0]));
    }
    launch.files = ["decode.npz", "grads.bin"].map(|f| (f.to_owned(), "00".to_owned())).into();
    launch
}

fn base_shot() -> LaunchRecord {
    oracle_shot("base prompt=1 steps=1", &[])
}

fn undecided(document: &Document, records: &[Record]) -> String {
    match judge(document, records).phase {
        Phase::Undecided { why } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_base_that_fails_its_own_oracle_run_drops_no_item_and_ends_the_run() {
    let document = parse(SEED);
    let mut base = base_shot();
    let detail = "it wrote no JSON lines".to_owned();
    base.failed = Some(Failure { class: Classification::FailNoOutput, detail });
    let p1 = oracle_shot("P1 prompt=1 steps=1", &["P1"]);
    let records = [Record::Launch(base), Record::Launch(p1)];
    assert_eq!(
        undecided(&document, &records),
        "the base failed in the launch for oracles (base prompt=1 steps=1): FAIL:no_output: it wrote no \
         JSON lines; nothing is judged by it"
    );
    let standing = judge(&document, &records);
    assert!(standing.dropped.is_empty() && standing.trials.is_empty(), "{standing:?}");
}

#[test]
fn what_the_base_lacks_of_an_oracle_is_no_items_fault() {
    let document = parse(SEED);
    let mut base = base_shot();
    base.files.remove("decode.npz");
    let why = undecided(&document, &[Record::Launch(base)]);
    assert!(why.contains("oracle p1_decode has nothing to compare with, it wrote no `decode.npz`"));
    let mut base = base_shot();
    base.series.insert("loss".to_owned(), series(&[f64::NAN]));
    let why = undecided(&document, &[Record::Launch(base)]);
    assert!(why.contains("oracle p1_loss has nothing to compare with, its loss is NaN"), "{why}");
    // What an item lacks is its own fault.
    let mut p1 = oracle_shot("P1 prompt=1 steps=1", &["P1"]);
    p1.files.remove("decode.npz");
    let records = [Record::Launch(base_shot()), Record::Launch(p1)];
    let standing = judge(&document, &records);
    assert_eq!(standing.phase, Phase::ItemOracles);
    let failed = standing.trials.iter().find(|trial| trial.oracle == "p1_decode").unwrap();
    assert_eq!(failed.measured, "the item wrote no `decode.npz`");
}

#[test]
fn a_metric_that_no_line_of_the_base_names_ends_the_run_unless_it_is_optional() {
    let mut base = base_shot();
    base.series.remove("s_per_step");
    let why = "its log has no `s_per_stp`; did you mean `s_per_step`?".to_owned();
    base.absent.insert("s_per_step".to_owned(), why);
    let records = [Record::Launch(base)];
    let told = undecided(&parse(SEED), &records);
    assert!(
        told.contains("it reported no s_per_step: its log has no `s_per_stp`; did you"),
        "{told}"
    );
    let text = SEED.replacen("unit = \"s\"", "unit = \"s\"\noptional = true", 1);
    assert_eq!(judge(&parse(&text), &records).phase, Phase::ItemOracles);
    // What no read, guard or rule asks of the base may be missing.
    let mut base = base_shot();
    base.series.remove("vram_lifetime");
    assert_eq!(judge(&parse(SEED), &[Record::Launch(base)]).phase, Phase::ItemOracles);
}

#[test]
fn a_base_without_a_primary_figure_ends_the_run_and_other_rungs_do_not() {
    let document = parse(SMALL);
    let rung = |rung: &str, value: f64| {
        let slot = Slot::Ladder { round: 1, rung: rung.to_owned(), repeat: 1 };
        let mut launch = launch(slot, if rung == "B" { &["item"] } else { &[] });
        launch.series.insert("ms".to_owned(), series(&[value]));
        Record::Launch(launch)
    };
    for (id, place) in
        [("A", "as rung A, launch 1"), ("null", "when it was measured again, launch 1")]
    {
        let why = undecided(&document, &[rung(id, f64::NAN)]);
        assert!(why.starts_with(&format!("the base failed {place}: ms has no value")), "{why}");
    }
    assert_eq!(judge(&document, &[rung("B", f64::NAN)]).phase, Phase::Ladder { round: 1 });
}

#[test]
fn a_run_that_began_under_the_older_rules_is_judged_by_them() {
    let document = parse(SEED);
    let mut base = base_shot();
    let detail = "x".to_owned();
    base.failed = Some(Failure { class: Classification::FailNoOutput, detail });
    let run = RunRecord {
        name: "seed".to_owned(),
        version: 1,
        entry_sha256: String::new(),
        date: String::new(),
        machine: String::new(),
        commit: String::new(),
        judging: Judging::ByValue,
    };
    let p1 = oracle_shot("P1 prompt=1 steps=1", &["P1"]);
    let standing = judge(&document, &[Record::Run(run), Record::Launch(base), Record::Launch(p1)]);
    assert_eq!(standing.phase, Phase::ItemOracles);
    assert_eq!(standing.trials[0].measured, "the base failed: FAIL:no_output: x");
}
