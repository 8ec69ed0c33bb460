//! How a result reads: the table on the terminal, and `report.md`. Pure; every figure is the result's.

use std::fmt::Write as _;

use super::activation::Activation;
use super::analysis::{AbResult, LegResult, VersusBase, describe_work};
use super::config::Role;
use super::same_work::WorkCheck;
use crate::ab::figures::{show_change, show_interval, show_size};
use crate::ab::metric::{Kind, Metric};
use crate::stats::memory_curve::{CurveJudgement, HeldSource};
use crate::stats::verdict::Verdict;

pub(crate) use report::render_report;

mod report;

/// The rows of the table of legs, besides the output.
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

/// One line for each leg that is compared: the verdict, and what a reader must know with it.
pub(crate) fn render_verdicts(result: &AbResult) -> Vec<String> {
    let lines = result.legs.iter().filter_map(|leg| render_verdict(result, leg));
    let partial = result.partial.then(|| "PARTIAL: runs are missing that were wanted".to_owned());
    partial.into_iter().chain(lines).collect()
}

fn render_verdict(result: &AbResult, leg: &LegResult) -> Option<String> {
    let verdict = leg.verdict?;
    let mut line = format!("{} against base: {}", leg.leg.name, verdict.word());
    match &leg.why {
        Some(why) => write!(line, ": {why}"),
        None => {
            let primary = result.plan.primary;
            let versus = leg.metrics.get(&primary).and_then(|metric| metric.versus_base.as_ref());
            match versus {
                Some(versus) => write!(line, ", {}", describe_change(primary, versus)),
                None => Ok(()),
            }
        }
    }
    .ok()?;
    if let Activation::Unknown { reason } = &leg.activation {
        write!(line, "; activation unknown: {reason}").ok()?;
    }
    if leg.work == WorkCheck::Unknown {
        line.push_str("; same work unknown");
    }
    let disturbed: usize = result
        .legs
        .iter()
        .filter(|other| {
            matches!(other.leg.role, Role::Base | Role::Null) || other.leg.name == leg.leg.name
        })
        .map(|leg| leg.contended_runs)
        .sum();
    if disturbed > 0 {
        write!(line, "; contended: {disturbed} of its runs were disturbed in every try").ok()?;
    }
    Some(line)
}

/// The change of a metric with its interval and noise floor, and what it takes to see more.
fn describe_change(metric: Metric, versus: &VersusBase) -> String {
    let scale = versus.scale;
    let blocks = if versus.blocks == 1 { "block" } else { "blocks" };
    let mut text = format!(
        "{} {} (95 % interval {}, {} {blocks}",
        metric.label(),
        show_change(metric, scale, versus.change),
        show_interval(metric, scale, versus.interval),
        versus.blocks
    );
    if let Some(floor) = versus.noise_floor {
        let _ = write!(text, ", noise floor {}", show_size(metric, scale, floor));
    }
    text.push(')');
    if versus.verdict == Some(Verdict::Unresolved) {
        if let Some(detectable) = versus.detectable {
            let size = show_size(metric, scale, detectable);
            let _ = write!(text, "; these blocks could have seen {size}");
        }
        match versus.blocks_needed {
            Some(needed) => {
                let _ = write!(text, "; to see the margin takes about {needed} blocks");
            }
            None => text.push_str("; no number of blocks will show the margin"),
        }
    }
    if matches!(versus.verdict, Some(Verdict::Faster | Verdict::Slower)) && versus.within_margin {
        text.push_str("; real, but smaller than the margin");
    }
    text
}

/// The table of legs: what was counted, what it cost, and what it held, side by side.
pub(crate) fn render_legs_table(result: &AbResult) -> String {
    let mut rows = vec![header_row(result)];
    for metric in TABLE_METRICS {
        let has_any = result.legs.iter().any(|leg| leg.metrics.contains_key(&metric));
        // The rows that are the point of the table stay even where nothing was measured.
        let is_optional =
            matches!(metric, Metric::PrefillTokS | Metric::LivePeakMib | Metric::RssPeakMib);
        if has_any || !is_optional {
            let mut row = vec![metric.label().to_owned()];
            row.extend(result.legs.iter().map(|leg| metric_cell(metric, leg)));
            rows.push(row);
        }
    }
    let mut memory = vec!["memory".to_owned()];
    memory.extend(result.legs.iter().map(|leg| match &leg.memory {
        Some(curve) => describe_curve(curve),
        None => "—".to_owned(),
    }));
    rows.push(memory);
    let mut output = vec!["output".to_owned()];
    output.extend(result.legs.iter().map(|leg| match &leg.failure {
        Some(failure) => failure.classification.to_string(),
        None => describe_work(&leg.work),
    }));
    rows.push(output);
    render_table(&rows)
}

fn header_row(result: &AbResult) -> Vec<String> {
    let mut row = vec!["median of runs (spread)".to_owned()];
    row.extend(result.legs.iter().map(|leg| match leg.leg.role {
        Role::Base => "base".to_owned(),
        Role::Null => "null (base again)".to_owned(),
        Role::Baseline => "baseline (other binary)".to_owned(),
        Role::Test => {
            let env: Vec<String> =
                leg.leg.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{} ({})", leg.leg.name, env.join(" "))
        }
    }));
    row
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

/// A table in Markdown, its columns aligned so that it reads on a terminal as well.
fn render_table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        text.push('|');
        for (column, cell) in row.iter().enumerate() {
            let pad = widths[column].saturating_sub(cell.chars().count());
            let cell = cell.replace('|', "\\|");
            let blank = " ".repeat(pad);
            let _ = if column == 0 {
                write!(text, " {cell}{blank} |")
            } else {
                write!(text, " {blank}{cell} |")
            };
        }
        text.push('\n');
        if index == 0 {
            text.push('|');
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                let _ = if column == 0 {
                    write!(text, "{dashes}-|")
                } else {
                    write!(text, "{dashes}:|")
                };
            }
            text.push('\n');
        }
    }
    text
}

/// What the switch explains, in a sentence.
pub(crate) fn describe_attribution(found: &crate::ab::attribution::SwitchAttribution) -> String {
    let interval = |ends: crate::stats::Interval| format!("{:+.2} to {:+.2}", ends.low, ends.high);
    let gain = format!(
        "base is {:+.2} % of the baseline binary ({})",
        found.gain_pct,
        interval(found.gain_interval_pct)
    );
    let residual = format!(
        "residual {:+.2} % ({})",
        found.residual_pct,
        interval(found.residual_interval_pct)
    );
    match found.returned_pct {
        None => format!("{gain}: no gain to attribute; {residual}"),
        Some(share) => {
            let landing = if found.lands_on_baseline() {
                "the switched leg lands on the baseline"
            } else {
                "the switched leg does not land on the baseline: something else differs"
            };
            format!("{gain}; the switch returns {share:.0} % of the gain; {residual}: {landing}")
        }
    }
}

/// One line for each gate and leg.
pub(crate) fn render_gate_lines(result: &AbResult) -> Vec<String> {
    let mut lines = Vec::new();
    for gate in &result.gates {
        lines.push(format!(
            "gate `{}` on {}: {}: {}",
            gate.gate, gate.leg, gate.outcome, gate.reason
        ));
        if let Some(warning) = &gate.warning {
            lines.push(format!("warning: gate `{}`: {warning}", gate.gate));
        }
    }
    lines
}
