//! `report.md`: what a person reads.

use std::fmt::Write as _;

use super::{ResultFile, Status, primary};
use crate::prereg::chain::Version;
use crate::prereg::compose::{NULL, RungState};
use crate::prereg::document::{Document, Role};
use crate::prereg::judge::{Round, RuleResult, is_fraction, percent};
use crate::prereg::oracle::Verdict;
use crate::stats::expr::{Expr, Number};

/// Renders the report.
pub(crate) fn render_markdown(
    document: &Document,
    version: &Version,
    result: &ResultFile,
) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = render(&mut text, document, version, result);
    text
}

fn render(
    out: &mut String,
    document: &Document,
    version: &Version,
    result: &ResultFile,
) -> std::fmt::Result {
    let run = &result.run;
    writeln!(out, "# Ladder `{}`, run of {}\n", run.name, run.date)?;
    writeln!(out, "{}\n", document.question.trim())?;
    writeln!(
        out,
        "Version {} of the document, frozen on {} at commit {} (entry {}). Run at commit {} on {}. \
         Everything below follows from `samples.jsonl` and that version; `cargo xtask prereg report \
         {} --check` recomputes it.\n",
        version.version,
        version.date,
        version.pins.commit,
        short(&version.entry_sha256),
        run.commit,
        run.machine,
        run.name
    )?;
    outcome(out, document, result)?;
    background(out, document)?;
    for round in &result.rounds {
        ladder(out, document, round, result.rounds.len() > 1)?;
    }
    oracles(out, result)?;
    if let Some(round) = result.rounds.last() {
        reads(out, document, round)?;
        guards(out, document, round)?;
    }
    for round in &result.rounds {
        rules(out, document, round, result.rounds.len() > 1)?;
    }
    expectations(out, document, result)?;
    cost(out, result)?;
    changes(out, document, result)
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn outcome(out: &mut String, document: &Document, result: &ResultFile) -> std::fmt::Result {
    writeln!(out, "## Outcome\n")?;
    match (result.status, &result.rule) {
        (Status::Decided, Some(id)) => {
            let action = result.action.as_deref().unwrap_or_default();
            writeln!(out, "**Rule `{id}` fired: {action}.**")?;
            let rule = document.rules.iter().find(|rule| rule.id == *id);
            if let Some(words) = rule.map(|rule| rule.text.trim()).filter(|words| !words.is_empty())
            {
                writeln!(out, "{words}")?;
            }
            if let Some(landing) = &result.landing {
                let list = |ids: &[String]| match ids {
                    [] => "nothing".to_owned(),
                    ids => ids.join(", "),
                };
                writeln!(
                    out,
                    "\nLands: {}. Stays out: {}.",
                    list(&landing.land),
                    list(&landing.park)
                )?;
            }
        }
        (status, _) => {
            let word = match status {
                Status::Incomplete => "Incomplete",
                _ => "Undecided",
            };
            let why = result.why_open.as_deref().unwrap_or_default();
            writeln!(out, "**{word}: {why}.**")?;
        }
    }
    for drop in &result.dropped {
        let when = match drop.after_round {
            0 => "before the ladder".to_owned(),
            round => format!("after pass {round}"),
        };
        writeln!(out, "\nDropped {when}: {} ({}).", drop.item, drop.why)?;
    }
    writeln!(out)
}

/// What was known beforehand, and the changes under test.
fn background(out: &mut String, document: &Document) -> std::fmt::Result {
    writeln!(out, "## Background\n")?;
    if !document.background.trim().is_empty() {
        writeln!(out, "{}\n", document.background.trim())?;
    }
    for item in &document.items {
        writeln!(out, "- {}: {}", item.id, cell(&item.title))?;
    }
    writeln!(out)
}

fn ladder(out: &mut String, document: &Document, round: &Round, many: bool) -> std::fmt::Result {
    let pass = if many { format!(", pass {}", round.number) } else { String::new() };
    writeln!(out, "## Ladder{pass}\n")?;
    let protocol = &document.protocol;
    writeln!(
        out,
        "{} of steps {} to {}, then the median of {} launch(es); {} order, seed {}.\n",
        capitalized(&protocol.statistic.to_string()),
        protocol.discard_steps + 1,
        protocol.steps,
        protocol.repeats,
        protocol.order,
        protocol.seed
    )?;
    let base = document.base();
    for metric in &document.metrics {
        let unit =
            if metric.unit.is_empty() { String::new() } else { format!(" ({})", metric.unit) };
        let statistic = if metric.statistic == protocol.statistic {
            String::new()
        } else {
            format!(", {}", metric.statistic)
        };
        writeln!(out, "### `{}`{unit}{statistic}\n", metric.id)?;
        writeln!(out, "| rung | items | value | lowest to highest launch | versus {} |", base.id)?;
        writeln!(out, "| --- | --- | ---: | ---: | ---: |")?;
        let base_value = round.number(&metric.id, &base.id);
        for rung in &round.ladder {
            let items =
                if rung.items.is_empty() { "–".to_owned() } else { rung.items.join(", ") };
            let receipt = if rung.state == RungState::Receipt { " (receipt)" } else { "" };
            write!(out, "| {}{receipt} | {items} | ", rung.name)?;
            let value = round.number(&metric.id, &rung.id);
            match &value {
                Number::Known(value) => write!(out, "{}", amount(*value))?,
                Number::Void(why) | Number::Missing(why) => write!(out, "none: {}", cell(why))?,
            }
            let range = round
                .figures
                .get(&metric.id)
                .and_then(|rungs| rungs.get(&rung.id))
                .and_then(|figure| figure.range())
                .map(|(low, high)| format!("{} to {}", amount(low), amount(high)));
            write!(out, " | {} | ", range.unwrap_or_default())?;
            match (&base_value, &value) {
                (Number::Known(a), Number::Known(b)) if rung.id != base.id && *a != 0.0 => {
                    writeln!(out, "{} |", percent((b - a) / a))?;
                }
                _ => writeln!(out, "|")?,
            }
        }
        writeln!(out)?;
    }
    for bad in round.crashed.values().chain(round.non_finite.values()) {
        writeln!(out, "- {}", cell(bad))?;
    }
    if !round.crashed.is_empty() || !round.non_finite.is_empty() {
        writeln!(out)?;
    }
    if round.ladder.iter().any(|rung| rung.id == NULL) {
        let metric = primary(document).map_or("", |read| read.metric.as_str());
        let noise = match &round.noise.0 {
            Number::Known(noise) => format!("{:.2} %", noise * 100.0),
            Number::Void(why) | Number::Missing(why) => format!("not known ({why})"),
        };
        writeln!(out, "Noise floor of `{metric}`, base against base again: {noise}.\n")?;
    } else {
        writeln!(out, "No null rung was measured: the noise floor is not known.\n")?;
    }
    Ok(())
}

fn oracles(out: &mut String, result: &ResultFile) -> std::fmt::Result {
    writeln!(out, "## Oracles\n")?;
    if result.oracles.is_empty() {
        return writeln!(out, "None.\n");
    }
    writeln!(out, "| oracle | item | measured | bound | |")?;
    writeln!(out, "| --- | --- | --- | --- | --- |")?;
    for trial in &result.oracles {
        let verdict = match trial.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "**failed**",
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {verdict} |",
            trial.oracle,
            trial.item.as_deref().unwrap_or("–"),
            cell(&trial.measured),
            cell(&trial.bound)
        )?;
    }
    writeln!(out)
}

fn reads(out: &mut String, document: &Document, round: &Round) -> std::fmt::Result {
    writeln!(out, "## Reads\n")?;
    writeln!(out, "| read | formula | value | |")?;
    writeln!(out, "| --- | --- | ---: | --- |")?;
    for (read, outcome) in document.reads.iter().zip(&round.reads) {
        let role = match read.role {
            Role::Primary => "primary",
            Role::Secondary => "secondary",
        };
        let failed = match (&outcome.failed_by, &outcome.unsettled_by) {
            (Some(guard), _) => format!("**failed by guard {guard}**"),
            (None, Some(why)) => cell(why),
            (None, None) => String::new(),
        };
        writeln!(
            out,
            "| {} ({role}) | {} over `{}` | {} | {failed} |",
            read.id,
            read.value,
            read.metric,
            figure(&outcome.value.0, &read.value)
        )?;
    }
    writeln!(out)
}

fn guards(out: &mut String, document: &Document, round: &Round) -> std::fmt::Result {
    writeln!(out, "## Guards\n")?;
    if document.guards.is_empty() {
        return writeln!(out, "None.\n");
    }
    writeln!(out, "| guard | formula | value | passes if | |")?;
    writeln!(out, "| --- | --- | ---: | --- | --- |")?;
    for (guard, outcome) in document.guards.iter().zip(&round.guards) {
        let verdict = match outcome.passes {
            Some(true) => "passed",
            Some(false) => "**failed**",
            None => "cannot be judged",
        };
        writeln!(
            out,
            "| {} | {} over `{}` | {} | {} | {verdict} |",
            guard.id,
            guard.value,
            guard.metric,
            figure(&outcome.value.0, &guard.value),
            guard.passes
        )?;
    }
    writeln!(out)
}

fn rules(out: &mut String, document: &Document, round: &Round, many: bool) -> std::fmt::Result {
    let pass = if many { format!(" after pass {}", round.number) } else { String::new() };
    writeln!(out, "## Rules{pass}\n")?;
    for (index, (rule, outcome)) in document.rules.iter().zip(&round.rules).enumerate() {
        let result = match outcome.result {
            RuleResult::Fired => "**fired**",
            RuleResult::DoesNotHold => "does not hold",
            RuleResult::DoesNotApply => "does not apply",
            RuleResult::CannotBeJudged => "**cannot be judged**",
            RuleResult::NotReached => "not reached",
        };
        let why = if outcome.why.is_empty() { String::new() } else { format!(": {}", outcome.why) };
        writeln!(
            out,
            "{}. `{}`, when `{}`, {}: {result}{why}.",
            index + 1,
            rule.id,
            rule.when,
            rule.action
        )?;
    }
    writeln!(out)
}

fn expectations(out: &mut String, document: &Document, result: &ResultFile) -> std::fmt::Result {
    writeln!(out, "## Expectations\n")?;
    if document.expectations.is_empty() {
        return writeln!(out, "None were banked.\n");
    }
    let Some(card) = &result.scorecard else {
        return writeln!(out, "Not judged before every rung is in.\n");
    };
    writeln!(out, "| no. | expected | confidence | | measured |")?;
    writeln!(out, "| --- | --- | --- | --- | --- |")?;
    for (expectation, scored) in document.expectations.iter().zip(&card.expectations) {
        let held = match scored.held {
            Some(true) => "held",
            Some(false) => "**did not hold**",
            None => "cannot be told",
        };
        writeln!(
            out,
            "| {} | {} | {} ({:.0} %) | {held} | {} |",
            expectation.number,
            cell(&expectation.text),
            expectation.confidence,
            scored.probability * 100.0,
            cell(&scored.why)
        )?;
    }
    match card.brier {
        Some(brier) => writeln!(
            out,
            "\nBrier score {brier:.3} over {} expectation(s): 0 is perfect, 0.25 is a coin's, 1 is \
             certain and wrong.\n",
            card.expectations.iter().filter(|scored| scored.held.is_some()).count()
        ),
        None => writeln!(out, "\nNo expectation can be told, so there is no score.\n"),
    }
}

fn cost(out: &mut String, result: &ResultFile) -> std::fmt::Result {
    let cost = &result.cost;
    writeln!(out, "## Cost\n")?;
    writeln!(
        out,
        "{:.1} of {} min of machine time, building and loading included, in {} launches.",
        cost.spent_min, cost.ceiling_min, cost.launches
    )?;
    for reason in &cost.over_ceiling {
        writeln!(out, "\nIt went on past the ceiling: {}", cell(reason))?;
    }
    writeln!(out)
}

fn changes(out: &mut String, document: &Document, result: &ResultFile) -> std::fmt::Result {
    writeln!(out, "## Deviations and amendments\n")?;
    let mut lines: Vec<String> = result.deviations.iter().map(|text| cell(text)).collect();
    for version in &result.versions {
        if let Some(why) = &version.why {
            let data = match version.data.launches {
                0 => "before there was any data".to_owned(),
                launches => {
                    format!("**after {launches} launch(es) in {} run(s)**", version.data.runs)
                }
            };
            lines.push(format!(
                "version {} of {}, made {data}: {}",
                version.version,
                version.date,
                cell(why)
            ));
        }
    }
    for waiver in &document.waivers {
        lines.push(format!("waived `{}`: {}", waiver.finding, cell(&waiver.why)));
    }
    if lines.is_empty() {
        return writeln!(out, "None.");
    }
    for line in lines {
        writeln!(out, "- {line}")?;
    }
    Ok(())
}

/// Text that fits a table's cell: one line, without bars.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

fn figure(value: &Number, formula: &Expr) -> String {
    match value {
        Number::Known(value) if is_fraction(formula) => percent(*value),
        Number::Known(value) => amount(*value),
        Number::Void(why) | Number::Missing(why) => format!("none: {}", cell(why)),
    }
}

/// A number with at least four significant digits, and whole numbers whole.
fn amount(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 && size < 1e15 {
        return format!("{value}");
    }
    let before_point = if size >= 1.0 { size.log10().floor() as i32 + 1 } else { 0 };
    let decimals = if size < 1e-4 {
        9
    } else {
        (4 - before_point).max(1) as usize + usize::from(size < 0.1) * 2
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_keep_four_digits() {
        for (value, shown) in [
            (2.251, "2.251"),
            (42_940.0, "42940"),
            (12.345_67, "12.35"),
            (1234.56, "1234.6"),
            (0.968, "0.9680"),
            (0.0, "0"),
        ] {
            assert_eq!(amount(value), shown);
        }
    }

    #[test]
    fn a_cell_is_one_line_without_bars() {
        assert_eq!(cell("a\n  b | c"), "a b \\| c");
    }
}
