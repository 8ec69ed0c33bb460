//! The rows of the tables, and their Markdown.

use super::describe_blocks;
use crate::ab::analysis::{AbResult, LegResult, VersusBase, describe_work};
use crate::ab::config::LegRole;
use crate::ab::figures::{show_change, show_interval, show_size, verdict_word};
use crate::ab::metric::{Kind, Metric};
use crate::stats::memory_curve::{CurveJudgement, HeldSource};
use crate::stats::verdict::Verdict;

/// The first row holds the headings.
pub(super) type Rows = Vec<Vec<String>>;

/// The rows of the table of legs, besides memory and output.
const TABLE_METRICS: [Metric; 9] = [
    Metric::DriverAllocsPerStep,
    Metric::DriverFreesPerStep,
    Metric::AllocMsPerStep,
    Metric::DecodeTokS,
    Metric::MsPerToken,
    Metric::SlopeMibPerToken,
    Metric::PrefillTokS,
    Metric::LivePeakMib,
    Metric::RssPeakMib,
];

/// The table of legs: what was counted, what it cost, and what it held, side by side.
pub(crate) fn render_legs_table(result: &AbResult) -> String {
    let row = |label: &str, cell: &dyn Fn(&LegResult) -> String| {
        let cells = result.legs.iter().map(cell);
        std::iter::once(label.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let mut rows = vec![row("median of runs (spread)", &heading)];
    for metric in TABLE_METRICS {
        if result.legs.iter().any(|leg| leg.metrics.contains_key(&metric)) {
            rows.push(row(metric.label(), &|leg| metric_cell(metric, leg)));
        }
    }
    if result.legs.iter().any(|leg| leg.memory.is_some()) {
        rows.push(row("memory", &|leg| leg.memory.as_ref().map_or("—".to_owned(), describe_curve)));
    }
    rows.push(row("output", &|leg| match &leg.failure {
        Some(failure) => failure.classification.to_string(),
        None => describe_work(&leg.work),
    }));
    render_table(&rows)
}

fn heading(leg: &LegResult) -> String {
    match leg.leg.role {
        LegRole::Base => "base".to_owned(),
        LegRole::Null => "null (base again)".to_owned(),
        LegRole::Baseline => "baseline (other binary)".to_owned(),
        LegRole::Test => {
            let env: Vec<String> =
                leg.leg.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} ({})", leg.leg.name, env.join(" "))
        }
    }
}

fn metric_cell(metric: Metric, leg: &LegResult) -> String {
    let Some(found) = leg.metrics.get(&metric) else { return "—".to_owned() };
    let spread = match (metric.kind(), found.spread) {
        (Kind::Time, Some(spread)) if found.median != 0.0 => {
            format!(" (±{:.1} %)", 100.0 * spread / found.median.abs())
        }
        _ => String::new(),
    };
    format!("{}{spread}", metric.render(found.median))
}

fn describe_curve(curve: &CurveJudgement) -> String {
    let source = match curve.source {
        HeldSource::Held => "",
        HeldSource::Resident => ", resident set",
    };
    let end = curve.full_at_token.map(|token| format!(", full at token {token:.0}"));
    format!(
        "{}, {:.1} MiB held{source}{}",
        curve.growth.word(),
        curve.held_end_mib,
        end.unwrap_or_default()
    )
}

/// The verdict on every metric of every leg.
pub(super) fn metric_rows(result: &AbResult) -> Rows {
    let mut rows =
        headings(["leg", "metric", "change", "95 % interval", "noise floor", "blocks", "verdict"]);
    for leg in &result.legs {
        for (metric, found) in &leg.metrics {
            let Some(versus) = &found.versus_base else { continue };
            let floor = versus.noise_floor.map(|floor| show_size(*metric, versus.scale, floor));
            rows.push(vec![
                leg.leg.name.clone(),
                metric.label().to_owned(),
                show_change(*metric, versus.scale, versus.change),
                show_interval(*metric, versus.scale, versus.interval),
                floor.unwrap_or("—".to_owned()),
                versus.blocks.to_string(),
                verdict_cell(*metric, versus),
            ]);
        }
    }
    rows
}

fn verdict_cell(metric: Metric, versus: &VersusBase) -> String {
    let Some(verdict) = versus.verdict else { return "noise".to_owned() };
    let word = verdict_word(metric, verdict);
    match (verdict, versus.blocks_needed) {
        (Verdict::Unresolved, Some(blocks)) => {
            format!("{word}, {} blocks needed", describe_blocks(blocks))
        }
        (Verdict::Faster | Verdict::Slower, _) if versus.within_margin => {
            format!("{word}, below the margin")
        }
        _ => word.to_owned(),
    }
}

/// Held memory of each leg that reported it, beside the calls that it may have been bought with.
pub(super) fn memory_rows(result: &AbResult) -> Rows {
    let mut rows = headings([
        "leg",
        "driver allocs per step",
        "MiB/token",
        "95 % interval",
        "held at the end",
        "",
    ]);
    for leg in &result.legs {
        let Some(curve) = &leg.memory else { continue };
        let allocs = leg.metrics.get(&Metric::DriverAllocsPerStep);
        let slope = |value: f64| Metric::SlopeMibPerToken.render(value);
        rows.push(vec![
            leg.leg.name.clone(),
            allocs.map_or("—".to_owned(), |m| Metric::DriverAllocsPerStep.render(m.median)),
            slope(curve.slope_mib_per_token),
            format!("{} to {}", slope(curve.interval.low), slope(curve.interval.high)),
            format!("{:.1} MiB", curve.held_end_mib),
            describe_curve(curve),
        ]);
    }
    rows
}

/// Where the time of a leg's difference from base lies.
pub(super) fn split_rows(leg: &LegResult) -> Rows {
    let mut rows = headings(["part of the run", "ms against base", "95 % interval"]);
    rows.extend(leg.split.iter().map(|part| {
        vec![
            part.name.clone(),
            format!("{:+.2}", part.difference_ms),
            format!("{:+.2} to {:+.2}", part.interval_ms.low, part.interval_ms.high),
        ]
    }));
    rows
}

fn headings<const N: usize>(words: [&str; N]) -> Rows {
    vec![words.map(str::to_owned).to_vec()]
}

/// A table in Markdown, its columns aligned so that it reads on a terminal as well: the first to the
/// left, the others to the right.
pub(super) fn render_table(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| cell.replace('|', "\\|")).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(column, (cell, width))| match column {
                0 => format!(" {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            });
            format!("|{}", cells.collect::<String>())
        })
        .collect();
    let rules = widths.iter().enumerate().map(|(column, width)| {
        format!("{}{}|", "-".repeat(width + 1), if column == 0 { '-' } else { ':' })
    });
    lines.insert(1.min(lines.len()), format!("|{}", rules.collect::<String>()));
    lines.join("\n")
}
