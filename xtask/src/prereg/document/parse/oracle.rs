//! Oracles and their bounds.

use crate::prereg::document::raw::RawOracle;
use crate::prereg::document::signature::check_known;
use crate::prereg::document::{Bound, Difference, OracleCheck};
use crate::stats::expr::parse_number;

/// What an oracle compares, out of the keys that its kind takes.
pub(super) fn oracle_check(raw: &RawOracle) -> Result<OracleCheck, String> {
    let metric = || raw.metric.clone().ok_or_else(|| "`metric` is missing".to_owned());
    let allowed: &[&str] = match raw.kind.as_str() {
        "tokens-equal" => &[],
        "file-equal" => &["file"],
        "metric" | "overlay" => &["metric", "bound"],
        "peaks" => &["lifetime", "window"],
        "command" => &["command", "exit"],
        other => {
            let known = ["tokens-equal", "file-equal", "metric", "overlay", "peaks", "command"];
            check_known("kind of oracle", other, &known.map(str::to_owned))?;
            &[]
        }
    };
    let given = [
        ("metric", raw.metric.is_some()),
        ("bound", raw.bound.is_some()),
        ("file", raw.file.is_some()),
        ("lifetime", raw.lifetime.is_some()),
        ("window", raw.window.is_some()),
        ("command", raw.command.is_some()),
        ("exit", raw.exit.is_some()),
    ];
    if let Some((key, _)) = given.iter().find(|(key, given)| *given && !allowed.contains(key)) {
        return Err(format!("a `{}` oracle takes no `{key}`", raw.kind));
    }
    match raw.kind.as_str() {
        "tokens-equal" => Ok(OracleCheck::TokensEqual),
        "file-equal" => {
            let file = raw.file.clone().ok_or("`file` is missing")?;
            let inner = std::path::Path::new(&file)
                .components()
                .all(|part| matches!(part, std::path::Component::Normal(_)));
            if inner && !file.is_empty() {
                Ok(OracleCheck::FileEqual { file })
            } else {
                Err(format!("`file` must lie in the launch's output folder, and `{file}` does not"))
            }
        }
        "metric" => Ok(OracleCheck::Metric {
            metric: metric()?,
            bound: raw.bound.as_deref().map(parse_bound).transpose()?,
        }),
        "overlay" => Ok(OracleCheck::Overlay {
            metric: metric()?,
            band: raw.bound.as_deref().map(parse_band).transpose()?,
        }),
        "peaks" => Ok(OracleCheck::Peaks {
            lifetime: raw.lifetime.clone().ok_or("`lifetime` is missing")?,
            window: raw.window.clone().ok_or("`window` is missing")?,
        }),
        _ => {
            let command = raw.command.clone().unwrap_or_default();
            if command.is_empty() {
                return Err("`command` is missing".to_owned());
            }
            Ok(OracleCheck::Command { command, exit: raw.exit })
        }
    }
}

/// `abs <= 1e-3` or `rel <= 1 %`.
fn parse_bound(text: &str) -> Result<Bound, String> {
    let (of, at_most) = text
        .split_once("<=")
        .ok_or_else(|| format!("`{text}` is not a bound; write `abs <= 1e-3` or `rel <= 1 %`"))?;
    let of = match of.trim() {
        "abs" => Difference::Absolute,
        "rel" => Difference::Relative,
        other => return Err(format!("a bound limits `abs` or `rel`, not `{other}`")),
    };
    Ok(Bound { of, at_most: not_negative(at_most)? })
}

/// `band <= 1`, in largest step-to-step changes of the base.
fn parse_band(text: &str) -> Result<f64, String> {
    match text.split_once("<=") {
        Some((of, at_most)) if of.trim() == "band" => not_negative(at_most),
        _ => Err(format!("`{text}` is not a bound; write `band <= 1`")),
    }
}

pub(super) fn not_negative(text: &str) -> Result<f64, String> {
    match parse_number(text)? {
        value if value >= 0.0 => Ok(value),
        _ => Err(format!("the bound `{}` is negative", text.trim())),
    }
}
