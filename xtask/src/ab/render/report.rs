//! `report.md`.

use std::fmt::Write as _;

use super::{
    describe_attribution, describe_curve, render_gate_lines, render_legs_table, render_table,
    render_verdicts,
};
use crate::ab::activation::Activation;
use crate::ab::analysis::{AbResult, VersusBase, describe_failure};
use crate::ab::config::Role;
use crate::ab::figures::{show_change, show_interval, show_size};
use crate::ab::metric::{Kind, Metric};
use crate::stats::verdict::Verdict;

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
            let verdict = match versus.verdict {
                None => "noise".to_owned(),
                Some(verdict) => verdict_cell(*metric, verdict, versus),
            };
            rows.push(vec![
                leg.leg.name.clone(),
                metric.label().to_owned(),
                show_change(*metric, versus.scale, versus.change),
                show_interval(*metric, versus.scale, versus.interval),
                versus
                    .noise_floor
                    .map_or("—".to_owned(), |floor| show_size(*metric, versus.scale, floor)),
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
