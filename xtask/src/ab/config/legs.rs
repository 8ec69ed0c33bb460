//! The legs of a comparison: base and null, and those that the definition and the command line add.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use super::RawLeg;
use crate::ab::args::Args;
use crate::base::diagnostic::HintExt as _;

/// The leg that has every variable removed.
pub(crate) const BASE: &str = "base";
/// The base leg again: what it shows is noise.
pub(crate) const NULL: &str = "null";
/// The leg of `--baseline-bin`.
const BASELINE: &str = "baseline";
/// The leg of `--env`.
const TEST: &str = "test";

/// What a leg is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LegRole {
    Base,
    /// Base again.
    Null,
    /// Some variables apart from base.
    Test,
    /// Another binary, otherwise as base.
    Baseline,
}

impl LegRole {
    /// Whether the leg is what others are compared with, and has no verdict of its own.
    pub(crate) fn is_reference(self) -> bool {
        matches!(self, LegRole::Base | LegRole::Null)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leg {
    pub(crate) name: String,
    pub(crate) role: LegRole,
    /// The variables that it sets, in order.
    pub(crate) env: Vec<(String, String)>,
}

/// The legs of the definition (`[env]` and `[[leg]]`) with those of the command line over them.
pub(super) fn plan_legs(
    env: BTreeMap<String, String>,
    raw: Vec<RawLeg>,
    args: &Args,
) -> anyhow::Result<Vec<Leg>> {
    let leg = |name: &str, role, env| Leg { name: name.to_owned(), role, env };
    let mut legs = vec![leg(BASE, LegRole::Base, Vec::new()), leg(NULL, LegRole::Null, Vec::new())];

    let test: Vec<(String, String)> = if args.env.is_empty() {
        env.into_iter().collect()
    } else {
        args.env.iter().map(|text| parse_assignment(text)).collect::<anyhow::Result<_>>()?
    };
    if !test.is_empty() {
        legs.push(leg(TEST, LegRole::Test, test));
    }
    if args.leg.is_empty() {
        let of_file = |raw: RawLeg| leg(&raw.name, LegRole::Test, raw.env.into_iter().collect());
        legs.extend(raw.into_iter().map(of_file));
    }
    for text in &args.leg {
        let Some((name, assignments)) = text.split_once(':') else {
            bail!("leg `{text}` has no name; write NAME:K=V or NAME:K=V,K=V");
        };
        let env = split_assignments(assignments)
            .iter()
            .map(|text| parse_assignment(text))
            .collect::<anyhow::Result<Vec<_>>>()?;
        legs.push(leg(name.trim(), LegRole::Test, env));
    }
    if args.baseline_bin.is_some() {
        legs.push(leg(BASELINE, LegRole::Baseline, Vec::new()));
    }
    check_legs(&legs)?;
    Ok(legs)
}

fn check_legs(legs: &[Leg]) -> anyhow::Result<()> {
    if legs.len() == 2 {
        return Err(anyhow::anyhow!("there is nothing to compare: no leg differs from base"))
            .hint("give --env K=V, --leg NAME:K=V or --baseline-bin PATH");
    }
    for (index, Leg { name, role, env }) in legs.iter().enumerate() {
        let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        ensure!(
            !name.is_empty() && is_plain,
            "leg `{name}`: a name may have only letters, digits, `-` and `_`"
        );
        let earlier = &legs[..index];
        ensure!(earlier.iter().all(|leg| leg.name != *name), "two legs are called `{name}`");
        let mut variables = BTreeSet::new();
        for (variable, _) in env {
            ensure!(variables.insert(variable), "leg `{name}` sets {variable} twice");
        }
        if *role == LegRole::Test {
            ensure!(!env.is_empty(), "leg `{name}` sets no variable, so it would be base again");
            if let Some(twin) = earlier.iter().find(|leg| leg.env == *env) {
                bail!("legs `{}` and `{name}` set the same variables", twin.name);
            }
        }
    }
    Ok(())
}

/// Splits `K=V,K=V`. A comma that no `NAME=` follows belongs to the value before it.
fn split_assignments(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for part in text.split(',') {
        let begins = part.split_once('=').is_some_and(|(name, _)| is_variable_name(name.trim()));
        match found.last_mut().filter(|_| !begins) {
            Some(last) => *last += &format!(",{part}"),
            None => found.push(part.to_owned()),
        }
    }
    found
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Parses `K=V`; the value may be empty and may hold `=`.
fn parse_assignment(text: &str) -> anyhow::Result<(String, String)> {
    let Some((name, value)) = text.trim().split_once('=') else {
        return Err(anyhow::anyhow!("`{text}` does not set a variable"))
            .hint(format!("write NAME=VALUE, for example {}=0", text.trim()));
    };
    ensure!(is_variable_name(name), "`{name}` is not a variable name");
    ensure!(!value.contains('\0'), "the value of {name} has a NUL byte in it");
    Ok((name.to_owned(), value.to_owned()))
}
