//! What the rules would decide on: rungs that nobody measures, bars within the noise, a ceiling that
//! the launches exceed.

use std::collections::BTreeSet;

use super::{Linter, outcomes};
use crate::prereg::document::{Action, NullRung, OnDrop};
use crate::prereg::plan::count_launches;

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
                Action::Land(items) => items.iter().map(String::as_str).collect(),
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

    pub(super) fn check_noise(&mut self) {
        let document = self.document;
        let floor = match (document.protocol.noise_floor, self.surroundings.measured_noise) {
            (Some(a), Some(b)) => a.max(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => return,
        };
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
            Some(each) if each * launches as f64 > protocol.ceiling_min => self.error(
                "over-ceiling",
                "protocol",
                format!(
                    "{launches} launches of {each} min take {:.1} min, over the ceiling of {} min",
                    each * launches as f64,
                    protocol.ceiling_min
                ),
            ),
            Some(_) => {}
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
