//! One plot: a speed over the prompt length, a line for each model.

use std::collections::BTreeMap;

use serde::Serialize;

use super::axis::{Axis, Scale, render_count, render_speed, text_width};
use super::picture::{Place, Series, round1};
use super::sweep::{Outcome, Row};

/// Lines of more models than this get no numbers beside their points.
const NUMBERS_UP_TO_MODELS: usize = 6;

/// What a plot shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Metric {
    Decode,
    Prefill,
}

impl Metric {
    fn title(self) -> &'static str {
        match self {
            Metric::Decode => "Decode",
            Metric::Prefill => "Prefill",
        }
    }

    /// The speed of a row, where it has one.
    pub(super) fn of(self, row: &Row) -> Option<f64> {
        match (&row.outcome, self) {
            (Outcome::Measured { decode_tok_s, .. }, Metric::Decode) => *decode_tok_s,
            (Outcome::Measured { prefill_tok_s, .. }, Metric::Prefill) => *prefill_tok_s,
            (Outcome::NotMeasured { .. }, _) => None,
        }
    }
}

/// A plot, as the template draws it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Panel {
    title: &'static str,
    unit: &'static str,
    place: Place,
    x_ticks: Vec<Label>,
    y_ticks: Vec<Label>,
    lines: Vec<Line>,
    points: Vec<Point>,
    numbers: Vec<Number>,
}

/// The value beside a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Number {
    colour: usize,
    label: Label,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Label {
    x: f64,
    y: f64,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Line {
    colour: usize,
    path: String,
}

/// A measured value.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Point {
    colour: usize,
    path: String,
    hover: String,
    /// Around a value that was measured while something disturbed it.
    ring: Option<Ring>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Ring {
    x: f64,
    y: f64,
}

/// Lays out the plot of a metric; `None` where no row has it.
pub(super) fn plan_panel(
    metric: Metric,
    rows: &[Row],
    series: &[Series],
    lengths: &[u64],
    place: Place,
) -> Option<Panel> {
    let measured: Vec<(&Row, u64, f64)> =
        rows.iter().filter_map(|row| Some((row, row.length?, metric.of(row)?))).collect();
    if measured.is_empty() {
        return None;
    }
    let speeds: Vec<f64> = measured.iter().map(|(_, _, speed)| *speed).collect();
    let x = Axis::of_lengths(lengths, place.left, place.right());
    let y = Axis::of_speeds(&speeds, place.bottom(), place.top);
    let mut panel = Panel {
        title: metric.title(),
        unit: if y.scale == Scale::Log { "tok/s, logarithmic" } else { "tok/s" },
        place,
        x_ticks: x
            .length_ticks(lengths)
            .into_iter()
            .map(|tick| Label { x: round1(tick.at), y: place.bottom(), text: tick.label })
            .collect(),
        y_ticks: y
            .round_ticks()
            .into_iter()
            .map(|tick| Label { x: place.left, y: round1(tick.at), text: tick.label })
            .collect(),
        lines: Vec::new(),
        points: Vec::new(),
        numbers: Vec::new(),
    };
    let mut to_number = Vec::new();
    for one in series {
        let own: Vec<_> = measured.iter().filter(|(row, ..)| row.model == one.model).collect();
        let mut by_length: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for (row, length, speed) in &own {
            by_length.entry(*length).or_default().push(*speed);
            let (at_x, at_y) = (x.place(*length as f64), y.place(*speed));
            panel.points.push(Point {
                colour: one.colour,
                path: one.shape.path(at_x, at_y),
                hover: format!(
                    "{} at {} tokens: {} {} tok/s{}",
                    row.model,
                    render_count(*length),
                    metric.title().to_lowercase(),
                    render_speed(*speed),
                    row.disturbed
                        .as_ref()
                        .map(|why| format!("; disturbed: {why}"))
                        .unwrap_or_default()
                ),
                ring: row.disturbed.as_ref().map(|_| Ring { x: round1(at_x), y: round1(at_y) }),
            });
        }
        let middles: Vec<(u64, f64)> =
            by_length.into_iter().map(|(length, speeds)| (length, middle_of(speeds))).collect();
        for run in split_at_gaps(&middles, rows, &one.model) {
            let steps = run.iter().map(|(length, speed)| {
                format!("{} {}", round1(x.place(*length as f64)), round1(y.place(*speed)))
            });
            let path = format!("M{}", steps.collect::<Vec<_>>().join("L"));
            panel.lines.push(Line { colour: one.colour, path });
        }
        to_number.extend(middles.iter().map(|(length, speed)| {
            let at = (x.place(*length as f64), y.place(*speed));
            (at, one.colour, render_speed(*speed))
        }));
    }
    if series.len() <= NUMBERS_UP_TO_MODELS {
        panel.numbers = plan_numbers(to_number, place);
    }
    Some(panel)
}

/// Writes values beside their points: above, else below, else not at all. The highest come first, so
/// that of two close points the upper one has its value above.
fn plan_numbers(mut points: Vec<((f64, f64), usize, String)>, place: Place) -> Vec<Number> {
    points.sort_by(|(a, ..), (b, ..)| a.1.total_cmp(&b.1));
    let mut taken: Vec<[f64; 4]> =
        points.iter().map(|((x, y), ..)| around(*x, *y, 4.0, 4.0)).collect();
    let mut numbers = Vec::new();
    for ((x, y), colour, text) in points {
        let half_width = text_width(&text) / 2.0;
        let free = [-13.0, 14.0].into_iter().map(|shift| y + shift).find(|at| {
            let wanted = around(x, *at, half_width, 6.0);
            wanted[1] > place.top - 14.0
                && wanted[3] < place.bottom() - 2.0
                && !taken.iter().any(|other| overlaps(other, &wanted))
        });
        if let Some(at) = free {
            taken.push(around(x, at, half_width, 6.0));
            numbers
                .push(Number { colour, label: Label { x: round1(x), y: round1(at + 4.0), text } });
        }
    }
    numbers
}

/// Parts a line where a cell between two measured ones was not measured: nothing is known there.
fn split_at_gaps(middles: &[(u64, f64)], rows: &[Row], model: &str) -> Vec<Vec<(u64, f64)>> {
    let is_gap = |from: u64, to: u64| {
        rows.iter().any(|row| {
            row.model == model
                && !row.is_measured()
                && row.length.is_some_and(|length| from < length && length < to)
        })
    };
    let mut runs: Vec<Vec<(u64, f64)>> = Vec::new();
    for point in middles {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| !is_gap(last.0, point.0)) => {
                run.push(*point)
            }
            _ => runs.push(vec![*point]),
        }
    }
    runs.retain(|run| run.len() > 1);
    runs
}

/// The median: where a cell was measured several times, the line goes through the middle.
fn middle_of(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

fn around(x: f64, y: f64, half_width: f64, half_height: f64) -> [f64; 4] {
    [x - half_width, y - half_height, x + half_width, y + half_height]
}

fn overlaps(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(length: u64, decode: Option<f64>) -> Row {
        let outcome = match decode {
            Some(_) => Outcome::Measured { decode_tok_s: decode, prefill_tok_s: None },
            None => Outcome::NotMeasured { class: "FAIL:bench".to_owned(), launched: None },
        };
        let model = "a".to_owned();
        Row { model, length: Some(length), outcome, evidence: None, disturbed: None }
    }

    #[test]
    fn a_line_has_a_gap_where_a_cell_failed() {
        let rows = [
            row(1, Some(9.0)),
            row(2, Some(8.0)),
            row(4, None),
            row(8, Some(5.0)),
            row(16, Some(4.0)),
        ];
        let middles = [(1, 9.0), (2, 8.0), (8, 5.0), (16, 4.0)];
        let runs = split_at_gaps(&middles, &rows, "a");
        assert_eq!(runs, [vec![(1, 9.0), (2, 8.0)], vec![(8, 5.0), (16, 4.0)]]);
        // Another model's failure is not a gap.
        assert_eq!(split_at_gaps(&middles, &rows, "b").len(), 1);
    }

    #[test]
    fn of_two_close_points_the_upper_one_has_its_number_above() {
        let place = Place { left: 0.0, top: 0.0, width: 100.0, height: 100.0 };
        let points = [(52.0, "no room"), (50.0, "lower"), (48.0, "upper")];
        let points = points.map(|(y, text)| ((20.0, y), 0, text.to_owned())).to_vec();
        let numbers = plan_numbers(points, place);
        let seen: Vec<_> =
            numbers.iter().map(|number| (&*number.label.text, number.label.y)).collect();
        assert_eq!(seen, [("upper", 39.0), ("lower", 68.0)]);
    }

    #[test]
    fn repeats_are_joined_in_their_middle() {
        assert_eq!(middle_of(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(middle_of(vec![4.0, 1.0]), 2.5);
    }
}
