//! The rows below the plots: a mark for each cell of a model, on the same axis of lengths.
//!
//! Here is the frontier: up to which length a model ran, and what ended it.

use serde::Serialize;

use super::axis::{Axis, render_count};
use super::legend::{ClassStyle, DISTURBED, MEASURED, style_of};
use super::picture::{Place, Series, round1};
use super::sweep::{Outcome, Row};

/// With more models than this, only those with a cell that was not measured have a row.
const ROWS_FOR_ALL_UP_TO: usize = 12;
const ROW_HEIGHT: f64 = 22.0;
const MARK_HEIGHT: f64 = 14.0;
const MARK_WIDTH: (f64, f64) = (5.0, 26.0);

/// The rows, as the template draws them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Strip {
    pub(super) rows: Vec<StripRow>,
    /// Says what has no row.
    more: Option<String>,
    more_y: f64,
    pub(super) bottom: f64,
    legend: Vec<LegendItem>,
}

/// The row of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct StripRow {
    colour: usize,
    /// The shape of the model's points, beside its name.
    swatch: String,
    model: String,
    ended: String,
    y: f64,
    cells: Vec<Mark>,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Mark {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    css: &'static str,
    launched: bool,
    hover: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct LegendItem {
    x: f64,
    y: f64,
    name: String,
    style: ClassStyle,
    /// Whether it explains the ring around a point of the plots instead of a cell's mark.
    ring: bool,
}

/// Lays out the rows below `top`, aligned with the plot at `place`, names from `names_left` on.
pub(super) fn plan_strip(
    rows: &[Row],
    series: &[Series],
    lengths: &[u64],
    place: Place,
    names_left: f64,
    top: f64,
) -> Strip {
    let axis = Axis::of_lengths(lengths, place.left, place.right());
    let width = mark_width(lengths, &axis);
    let at = |length: Option<u64>| match length {
        Some(length) => (axis.place(length as f64), width),
        // Asked for by a text, so it has no place on the axis: beside it.
        None => (place.right() + 8.0, MARK_HEIGHT),
    };
    let shown = |one: &&Series| {
        series.len() <= ROWS_FOR_ALL_UP_TO
            || rows.iter().any(|row| row.model == one.model && !row.is_measured())
    };
    let mut planned = Vec::new();
    for (index, one) in series.iter().filter(shown).enumerate() {
        let y = top + ROW_HEIGHT * (index as f64 + 0.5);
        let own: Vec<&Row> = rows.iter().filter(|row| row.model == one.model).collect();
        planned.push(StripRow {
            colour: one.colour,
            swatch: one.shape.path(names_left + 5.0, y),
            model: shorten(&one.model, 36),
            ended: describe_end(&own),
            y,
            cells: own.iter().map(|row| plan_mark(row, at(row.length), y)).collect(),
        });
    }
    let left_out = series.len() - planned.len();
    let mut bottom = top + ROW_HEIGHT * planned.len() as f64;
    let more_y = bottom + 15.0;
    let more = (left_out > 0).then(|| {
        bottom += ROW_HEIGHT;
        let models = if left_out == 1 { "model" } else { "models" };
        format!("{left_out} further {models}: every cell measured")
    });
    let legend = plan_legend(rows, [place.left, names_left], bottom + 26.0);
    if let Some(last) = legend.last() {
        bottom = last.y;
    }
    Strip { rows: planned, more, more_y, bottom, legend }
}

fn plan_mark(row: &Row, (x, width): (f64, f64), y: f64) -> Mark {
    let tokens = row.length.map(|length| format!(" at {} tokens", render_count(length)));
    let place = format!("{}{}", row.model, tokens.unwrap_or_default());
    let (css, launched, what) = match &row.outcome {
        Outcome::Measured { .. } => {
            let why =
                row.disturbed.as_ref().map(|why| format!("; disturbed: {}", shorten(why, 160)));
            (MEASURED.css, true, format!("measured{}", why.unwrap_or_default()))
        }
        Outcome::NotMeasured { class, launched } => {
            let style = style_of(class).1;
            let why = row.evidence.clone().unwrap_or_else(|| style.meaning.to_owned());
            (
                style.css,
                launched.unwrap_or(style.launched),
                format!("{class}: {}", shorten(&why, 160)),
            )
        }
    };
    Mark {
        x: round1(x - width / 2.0),
        y: round1(y - MARK_HEIGHT / 2.0),
        width: round1(width),
        height: MARK_HEIGHT,
        css,
        launched,
        hover: format!("{place}: {what}"),
    }
}

/// As wide as the closest two lengths allow.
fn mark_width(lengths: &[u64], axis: &Axis) -> f64 {
    let places: Vec<f64> = lengths.iter().map(|length| axis.place(*length as f64)).collect();
    let closest = places.windows(2).map(|two| two[1] - two[0]).fold(f64::INFINITY, f64::min);
    (closest * 0.8).clamp(MARK_WIDTH.0, MARK_WIDTH.1)
}

/// Where a model's cells end: the least length that was not measured, and its class.
fn describe_end(own: &[&Row]) -> String {
    let first = own
        .iter()
        .filter_map(|row| match &row.outcome {
            Outcome::NotMeasured { class, .. } => Some((row.length, class)),
            Outcome::Measured { .. } => None,
        })
        .min();
    match first {
        Some((Some(length), class)) => format!("{class} at {}", render_count(length)),
        Some((None, class)) => class.clone(),
        None => own
            .iter()
            .filter_map(|row| row.length)
            .max()
            .map_or(String::new(), |longest| format!("measured to {}", render_count(longest))),
    }
}

/// What the marks that occur mean, in two columns.
fn plan_legend(rows: &[Row], columns: [f64; 2], top: f64) -> Vec<LegendItem> {
    let mut classes: Vec<&str> = rows
        .iter()
        .filter_map(|row| match &row.outcome {
            Outcome::NotMeasured { class, .. } => Some(class.as_str()),
            Outcome::Measured { .. } => None,
        })
        .collect();
    classes.sort_by_key(|class| (style_of(class).0, *class));
    classes.dedup();
    let is_any_measured = rows.iter().any(Row::is_measured);
    let measured = is_any_measured.then_some(("measured", MEASURED));
    let is_any_disturbed = rows.iter().any(|row| row.disturbed.is_some());
    let disturbed = is_any_disturbed.then_some(("disturbed", DISTURBED));
    measured
        .into_iter()
        .chain(disturbed)
        .chain(classes.into_iter().map(|class| (class, style_of(class).1)))
        .enumerate()
        .map(|(index, (name, style))| LegendItem {
            x: columns[index % 2],
            y: top + (index / 2) as f64 * 20.0,
            name: name.to_owned(),
            style,
            ring: style == DISTURBED,
        })
        .collect()
}

/// A text with an ellipsis in its middle where it is too long: names differ at both ends.
fn shorten(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= most {
        return text.to_owned();
    }
    let tail = most / 2;
    let head = most - 1 - tail;
    let part = |chars: &[char]| chars.iter().collect::<String>();
    format!("{}…{}", part(&chars[..head]), part(&chars[chars.len() - tail..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(length: Option<u64>, class: &str) -> Row {
        let outcome = Outcome::NotMeasured { class: class.to_owned(), launched: None };
        Row { model: "a".to_owned(), length, outcome, evidence: None, disturbed: None }
    }

    #[test]
    fn the_end_of_a_model_is_its_shortest_cell_that_was_not_measured() {
        let rows = [skipped(Some(32_768), "SKIP:oom_backstop"), skipped(Some(8192), "SKIP:oom")];
        let own: Vec<&Row> = rows.iter().collect();
        assert_eq!(describe_end(&own), "SKIP:oom at 8,192");
        let measured = Row {
            outcome: Outcome::Measured { decode_tok_s: None, prefill_tok_s: None },
            ..rows[1].clone()
        };
        assert_eq!(describe_end(&[&measured]), "measured to 8,192");
        assert_eq!(describe_end(&[&skipped(None, "FAIL:bench")]), "FAIL:bench");
    }

    #[test]
    fn evidence_of_the_journal_is_told_and_says_whether_it_was_launched() {
        let mut row = skipped(Some(512), "SKIP:oom");
        row.evidence = Some("faked".to_owned());
        row.outcome = Outcome::NotMeasured { class: "SKIP:oom".to_owned(), launched: Some(false) };
        let mark = plan_mark(&row, (10.0, 4.0), 10.0);
        assert_eq!(mark.hover, "a at 512 tokens: SKIP:oom: faked");
        assert!(!mark.launched);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shorten("abcdefgh", 8), "abcdefgh");
        assert_eq!(shorten("abcdefghi", 8), "abc…fghi");
    }
}
