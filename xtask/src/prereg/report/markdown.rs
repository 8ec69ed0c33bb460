//! `report.md`: what a person reads. The words are in its template.

use minijinja::{Value, context};

use super::{Amendment, ResultFile};
use crate::base::page::{cell, render_page};
use crate::prereg::chain::Version;
use crate::prereg::compose::{NULL, RungState};
use crate::prereg::document::{Document, Metric, ReadRole, Rule};
use crate::prereg::judge::{Round, reads_of};
use crate::prereg::numbers::{amount, is_fraction, percent};
use crate::prereg::sample::Judging;
use crate::stats::expr::{Expr, Number};

pub(crate) fn render_markdown(
    document: &Document,
    version: &Version,
    result: &ResultFile,
) -> anyhow::Result<String> {
    let protocol = &document.protocol;
    let rule = document.rules.iter().find(|rule| Some(&rule.id) == result.rule.as_ref());
    let knows_noise = result.run.judging == Judging::WithNoise;
    // A first version over data that was there already: the one before it was taken away.
    let is_told = |one: &&Amendment| one.why.is_some() || (knows_noise && one.data.launches > 0);
    let amendments: Vec<Value> = result
        .versions
        .iter()
        .filter(is_told)
        .map(|one| {
            context! {
                version => one.version,
                date => one.date,
                why => one.why,
                launches => one.data.launches,
                runs => one.data.runs,
                names => one.data.names.join(", "),
                diff => one.diff.as_ref().map(|diff| diff.lines().collect::<Vec<_>>()),
                changed => one.changed.join("; "),
            }
        })
        .collect();
    render_page(
        include_str!("report.md.j2"),
        context! {
            result,
            question => document.question.trim(),
            background => document.background.trim(),
            version => context! {
                number => version.version,
                date => version.date,
                commit => version.pins.commit,
                entry => version.entry_sha256.get(..12),
            },
            contended => result.contended,
            told => result.landing.as_ref().map(|landing| &landing.told),
            knows_noise,
            samples => result.samples,
            pinned => version.pins.files.keys().collect::<Vec<_>>(),
            evidence => rule.zip(result.rounds.last()).map(|(rule, round)| evidence(document, round, rule)),
            rule_text => rule.map(|rule| rule.text.trim()),
            items => table(&document.items, |item| context! { id => item.id, title => item.title }),
            protocol => context! {
                statistic => protocol.statistic.to_string(),
                first_step => protocol.discard_steps + 1,
                steps => protocol.steps,
                repeats => protocol.repeats,
                order => protocol.order.to_string(),
                seed => protocol.seed,
            },
            base => document.base().id,
            primary => document.primary().map(|read| &read.metric),
            many => result.rounds.len() > 1,
            rounds => table(&result.rounds, |round| round_values(document, round)),
            expectations => table(&document.expectations, |one| context! {
                text => one.text, confidence => one.confidence.to_string(),
            }),
            amendments,
            waivers => table(&document.waivers, |waiver| context! {
                finding => waiver.finding, why => waiver.why,
            }),
        },
    )
}

fn table<T>(rows: &[T], values: impl Fn(&T) -> Value) -> Vec<Value> {
    rows.iter().map(values).collect()
}

fn round_values(document: &Document, round: &Round) -> Value {
    let reads = document.reads.iter().zip(&round.reads).map(|(read, outcome)| {
        context! {
            id => read.id,
            role => match read.role {
                ReadRole::Primary => "primary",
                ReadRole::Secondary => "secondary",
            },
            formula => read.value.to_string(),
            metric => read.metric,
            value => figure(&outcome.value.0, &read.value),
            interval => outcome.certainty.as_ref().and_then(|certainty| certainty.interval).map(|interval| {
                let show = |value| figure(&Number::Known(value), &read.value);
                format!("{} to {}", show(interval.low), show(interval.high))
            }),
            failed_by => outcome.failed_by,
            unsettled_by => outcome.unsettled_by,
        }
    });
    let guards = document.guards.iter().zip(&round.guards).map(|(guard, outcome)| {
        context! {
            id => guard.id,
            formula => guard.value.to_string(),
            metric => guard.metric,
            value => figure(&outcome.value.0, &guard.value),
            bound => guard.passes.to_string(),
            passes => outcome.passes,
        }
    });
    let rules = document.rules.iter().zip(&round.rules).map(|(rule, outcome)| {
        context! {
            id => rule.id,
            when => rule.when.to_string(),
            action => rule.action.to_string(),
            result => outcome.result,
            why => outcome.why,
        }
    });
    let has_null = round.ladder.iter().any(|rung| rung.id == NULL);
    let noise = has_null.then(|| match &round.noise.0 {
        Number::Known(noise) => format!("{:.2} %", noise * 100.0),
        Number::Void(why) | Number::Missing(why) => format!("unknown ({why})"),
    });
    context! {
        number => round.number,
        metrics => table(&document.metrics, |metric| metric_values(document, round, metric)),
        problems => round.crashed.values().chain(round.non_finite.values()).collect::<Vec<_>>(),
        noise,
        reads => reads.collect::<Vec<_>>(),
        guards => guards.collect::<Vec<_>>(),
        rules => rules.collect::<Vec<_>>(),
    }
}

/// What a rule rests on: each read that it uses, with its interval, its bars and the null rung. A rule
/// that uses none took what the others left: then the primary read, beside their bars.
fn evidence(document: &Document, round: &Round, rule: &Rule) -> Vec<Value> {
    let own: Vec<&str> =
        reads_of(&rule.when).into_iter().filter(|id| document.read(id).is_some()).collect();
    let (reads, rules) = match (own.is_empty(), document.primary()) {
        (true, Some(primary)) => (vec![primary.id.as_str()], document.rules.as_slice()),
        _ => (own, std::slice::from_ref(rule)),
    };
    let told = |id: &str| {
        let outcome = round.reads.iter().find(|outcome| outcome.id == id)?;
        let formula = &document.read(id)?.value;
        let show = |value: f64| figure(&Number::Known(value), formula);
        let certainty = outcome.certainty.as_ref();
        let clauses = rules.iter().flat_map(|rule| rule.when.clauses());
        let bars: Vec<String> =
            clauses.filter(|clause| reads_of(clause).contains(&id)).map(Expr::to_string).collect();
        Some(context! {
            id,
            bars,
            value => figure(&outcome.value.0, formula),
            failed_by => outcome.failed_by,
            single => certainty.is_some_and(|one| one.interval.is_none()),
            interval => certainty.and_then(|one| one.interval).map(|interval| {
                format!("{} to {}", show(interval.low), show(interval.high))
            }),
            null_apart => certainty
                .and_then(|one| one.null_apart)
                .map(|apart| show(apart).trim_start_matches('+').to_owned()),
        })
    };
    reads.into_iter().filter_map(told).collect()
}

fn metric_values(document: &Document, round: &Round, metric: &Metric) -> Value {
    let base = document.base();
    let base_value = round.number(&metric.id, &base.id);
    let rungs = table(&round.ladder, |rung| {
        let value = round.number(&metric.id, &rung.id);
        let change = match (&base_value, &value) {
            (Number::Known(a), Number::Known(b)) if rung.id != base.id && *a != 0.0 => {
                Some(percent((b - a) / a))
            }
            _ => None,
        };
        let figure = round.figures.get(&metric.id).and_then(|rungs| rungs.get(&rung.id));
        let range = figure.and_then(|figure| figure.range());
        let range = range.map(|(low, high)| format!("{} to {}", amount(low), amount(high)));
        context! {
            name => rung.name,
            receipt => rung.state == RungState::Receipt,
            items => rung.items,
            value => shown(&value, amount),
            range => range.unwrap_or_default(),
            change,
        }
    });
    context! {
        id => metric.id,
        unit => metric.unit,
        statistic => metric.statistic.to_string(),
        rungs,
    }
}

fn figure(value: &Number, formula: &Expr) -> String {
    shown(value, if is_fraction(formula) { percent } else { amount })
}

fn shown(value: &Number, show: impl Fn(f64) -> String) -> String {
    match value {
        Number::Known(value) => show(*value),
        Number::Void(why) | Number::Missing(why) => format!("none ({})", cell(why)),
    }
}
