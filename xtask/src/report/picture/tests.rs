//! What is in the picture: well-formed XML, a point for each speed, a mark for each cell that was
//! not measured.

use proptest::prelude::*;
use roxmltree::{Document, Node};

use super::*;
use crate::cell::classify::Classification;
use crate::cell::journal::{CellEnd, Entry, Journal};
use crate::cell::quiet::QuietNote;
use crate::report::sweep::{Outcome, SPEEDS_TOK_S, parse_sweep, tests::csv};

fn picture(rows: &[Row]) -> String {
    render_picture(rows, "Title", &["one".to_owned(), "two".to_owned()]).unwrap()
}

fn has_class(node: &Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
}

/// How many elements have a class and tell on hover what they are; the legend tells nothing.
fn count(document: &Document<'_>, class: &str) -> usize {
    document
        .descendants()
        .filter(|node| {
            has_class(node, class) && node.children().any(|child| child.has_tag_name("title"))
        })
        .count()
}

/// Holds a picture to its rows.
fn check(rows: &[Row]) {
    let text = picture(rows);
    let document = Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let with = |metric: Metric| {
        rows.iter().filter(|row| row.length.is_some() && metric.of(row).is_some()).count()
    };
    assert_eq!(count(&document, "point"), with(Metric::Decode) + with(Metric::Prefill));
    let not_measured = rows.iter().filter(|row| !row.is_measured()).count();
    assert_eq!(count(&document, "mark"), not_measured);
    for number in ["NaN", "inf"] {
        assert!(!text.contains(&format!("\"{number}")) && !text.contains(&format!(" {number}")));
    }
}

#[test]
fn what_was_disturbed_has_a_ring_and_says_why() {
    let rows = [("a", 512, "3000.50", "54.30", ""), ("a", 2048, "2900.00", "51.00", "")];
    let mut sweep = parse_sweep(&csv(&rows)).unwrap();
    let rings = |sweep: &Sweep| picture(&sweep.rows).matches("<circle class=\"ring s").count();
    let says = |sweep: &Sweep| {
        let text = picture(&sweep.rows);
        let legend = text.contains("<circle class=\"ring key\"");
        assert_eq!(legend, text.contains(">disturbed<tspan"), "a mark and its word");
        legend
    };
    assert_eq!((rings(&sweep), says(&sweep)), (0, false));
    let end = CellEnd {
        model: "a".to_owned(),
        prompt_target_len: 2048,
        row: Some("x".to_owned()),
        quiet: Some(QuietNote {
            disturbances: vec!["the process was stopped for 2.0 s".to_owned()],
            ..QuietNote::default()
        }),
        ..CellEnd::default()
    };
    let entries = vec![Entry::CellEnd(Box::new(end))];
    sweep.add_journal(&Journal { entries, ..Journal::default() });
    assert_eq!((rings(&sweep), says(&sweep)), (2, true), "its prefill and its decode");
    let text = picture(&sweep.rows);
    assert_eq!(
        text.matches("; disturbed: the process was stopped for 2.0 s").count(),
        3,
        "the two points and the cell below them"
    );
    Document::parse(&text).unwrap();
}

#[test]
fn every_speed_is_a_point_and_every_cell_that_was_not_measured_a_mark() {
    let classes: Vec<&str> = Classification::ALL.iter().map(|class| class.token()).collect();
    let mut rows = vec![
        ("a", 512, "3000.50", "54.30", ""),
        ("a", 2048, "2900.00", "51.00", ""),
        ("b", 512, "9.00", "", ""),
        ("b", 2048, "", "7.00", ""),
        ("c", 64, "", "", "SKIP:of_a_later_version"),
    ];
    let lengths = (0..).map(|index| 4096 << index);
    rows.extend(classes.iter().zip(lengths).map(|(class, length)| ("a", length, "", "", *class)));
    let sweep = parse_sweep(&csv(&rows)).unwrap();
    check(&sweep.rows);
    let text = picture(&sweep.rows);
    let document = Document::parse(&text).unwrap();
    assert_eq!(count(&document, "mark"), 1 + classes.len());
    assert_eq!(count(&document, "point"), 6);
    // One that was never launched is hollow.
    let hollow = document
        .descendants()
        .find(|node| has_class(node, "backstop"))
        .expect("a mark of the backstop");
    assert!(!has_class(&hollow, "launched"));
    let hover = hollow.children().find(|child| child.has_tag_name("title")).unwrap();
    assert_eq!(
        hover.text(),
        Some("a at 8,192 tokens: SKIP:oom_backstop: not launched: a shorter prompt ran out")
    );
}

#[test]
fn one_metric_has_one_plot_and_none_has_the_cells_alone() {
    let panels = |rows: &[(&str, u64, &str, &str, &str)]| {
        let rows = parse_sweep(&csv(rows)).unwrap().rows;
        check(&rows);
        let text = picture(&rows);
        let document = Document::parse(&text).unwrap();
        document.descendants().filter(|node| has_class(node, "panel")).count()
    };
    assert_eq!(panels(&[("a", 512, "2.00", "1.00", "")]), 2);
    assert_eq!(panels(&[("a", 512, "", "1.00", "")]), 1);
    assert_eq!(panels(&[("a", 512, "", "", "SKIP:oom")]), 0);
}

#[test]
fn names_are_text_and_never_markup() {
    let mut rows = parse_sweep(&csv(&[("a", 512, "2.00", "1.00", "")])).unwrap().rows;
    let name = "</text><script>&\"'\u{1}\u{b}\u{ffff}";
    rows[0].model = name.to_owned();
    rows.push(Row {
        outcome: Outcome::NotMeasured { class: "SKIP:<b>".to_owned(), launched: None },
        evidence: Some("a < b && c]]>".to_owned()),
        ..rows[0].clone()
    });
    check(&rows);
    let text = render_picture(&rows, "<&>", &["\"<".to_owned()]).unwrap();
    let document = Document::parse(&text).unwrap();
    assert!(!document.descendants().any(|node| node.has_tag_name("script")));
    let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
    assert!(texts.contains(&"</text><script>&\"'\u{fffd}\u{fffd}\u{fffd}"), "{texts:?}");
    assert!(texts.contains(&"<&>") && texts.contains(&"SKIP:<b>"));
}

#[test]
fn it_is_light_or_dark_as_the_reader_prefers() {
    let rows = parse_sweep(&csv(&[("a", 512, "2.00", "1.00", "")])).unwrap().rows;
    let text = picture(&rows);
    let (light, dark) = text.split_once("@media (prefers-color-scheme: dark)").unwrap();
    assert!(light.contains(".page { fill: #ffffff;") && dark.contains(".page { fill: #0d1117;"));
    // What a browser would have to fetch is not shown in a README.
    assert_eq!(text.matches("http").count(), 1, "the namespace alone");
}

#[test]
fn many_models_have_rows_only_where_something_was_not_measured() {
    let names: Vec<String> = (0..40).map(|index| format!("m{index}")).collect();
    let rows: Vec<_> = names.iter().map(|name| (name.as_str(), 512, "2.00", "1.00", "")).collect();
    let mut rows = rows;
    rows.push(("m3", 2048, "", "", "FAIL:bench"));
    let rows = parse_sweep(&csv(&rows)).unwrap().rows;
    check(&rows);
    assert!(picture(&rows).contains("39 further models: every cell measured"));
}

#[test]
fn the_subtitle_says_what_is_known() {
    let mut sweep = parse_sweep(&csv(&[("a", 512, "2.00", "1.00", "")])).unwrap();
    assert_eq!(
        render_subtitle(&sweep, "a.csv"),
        ["NVIDIA GB10 122GB · 2026-07-03", "engine 0.3.3 · a.csv"]
    );
    sweep.origin = Some(crate::report::sweep::Origin {
        commit: "da5e04e".to_owned(),
        dirty: true,
        cores: Some(2),
        runner: "toy".to_owned(),
        cell_memory_limit_mb: Some(512),
    });
    assert_eq!(
        render_subtitle(&sweep, "a.csv"),
        [
            "NVIDIA GB10 122GB · 2 cores · 2026-07-03 · commit da5e04e with changes",
            "runner toy · engine 0.3.3 · each cell limited to 512 MiB · a.csv"
        ]
    );
}

#[test]
fn every_real_sweep_is_drawn() {
    let Some(folder) = testkit::shared_data("csv") else { return };
    let mut drawn = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // One of them is a table of perplexities.
        if !text.lines().next().unwrap().contains("decode_tok_s") {
            let error = parse_sweep(&text).unwrap_err().to_string();
            assert!(error.contains("not the CSV of a sweep"), "{}: {error}", path.display());
            continue;
        }
        let sweep = parse_sweep(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(sweep.warnings, Vec::<String>::new(), "{}", path.display());
        assert_eq!(sweep.rows.len(), text.lines().count() - 1, "{}", path.display());
        check(&sweep.rows);
        drawn += 1;
    }
    assert!(drawn >= 5, "{drawn} drawn in `{}`", folder.display());
}

fn any_row() -> impl Strategy<Value = Row> {
    let speed = || prop::option::of(prop_oneof![1e-3..1e7, Just(1.0), SPEEDS_TOK_S]);
    let outcome = prop_oneof![
        (speed(), speed()).prop_map(|(decode_tok_s, prefill_tok_s)| Outcome::Measured {
            decode_tok_s,
            prefill_tok_s
        }),
        ("(SKIP|FAIL):[a-z_<&]{0,9}", any::<Option<bool>>())
            .prop_map(|(class, launched)| Outcome::NotMeasured { class, launched }),
    ];
    let length = prop::option::of(prop_oneof![1u64..40_000, Just(u64::MAX), Just(512)]);
    (any::<String>(), length, outcome, prop::option::of(any::<String>())).prop_map(
        |(model, length, outcome, evidence)| Row {
            model,
            length,
            outcome,
            evidence,
            disturbed: None,
        },
    )
}

proptest! {
    #[test]
    fn any_rows_are_drawn(rows in prop::collection::vec(any_row(), 0..30)) {
        check(&rows);
    }
}
