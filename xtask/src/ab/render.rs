//! How a result reads: verdict lines and the table of legs on the terminal, and `report.md`. Every
//! figure is the result's.

use super::activation::Activation;
use super::analysis::{AbResult, LegResult, VersusBase};
use super::attribution::SwitchAttribution;
use super::config::MAX_BLOCKS;
use super::figures::{show_change, show_interval, show_size, verdict_word};
use super::metric::Metric;
use super::same_work::WorkCheck;
use crate::stats::Interval;
use crate::stats::verdict::Verdict;

pub(crate) use report::render_report;
pub(crate) use tables::render_legs_table;

mod report;
mod tables;

/// One line for each leg that is compared: the verdict, and what a reader must know with it.
pub(crate) fn render_verdicts(result: &AbResult) -> Vec<String> {
    let lines = result.legs.iter().filter_map(|leg| render_verdict(result, leg));
    let partial = result.partial.then(|| "PARTIAL: runs are missing".to_owned());
    partial.into_iter().chain(lines).collect()
}

/// What a result means, a line each: verdicts, attribution, gates, notes.
pub(crate) fn render_summary(result: &AbResult) -> String {
    let mut lines = render_verdicts(result);
    for leg in &result.legs {
        if let Some(found) = &leg.attribution {
            lines.push(format!("{}: {}", leg.leg.name, describe_attribution(found)));
        }
    }
    lines.extend(render_gate_lines(result));
    lines.extend(result.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n")
}

fn render_verdict(result: &AbResult, leg: &LegResult) -> Option<String> {
    let primary = result.plan.primary;
    let word = verdict_word(primary, leg.verdict?);
    let mut line = format!("{} against base: {word}", leg.leg.name);
    let versus = leg.metrics.get(&primary).and_then(|metric| metric.versus_base.as_ref());
    if let Some(why) = &leg.why {
        line += &format!(": {why}");
    } else if let Some(versus) = versus {
        let kind = if result.plan.until_decided { "99 % sequence" } else { "95 % interval" };
        line += &format!(", {}", describe_change(primary, versus, kind));
    }
    if let Activation::Unknown { reason } = &leg.activation {
        line += &format!("; activation unknown: {reason}");
    }
    if leg.work == WorkCheck::Unknown {
        line += "; same work unknown";
    }
    if let Some(inherited) = result.inherited.as_ref().filter(|it| !it.switches.is_empty()) {
        line += &format!("; inherited from the shell: {}", inherited.switches.join(", "));
    }
    let takes_part =
        |other: &&LegResult| other.leg.role.is_reference() || other.leg.name == leg.leg.name;
    let disturbed: usize =
        result.legs.iter().filter(takes_part).map(|leg| leg.contended_runs).sum();
    if disturbed > 0 {
        line += &format!("; contended: {disturbed} of its runs were disturbed on every try");
    }
    Some(line)
}

/// The change of a metric with its interval and noise floor, and what it takes to see more.
fn describe_change(metric: Metric, versus: &VersusBase, kind: &str) -> String {
    let scale = versus.scale;
    let mut text = format!(
        "{} {} ({kind} {}, {} block{}",
        metric.label(),
        show_change(metric, scale, versus.change),
        show_interval(metric, scale, versus.interval),
        versus.blocks,
        if versus.blocks == 1 { "" } else { "s" }
    );
    if let Some(floor) = versus.noise_floor {
        text += &format!(", noise floor {}", show_size(metric, scale, floor));
    }
    text += ")";
    if versus.verdict == Some(Verdict::Unresolved) {
        if let Some(detectable) = versus.detectable {
            let size = show_size(metric, scale, detectable);
            text += &format!("; this many blocks can show a change of {size}");
        }
        text += &match versus.blocks_needed {
            Some(needed) => {
                let blocks = describe_blocks(needed);
                format!("; one as large as the margin takes {blocks} blocks")
            }
            None => "; no number of blocks shows one as large as the margin".to_owned(),
        };
    }
    if versus.within_margin && matches!(versus.verdict, Some(Verdict::Faster | Verdict::Slower)) {
        text += "; real, but smaller than the margin";
    }
    text
}

/// A number of blocks that nobody would run is no more than that.
fn describe_blocks(blocks: usize) -> String {
    if blocks > MAX_BLOCKS { format!("more than {MAX_BLOCKS}") } else { format!("about {blocks}") }
}

/// What the switch explains, in a sentence.
pub(crate) fn describe_attribution(found: &SwitchAttribution) -> String {
    let show = |change: f64, Interval { low, high }: Interval| {
        format!("{change:+.2} % ({low:+.2} to {high:+.2} %)")
    };
    let gain = show(found.gain_pct, found.gain_interval_pct);
    let residual = show(found.residual_pct, found.residual_interval_pct);
    let gain = format!("base gains {gain} over the baseline binary");
    let Some(share) = found.returned_pct else {
        return format!("{gain}: nothing to attribute; residual {residual}");
    };
    let landing = if found.lands_on_baseline() {
        "the switched leg lands on the baseline"
    } else {
        "the switched leg does not land on the baseline, so something else differs"
    };
    format!(
        "{gain}; the switch takes back {share:.0} % of the gain; residual {residual}: {landing}"
    )
}

/// One line for each gate and leg.
pub(crate) fn render_gate_lines(result: &AbResult) -> Vec<String> {
    let mut lines = Vec::new();
    for gate in &result.gates {
        let (text, outcome) = (&gate.gate, gate.outcome);
        lines.push(format!("gate `{text}` on {}: {outcome}: {}", gate.leg, gate.reason));
        lines.extend(
            gate.warning.iter().map(|warning| format!("warning: gate `{text}`: {warning}")),
        );
    }
    lines
}
