//! How a result reads: the table on the terminal, and `report.md`. Pure; every figure is the result's.

use std::fmt::Write as _;

use super::activation::Activation;
use super::analysis::{AbResult, LegResult, VersusBase, describe_failure, describe_work};
use super::config::Role;
use super::same_work::WorkCheck;
use crate::memory_curve::{CurveJudgement, HeldSource};
use crate::metric::{Kind, Metric};
use crate::verdict::{Scale, Verdict};

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
    let show = |value: f64| show_change(metric, versus.scale, value);
    let unit = match versus.scale {
        Scale::LogRatio => " %",
        Scale::Difference => "",
    };
    let mut text = format!("{} {}{unit}", metric.label(), show(versus.change));
    let blocks = if versus.blocks == 1 { "block" } else { "blocks" };
    let _ = write!(
        text,
        " (95 % interval {} to {}, {} {blocks}",
        show(versus.interval.low),
        show(versus.interval.high),
        versus.blocks
    );
    if let Some(floor) = versus.noise_floor {
        let _ = write!(text, ", noise floor {}{unit}", show_size(metric, versus.scale, floor));
    }
    text.push(')');
    if versus.verdict == Some(Verdict::Unresolved) {
        if let Some(detectable) = versus.detectable {
            let size = show_size(metric, versus.scale, detectable);
            let _ = write!(text, "; these blocks could have seen {size}{unit}");
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

fn show_change(metric: Metric, scale: Scale, value: f64) -> String {
    match scale {
        _ if !value.is_finite() => "unbounded".to_owned(),
        Scale::LogRatio => format!("{value:+.2}"),
        Scale::Difference if value >= 0.0 => format!("+{}", metric.render(value)),
        Scale::Difference => metric.render(value),
    }
}

fn show_size(metric: Metric, scale: Scale, value: f64) -> String {
    match scale {
        Scale::LogRatio => format!("{value:.2}"),
        Scale::Difference => metric.render(value),
    }
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

/// The verdict on every metric of every leg.
fn render_metrics_table(result: &AbResult) -> String {
    let mut rows = vec![
        ["leg", "metric", "change", "95 % interval", "noise floor", "blocks", "verdict"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for leg in &result.legs {
        for (metric, found) in &leg.metrics {
            let Some(versus) = &found.versus_base else { continue };
            let show = |value: f64| show_change(*metric, versus.scale, value);
            let unit = match versus.scale {
                Scale::LogRatio => " %",
                Scale::Difference => "",
            };
            let verdict = match versus.verdict {
                None => "noise".to_owned(),
                Some(verdict) => verdict_cell(*metric, verdict, versus),
            };
            rows.push(vec![
                leg.leg.name.clone(),
                metric.label().to_owned(),
                format!("{}{unit}", show(versus.change)),
                format!("{} to {}", show(versus.interval.low), show(versus.interval.high)),
                versus.noise_floor.map_or("—".to_owned(), |floor| {
                    format!("{}{unit}", show_size(*metric, versus.scale, floor))
                }),
                versus.blocks.to_string(),
                verdict,
            ]);
        }
    }
    render_table(&rows)
}

/// The verdict's word; for what is no speed also which way that is.
fn verdict_cell(metric: Metric, verdict: Verdict, versus: &VersusBase) -> String {
    let way = match (metric.kind(), verdict) {
        (Kind::Count, Verdict::Faster) => " (fewer)",
        (Kind::Count, Verdict::Slower) => " (more)",
        (Kind::Memory | Kind::Slope, Verdict::Faster) => " (less)",
        (Kind::Memory | Kind::Slope, Verdict::Slower) => " (more)",
        _ => "",
    };
    let needed = versus
        .blocks_needed
        .filter(|_| verdict == Verdict::Unresolved)
        .map(|blocks| format!(", about {blocks} blocks needed"));
    let small = versus.within_margin && matches!(verdict, Verdict::Faster | Verdict::Slower);
    format!(
        "{}{way}{}{}",
        verdict.word(),
        if small { ", below the margin" } else { "" },
        needed.unwrap_or_default()
    )
}

/// `report.md`. `command` repeats the comparison.
pub(crate) fn render_report(result: &AbResult, command: &str) -> String {
    let plan = &result.plan;
    let mut text = format!("# A/B on {}, {}\n\n", plan.model, result.date);
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    if result.partial {
        line("**Partial: runs are missing that were wanted.** `--resume` goes on.\n");
    }
    if let Some(question) = &plan.question {
        line(&format!("{question}\n"));
    }
    for verdict in render_verdicts(result) {
        line(&format!("- {verdict}"));
    }
    for note in &result.notes {
        line(&format!("- note: {note}"));
    }
    line("");
    line(&format!("```sh\n{command}\n```\n"));
    line(&render_legs_table(result));
    line("## Against base\n");
    line(
        "Paired within blocks. `faster` and `slower` mean that the whole interval is beyond zero and \
         beyond what base shows against itself.\n",
    );
    line(&render_metrics_table(result));
    for section in [
        render_activation(result),
        render_memory(result),
        render_split(result),
        render_attribution(result),
        render_gates(result),
        render_method(result),
    ] {
        if !section.is_empty() {
            line(&section);
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn render_activation(result: &AbResult) -> String {
    let mut text = String::from("## Activation\n\n");
    let mut any = false;
    for leg in result.legs.iter().filter(|leg| leg.leg.role == Role::Test) {
        any = true;
        let what = match &leg.activation {
            Activation::Active { evidence } => format!("active: {evidence}"),
            Activation::Inert { reason, .. } => format!("inert: {reason}"),
            Activation::Unknown { reason } => format!("unknown: {reason}"),
            Activation::NotNeeded => "not needed".to_owned(),
        };
        let _ = writeln!(text, "- {}: {what}", leg.leg.name);
    }
    if any { text } else { String::new() }
}

fn render_memory(result: &AbResult) -> String {
    let mut rows = vec![
        ["leg", "driver allocs per step", "MiB/token", "95 % interval", "held at the end", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
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
    if rows.len() == 1 {
        return "## Memory\n\nNo leg reported held memory over its decode steps.\n".to_owned();
    }
    format!(
        "## Memory\n\nA count that fell stands beside what it was bought with. The slope is \
         Theil–Sen over the decode windows; up to {} MiB a token counts as flat.\n\n{}",
        result.plan.flat_mib_per_token,
        render_table(&rows)
    )
}

fn render_split(result: &AbResult) -> String {
    let mut text = String::new();
    for leg in result.legs.iter().filter(|leg| !leg.split.is_empty()) {
        let mut rows =
            vec![["part of the run", "ms less base", "95 % interval"].map(str::to_owned).to_vec()];
        for part in &leg.split {
            rows.push(vec![
                part.name.clone(),
                format!("{:+.2}", part.difference_ms),
                format!("{:+.2} to {:+.2}", part.interval_ms.low, part.interval_ms.high),
            ]);
        }
        let _ = writeln!(
            text,
            "## Where the difference of {} lies\n\n{}",
            leg.leg.name,
            render_table(&rows)
        );
    }
    text.truncate(text.trim_end().len());
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn render_attribution(result: &AbResult) -> String {
    let mut text = String::new();
    for leg in &result.legs {
        let Some(found) = &leg.attribution else { continue };
        if text.is_empty() {
            text.push_str("## Attribution\n\n");
        }
        let _ = writeln!(text, "- {}: {}", leg.leg.name, describe_attribution(found));
    }
    text
}

/// What the switch explains, in a sentence.
pub(crate) fn describe_attribution(found: &crate::attribution::SwitchAttribution) -> String {
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

fn render_gates(result: &AbResult) -> String {
    if result.gates.is_empty() {
        return String::new();
    }
    let mut text = String::from("## Gates\n\n");
    for line in render_gate_lines(result) {
        let _ = writeln!(text, "- {line}");
    }
    text
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

fn render_method(result: &AbResult) -> String {
    let plan = &result.plan;
    let mut lines = vec![format!(
        "{} blocks, each leg once a block, orders mirrored in pairs and shuffled by seed {}; {}",
        result.blocks,
        plan.seed,
        result.stop.map_or("not finished", |stop| stop.describe())
    )];
    lines.push(format!(
        "runs: {} accepted, {} rejected, {} counted although disturbed, {} failed, {} lost",
        result.runs.accepted,
        result.runs.rejected,
        result.runs.contended,
        result.runs.failed,
        result.runs.lost
    ));
    lines.push(format!(
        "prompt {} tokens, {} generated, {} in the warm-up; margin ±{} %",
        plan.prompt_tokens, plan.max_tokens, plan.warmup_tokens, plan.margin_pct
    ));
    if let Some(drift) = &result.drift {
        lines.push(format!(
            "drift of base: {:+.3} % of {} from run to run ({:+.3} to {:+.3})",
            drift.pct_per_run,
            plan.primary.label(),
            drift.interval.low,
            drift.interval.high
        ));
    }
    let dirty = match result.dirty {
        Some(true) => ", with changes",
        _ => "",
    };
    let kernel = result.host.kernel.as_deref().unwrap_or("unknown kernel");
    let cores = result.host.cores.map_or(String::new(), |cores| format!(", {cores} cores"));
    lines.push(format!("machine: {}{cores}, {} {kernel}", result.hardware, result.host.os));
    let engine = result.engine.as_ref();
    let name = engine.and_then(|engine| engine.name.as_deref()).unwrap_or("unknown");
    let version = engine.and_then(|engine| engine.version.as_deref()).unwrap_or("unknown");
    lines.push(format!("engine: {name} {version}; checkout {}{dirty}", result.commit));
    let short = |hash: &str| hash.get(..12).unwrap_or(hash).to_owned();
    let mut hashes = vec![format!("program {}", short(&result.identity.program_sha256))];
    for (what, hash) in [
        ("baseline", &result.identity.baseline_sha256),
        ("model", &result.identity.model_sha256),
        ("definition", &result.identity.config_sha256),
    ] {
        if let Some(hash) = hash {
            hashes.push(format!("{what} {}", short(hash)));
        }
    }
    lines.push(format!("SHA-256, the same before every run: {}", hashes.join(", ")));
    for leg in &result.legs {
        if let Some(failure) = &leg.failure {
            lines.push(format!("{} {}", leg.leg.name, describe_failure(failure)));
        }
    }
    let mut text = String::from("## Method\n\n");
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
    text
}
