//! The picture of a sweep as SVG: plots side by side, the cells below them.

use anyhow::Context as _;
use serde::Serialize;

use super::panel::{Metric, Panel, plan_panel};
use super::strip::{Strip, plan_strip};
use super::sweep::{Row, Sweep};

const TEMPLATE: &str = include_str!("picture.svg.jinja");

/// Colours of lines in the template; models beyond them take them again with another shape.
const COLOURS: usize = 8;

const WIDTH: f64 = 880.0;
const PLOT_TOP: f64 = 108.0;
const PLOT_HEIGHT: f64 = 226.0;
const LEFT: f64 = 62.0;
const GAP: f64 = 66.0;
const RIGHT: f64 = 26.0;

/// A box on the page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Place {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Place {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }
}

/// A model with its colour and the shape of its points.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) model: String,
    pub(super) colour: usize,
    pub(super) shape: Shape,
}

/// The shape of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Circle,
    Square,
    Diamond,
    Triangle,
}

impl Shape {
    const ALL: [Shape; 4] = [Shape::Circle, Shape::Square, Shape::Diamond, Shape::Triangle];

    /// The shape around a place, as the data of an SVG path.
    pub(super) fn path(self, x: f64, y: f64) -> String {
        let at = |dx: f64, dy: f64| format!("{} {}", round1(x + dx), round1(y + dy));
        match self {
            Shape::Circle => format!("M{}a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z", at(-4.0, 0.0)),
            Shape::Square => format!("M{}h7v7h-7Z", at(-3.5, -3.5)),
            Shape::Diamond => format!("M{}l5 5l-5 5l-5-5Z", at(0.0, -5.0)),
            Shape::Triangle => format!("M{}l5 8.6h-10Z", at(0.0, -5.4)),
        }
    }
}

/// What the template is given.
#[derive(Debug, Serialize)]
struct Picture<'a> {
    width: f64,
    height: f64,
    title: &'a str,
    subtitle: &'a [String],
    description: String,
    panels: Vec<Panel>,
    strip: Strip,
    names_left: f64,
}

/// Renders the picture. `title` and `subtitle` stand above it as they are.
///
/// # Errors
/// Only when the template is broken.
pub(super) fn render_picture(
    rows: &[Row],
    title: &str,
    subtitle: &[String],
) -> anyhow::Result<String> {
    let series = plan_series(rows);
    let mut lengths: Vec<u64> = rows.iter().filter_map(|row| row.length).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let has = |metric: Metric| rows.iter().any(|row| metric.of(row).is_some());
    let metrics: Vec<Metric> =
        [Metric::Decode, Metric::Prefill].into_iter().filter(|metric| has(*metric)).collect();
    let width = (WIDTH - LEFT - RIGHT - GAP) / 2.0;
    let place = |index: usize| Place {
        left: LEFT + index as f64 * (width + GAP),
        top: PLOT_TOP,
        width,
        height: PLOT_HEIGHT,
    };
    let panels: Vec<Panel> = metrics
        .iter()
        .enumerate()
        .filter_map(|(index, metric)| plan_panel(*metric, rows, &series, &lengths, place(index)))
        .collect();
    // Without any speed the rows of cells are all there is to see.
    let strip_top = if panels.is_empty() { 84.0 } else { place(0).bottom() + 58.0 };
    let names_left = place(0).right() + 24.0;
    let strip = plan_strip(rows, &series, &lengths, place(0), names_left, strip_top);
    let picture = Picture {
        width: WIDTH,
        height: (strip.bottom + 26.0).ceil(),
        title,
        subtitle,
        description: describe(rows, &series),
        panels,
        strip,
        names_left,
    };
    let mut environment = minijinja::Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_template("picture", TEMPLATE).context("the template of the picture")?;
    let text = environment
        .get_template("picture")
        .and_then(|template| template.render(&picture))
        .context("cannot render the picture")?;
    Ok(without_controls(&text))
}

/// The lines above the picture: what was measured, where, when, and from which commit.
pub(super) fn render_subtitle(sweep: &Sweep, source: &str) -> Vec<String> {
    let some = |values: &[String]| match values {
        [] => None,
        [one] => Some(one.clone()),
        [first, .., last] => Some(format!("{first} … {last}")),
    };
    let mut dates = sweep.dates.clone();
    dates.sort();
    let origin = sweep.origin.as_ref();
    let cores = origin.and_then(|origin| origin.cores).map(|cores| format!("{cores} cores"));
    let hardware: Vec<String> =
        sweep.hardware.iter().map(|hardware| hardware.replace('_', " ")).collect();
    let commit = origin.filter(|origin| !origin.commit.is_empty()).map(|origin| {
        let changed = if origin.dirty { " with changes" } else { "" };
        format!("commit {}{changed}", origin.commit)
    });
    let runner = origin.filter(|origin| !origin.runner.is_empty());
    let limit = origin.and_then(|origin| origin.cell_memory_limit_mb);
    let join =
        |parts: Vec<Option<String>>| parts.into_iter().flatten().collect::<Vec<_>>().join(" · ");
    let first = join(vec![some(&hardware), cores, some(&dates), commit]);
    let second = join(vec![
        runner.map(|origin| format!("runner {}", origin.runner)),
        some(&sweep.engine_versions).map(|version| format!("engine {version}")),
        limit.map(|limit| format!("each cell limited to {limit} MiB")),
        Some(source.to_owned()).filter(|source| !source.is_empty()),
    ]);
    [first, second].into_iter().filter(|line| !line.is_empty()).collect()
}

fn plan_series(rows: &[Row]) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        if series.iter().all(|one| one.model != row.model) {
            let index = series.len();
            series.push(Series {
                model: row.model.clone(),
                colour: index % COLOURS,
                shape: Shape::ALL[index / COLOURS % Shape::ALL.len()],
            });
        }
    }
    series
}

/// The picture in words, for those who cannot see it.
fn describe(rows: &[Row], series: &[Series]) -> String {
    let measured = rows.iter().filter(|row| row.is_measured()).count();
    let counted =
        |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!(
        "Speed over prompt length of {}: {} measured, {} not.",
        counted(series.len(), "model"),
        counted(measured, "cell"),
        rows.len() - measured
    )
}

/// `1 model`, `2 models`.
pub(super) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Characters that XML cannot hold, however they are written, become the one that says so.
fn without_controls(text: &str) -> String {
    let is_allowed = |c: char| {
        matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
            || c >= '\u{10000}'
    };
    text.chars().map(|c| if is_allowed(c) { c } else { '\u{fffd}' }).collect()
}

/// A tenth of a pixel is fine enough, and keeps files small and diffs readable.
pub(super) fn round1(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests;
