//! What the rules would decide on: rungs that nobody measures, bars within the noise, a ceiling that
//! the launches exceed.

use std::collections::BTreeSet;

use super::{Linter, outcomes};
use crate::prereg::document::{Action, NullRung, OnDrop};
use crate::prereg::numbers::neutral;
use crate::prereg::plan::{count_launches, count_rung_launches, estimate_oracles_min};
use crate::stats::expr::Expr;

impl Linter<'_> {
    pub(super) fn check_actions(&mut self) {
        let document = self.document;
        let measured = |ids: &BTreeSet<&str>| -> BTreeSet<String> {
            ids.iter()
                .filter(|id| document.item(id).is_some_and(|item| item.lands_unmeasured.is_none()))
                .map(|id| (*id).to_owned())
                .collect()
        };
        for rule in &document.rules {
            let landed: BTreeSet<&str> = match &rule.action {
                Action::LandAll => document.items.iter().map(|item| item.id.as_str()).collect(),
                Action::Land(items) => items.iter().map(|landed| landed.item.as_str()).collect(),
                Action::Park => continue,
                Action::Drop(item) => {
                    let left_over = document.rungs.iter().any(|rung| {
                        rung.on_drop == OnDrop::Recompose
                            && rung.items.contains(item)
                            && rung.items.len() > 1
                    });
                    if !left_over {
                        self.error(
                            "no-rung",
                            &rule.id,
                            format!("without {item} no rung is left to measure again"),
                        );
                    }
                    continue;
                }
            };
            let wanted = measured(&landed);
            let has_rung = document.rungs.iter().any(|rung| {
                let carried: BTreeSet<&str> = rung.items.iter().map(String::as_str).collect();
                rung.on_drop == OnDrop::Recompose && measured(&carried) == wanted
            });
            if !wanted.is_empty() && !has_rung {
                let list: Vec<&str> = wanted.iter().map(String::as_str).collect();
                let how = if list.len() == 1 { "alone" } else { "together" };
                self.error(
                    "no-rung",
                    &rule.id,
                    format!(
                        "it lands {} {how}, which no rung measures; add that rung, or say in \
                         `lands_unmeasured` why an item may land without one",
                        list.join(" + ")
                    ),
                );
            }
        }
    }

    /// A relative change beside a plain number above 1: 5 is 500 %, and 5 % was meant.
    pub(super) fn check_bars(&mut self) {
        let document = self.document;
        let is_change =
            |name: &str| document.read(name).is_some_and(|read| neutral(&read.value) == Some(0.0));
        let rules = document.rules.iter().map(|rule| (rule.id.as_str(), &rule.when));
        let expectations =
            document.expectations.iter().map(|one| (one.number.as_str(), &one.holds));
        let guards = (document.guards.iter())
            .filter(|guard| neutral(&guard.value) == Some(0.0))
            .map(|guard| (guard.id.as_str(), &guard.passes));
        let of_guard = guards.flat_map(|(id, passes)| {
            passes.clauses().into_iter().map(move |clause| (id, clause, true))
        });
        let of_others = rules.chain(expectations).flat_map(|(id, condition)| {
            condition.clauses().into_iter().map(move |clause| (id, clause, false))
        });
        for (id, clause, is_guard) in of_guard.chain(of_others) {
            let Expr::Compare(left, _, right) = clause else { continue };
            let (side, (bar, is_percent)) = match (left.constant(), right.constant()) {
                (Some(bar), None) => (right, bar),
                (None, Some(bar)) => (left, bar),
                _ => continue,
            };
            let about_change = match &**side {
                Expr::Name(name) => is_guard || is_change(name),
                Expr::Call(function, args) if ["lower", "upper"].contains(&function.as_str()) => {
                    is_change(&args[0])
                }
                _ => false,
            };
            if about_change && !is_percent && bar.abs() > 1.0 {
                self.error(
                    "bar-without-percent",
                    id,
                    format!(
                        "`{clause}` compares a relative change with {bar}, which is {} %; write `{bar} %`",
                        bar * 100.0
                    ),
                );
            }
        }
    }

    pub(super) fn check_intervals(&mut self) {
        if self.document.protocol.repeats > 1 {
            return;
        }
        for rule in &self.document.rules {
            let mut asks = false;
            rule.when.walk(&mut |expr| {
                asks |= matches!(expr, Expr::Call(function, _) if function == "lower" || function == "upper");
            });
            if asks {
                let text = "`lower` and `upper` need an interval, which takes at least 2 `repeats`";
                self.error("no-interval", &rule.id, text);
            }
        }
    }

    /// The noise that is known, as a fraction of the base.
    pub(super) fn noise_floor(&self) -> Option<f64> {
        match (self.document.protocol.noise_floor, self.surroundings.measured_noise) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (Some(a), None) | (None, Some(a)) => Some(a),
            (None, None) => None,
        }
    }

    pub(super) fn check_noise(&mut self) {
        let document = self.document;
        let Some(floor) = self.noise_floor() else { return };
        let primary = document.primary();
        for rule in &document.rules {
            for clause in rule.when.clauses() {
                let Some((name, threshold)) = outcomes::threshold(clause) else { continue };
                let same_metric = match (document.read(name), primary) {
                    (Some(read), Some(primary)) => read.metric == primary.metric,
                    _ => false,
                };
                if same_metric && threshold.abs() < floor {
                    self.error(
                        "threshold-below-noise",
                        &rule.id,
                        format!(
                            "`{clause}` is within the noise floor of {:.2} %, so chance would decide",
                            floor * 100.0
                        ),
                    );
                }
            }
        }
        if let Some(measured) = self.surroundings.measured_noise
            && document.protocol.noise_floor.is_some_and(|floor| floor < measured)
        {
            self.warning(
                "noise-floor-too-low",
                "protocol",
                format!("an earlier run measured a noise of {:.2} %", measured * 100.0),
            );
        }
    }

    pub(super) fn check_cost(&mut self) {
        let protocol = &self.document.protocol;
        let launches = count_launches(self.document);
        match protocol.launch_estimate_min {
            None => self.warning(
                "no-estimate",
                "protocol",
                format!(
                    "without `launch_estimate_min` nothing tells whether {launches} launches fit the \
                     ceiling of {} min",
                    protocol.ceiling_min
                ),
            ),
            Some(each) => {
                let oracles_min = estimate_oracles_min(self.document, each);
                let rungs = count_rung_launches(self.document);
                let total_min = oracles_min + each * rungs as f64;
                let has_own = self.document.oracles.iter().any(|one| one.estimate_min.is_some());
                let what = match has_own {
                    false => format!("{launches} launches of {each} min take {total_min:.1} min"),
                    true => format!(
                        "{rungs} launches of {each} min and {oracles_min:.1} min of oracles take \
                         {total_min:.1} min"
                    ),
                };
                if total_min > protocol.ceiling_min {
                    let ceiling = protocol.ceiling_min;
                    let text = format!("{what}, over the ceiling of {ceiling} min");
                    self.error("over-ceiling", "protocol", text);
                }
            }
        }
        if protocol.repeats < 2 {
            self.warning(
                "one-repeat",
                "protocol",
                "one launch of each rung shows no spread between launches",
            );
        }
        if let NullRung::Refused(why) = &protocol.null_rung {
            let text =
                format!("the base is not measured again, so the noise stays unknown ({why})");
            self.warning("no-null-rung", "protocol", text);
        }
    }
}
