//! The activation proof: did the variable that tells two legs apart do anything at all?
//!
//! A flag that is misspelt, read by presence, or equal to the default makes two legs that are the
//! same program with the same settings, and their honest difference of zero proves nothing.

use formats::cell_report::{CellReport, EnvVar, Settings};
use serde::{Deserialize, Serialize};

use crate::base::nearest::nearest;

/// Arc's own variables, to name the nearest one where a report names none.
const KNOWN_VARIABLES: [&str; 4] = [
    "ARC_CANDLE_ALLOC_CACHE",
    "ARC_ALLOC_CACHE_MAX_MB",
    "ARC_ALLOC_CACHE_PREFILL",
    "ARC_ALLOC_CACHE_STATS",
];

/// The variable whose legs must differ in what the allocator did.
const KILL_SWITCH: &str = "ARC_CANDLE_ALLOC_CACHE";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Activation {
    /// The program saw the variables and acted on them.
    Active { evidence: String },
    /// The comparison was never made.
    Inert {
        reason: String,
        /// The variable that was probably meant.
        nearest: Option<String>,
    },
    /// The program does not tell.
    Unknown { reason: String },
    /// Nothing had to be proved: the leg sets no variable.
    NotNeeded,
}

/// Holds the report of a leg that sets `variables` against one of base, which has them removed.
pub(crate) fn check_activation(
    variables: &[(String, String)],
    base: Option<&CellReport>,
    leg: Option<&CellReport>,
) -> Activation {
    if variables.is_empty() {
        return Activation::NotNeeded;
    }
    let (Some(base), Some(leg)) = (base, leg) else {
        return unknown("the runner writes no cell report");
    };
    if base.environment.is_empty() && leg.environment.is_empty() {
        return unknown("the report does not say which variables were consulted");
    }
    for (name, value) in variables {
        if let Some(inert) = check_consulted(name, value, base, leg) {
            return inert;
        }
    }
    let differences = describe_differences(variables, base, leg);
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    if differences.is_empty() {
        return Activation::Inert {
            reason: format!(
                "{} made no difference: both legs ran with the same effective settings",
                names.join(", ")
            ),
            nearest: None,
        };
    }
    if names.contains(&KILL_SWITCH)
        && let Some(reason) = check_counters(base, leg)
    {
        return Activation::Inert { reason, nearest: None };
    }
    Activation::Active { evidence: differences.join("; ") }
}

fn unknown(reason: &str) -> Activation {
    Activation::Unknown { reason: reason.to_owned() }
}

/// Whether two legs, for all that their programs tell, ran with the same settings.
pub(crate) fn has_same_effect(
    variables: &[(String, String)],
    one: &CellReport,
    other: &CellReport,
) -> bool {
    let tells = |report: &CellReport| {
        variables.iter().all(|(name, _)| find(&report.environment, name).is_some())
    };
    tells(one) && tells(other) && describe_differences(variables, one, other).is_empty()
}

/// Whether the program looked at the variable in the leg, and did not see it in base.
fn check_consulted(
    name: &str,
    value: &str,
    base: &CellReport,
    leg: &CellReport,
) -> Option<Activation> {
    let inert = |reason, nearest| Some(Activation::Inert { reason, nearest });
    let Some(seen) = find(&leg.environment, name) else {
        let consulted = leg.environment.iter().chain(&base.environment).map(|var| &*var.name);
        // The name itself is known, and is not what was meant.
        let others = consulted.chain(KNOWN_VARIABLES).filter(|other| *other != name);
        let near = nearest(name, others).map(str::to_owned);
        return inert(format!("the program never consulted {name}"), near);
    };
    if seen.raw.as_deref() != Some(value) {
        let saw = seen.raw.as_deref().map_or("nothing".to_owned(), |raw| format!("`{raw}`"));
        return inert(format!("{name} was set to `{value}`, but the program saw {saw}"), None);
    }
    let in_base = find(&base.environment, name).and_then(|var| var.raw.as_deref());
    let raw = in_base?;
    inert(format!("base saw {name}=`{raw}` although it was removed: there is no control"), None)
}

fn find<'a>(environment: &'a [EnvVar], name: &str) -> Option<&'a EnvVar> {
    environment.iter().find(|var| var.name == name)
}

/// What the legs' programs made of it: effective settings first, since they decide what ran; where
/// the settings do not tell, what the program says that it parsed.
fn describe_differences(
    variables: &[(String, String)],
    base: &CellReport,
    leg: &CellReport,
) -> Vec<String> {
    let (base_settings, leg_settings) = (effective(&base.settings), effective(&leg.settings));
    let mut differences = Vec::new();
    for (name, in_base) in &base_settings {
        let in_leg = leg_settings.iter().find(|(other, _)| other == name).map(|(_, value)| value);
        if let Some(in_leg) = in_leg
            && in_leg != in_base
        {
            differences.push(format!("{name}: {in_base} in base, {in_leg} here"));
        }
    }
    if !differences.is_empty() {
        return differences;
    }
    let has_own_setting = |name: &str| {
        matches!(name, KILL_SWITCH | "ARC_ALLOC_CACHE_MAX_MB") && base.settings.allocator.is_some()
    };
    for (name, _) in variables {
        let parsed = |report: &CellReport| {
            find(&report.environment, name).and_then(|var| var.parsed.clone())
        };
        // Words about a setting that both legs share are no difference.
        if !has_own_setting(name) && parsed(base) != parsed(leg) {
            let word = |parsed: Option<String>| parsed.unwrap_or("nothing".to_owned());
            differences.push(format!(
                "{name}: read as {} in base, {} here",
                word(parsed(base)),
                word(parsed(leg))
            ));
        }
    }
    differences
}

/// The settings by name, without the words that explain them.
fn effective(settings: &Settings) -> Vec<(&'static str, String)> {
    let number = |value: Option<u64>| value.map_or("none".to_owned(), |value| value.to_string());
    let allocator = settings.allocator.as_ref();
    let of = |value: Option<String>| value.unwrap_or("none".to_owned());
    vec![
        ("allocator", of(allocator.map(|allocator| allocator.state.clone()))),
        ("allocator driver", of(allocator.and_then(|allocator| allocator.driver.clone()))),
        ("allocator cap", number(allocator.and_then(|allocator| allocator.cap_bytes))),
        ("threads", number(settings.threads)),
        ("prefill chunk", number(settings.prefill_chunk)),
        ("warm-up tokens", number(settings.warmup_tokens)),
        ("max tokens", number(settings.max_tokens)),
    ]
}

/// The kill switch must move what the allocator does in decode, or it killed nothing.
fn check_counters(base: &CellReport, leg: &CellReport) -> Option<String> {
    let sums = |report: &CellReport| {
        let steps = &report.allocator.as_ref()?.decode_steps;
        Some(steps.iter().fold([0; 3], |[hits, allocs, frees], step| {
            [hits + step.hits, allocs + step.driver_allocs, frees + step.driver_frees]
        }))
    };
    let (base, leg) = (sums(base)?, sums(leg)?);
    (base == leg).then(|| {
        format!(
            "{KILL_SWITCH} moved no counter: {} hits, {} driver allocations and {} driver frees in \
             decode with and without it",
            base[0], base[1], base[2]
        )
    })
}

#[cfg(test)]
mod tests {
    use formats::cell_report::{AllocCounters, AllocatorReport, AllocatorSettings};

    use super::*;

    fn report(raw: Option<&str>, state: &str, hits: u64) -> CellReport {
        let mut report = CellReport {
            environment: vec![EnvVar {
                name: KILL_SWITCH.to_owned(),
                raw: raw.map(str::to_owned),
                parsed: Some(format!("{raw:?} means {state}")),
            }],
            ..CellReport::default()
        };
        report.settings.allocator = Some(AllocatorSettings {
            state: state.to_owned(),
            reason: Some(format!("because of {raw:?}")),
            ..AllocatorSettings::default()
        });
        report.allocator = Some(AllocatorReport {
            totals: AllocCounters::default(),
            decode_steps: vec![AllocCounters { hits, ..AllocCounters::default() }],
        });
        report
    }

    fn switched(value: &str) -> Vec<(String, String)> {
        vec![(KILL_SWITCH.to_owned(), value.to_owned())]
    }

    fn reason(found: Activation) -> String {
        match found {
            Activation::Inert { reason, .. } => reason,
            other => panic!("not inert: {other:?}"),
        }
    }

    #[test]
    fn a_switch_that_switched_is_active() {
        let found = check_activation(
            &switched("0"),
            Some(&report(None, "policy", 9)),
            Some(&report(Some("0"), "killed", 0)),
        );
        let Activation::Active { evidence } = found else { panic!("{found:?}") };
        assert_eq!(evidence, "allocator: policy in base, killed here");
    }

    #[test]
    fn a_misspelt_variable_is_inert_and_the_nearest_name_is_given() {
        let misspelt = vec![("ARC_CANDLE_ALOC_CACHE".to_owned(), "0".to_owned())];
        let same = report(None, "policy", 9);
        let found = check_activation(&misspelt, Some(&same), Some(&same));
        assert_eq!(
            found,
            Activation::Inert {
                reason: "the program never consulted ARC_CANDLE_ALOC_CACHE".to_owned(),
                nearest: Some(KILL_SWITCH.to_owned()),
            }
        );
    }

    #[test]
    fn a_value_that_means_the_default_is_inert() {
        // The words about the value differ, what ran does not.
        let found = check_activation(
            &switched("1"),
            Some(&report(None, "policy", 9)),
            Some(&report(Some("1"), "policy", 9)),
        );
        assert!(reason(found).contains("same effective settings"));
    }

    #[test]
    fn a_switch_that_moved_no_counter_is_inert() {
        let found = check_activation(
            &switched("0"),
            Some(&report(None, "policy", 0)),
            Some(&report(Some("0"), "killed", 0)),
        );
        assert!(reason(found).contains("moved no counter: 0 hits"));
    }

    #[test]
    fn a_base_that_saw_the_variable_is_no_control() {
        let found = check_activation(
            &switched("0"),
            Some(&report(Some("0"), "killed", 0)),
            Some(&report(Some("0"), "killed", 0)),
        );
        assert!(reason(found).contains("there is no control"));
    }

    #[test]
    fn a_value_that_did_not_arrive_is_inert() {
        let found = check_activation(
            &switched("0"),
            Some(&report(None, "policy", 9)),
            Some(&report(None, "policy", 9)),
        );
        assert!(reason(found).contains("the program saw nothing"));
    }

    #[test]
    fn a_program_that_does_not_tell_is_unknown() {
        let silent = CellReport::default();
        for (base, leg) in [(None, None), (Some(&silent), None), (Some(&silent), Some(&silent))] {
            let found = check_activation(&switched("0"), base, leg);
            assert!(matches!(found, Activation::Unknown { .. }), "{found:?}");
        }
        assert_eq!(check_activation(&[], None, None), Activation::NotNeeded);
    }

    #[test]
    fn a_variable_without_a_setting_is_judged_by_what_was_parsed() {
        let with = |raw: Option<&str>, parsed: &str| {
            let mut report = report(None, "policy", 9);
            report.environment.push(EnvVar {
                name: "FEATURE".to_owned(),
                raw: raw.map(str::to_owned),
                parsed: Some(parsed.to_owned()),
            });
            report
        };
        let feature = |value: &str| vec![("FEATURE".to_owned(), value.to_owned())];
        let on =
            check_activation(&feature("1"), Some(&with(None, "off")), Some(&with(Some("1"), "on")));
        assert!(matches!(on, Activation::Active { .. }), "{on:?}");
        let off = check_activation(
            &feature("0"),
            Some(&with(None, "off")),
            Some(&with(Some("0"), "off")),
        );
        assert!(reason(off).contains("same effective settings"));
    }
}
