//! Which kernels of the processor run.

use anyhow::Context as _;
use formats::cell_report::EnvVar;

use crate::model::Kernels;

/// Names the kernels to take.
const VARIABLE: &str = "ARC_CPU_KERNELS";

/// The kernels that the environment names, or the fastest that there are.
///
/// # Errors
/// The name is unknown, or the processor cannot run them.
pub(super) fn choose(environment: &mut Vec<EnvVar>) -> anyhow::Result<Kernels> {
    let raw = std::env::var(VARIABLE).ok();
    let (kernels, parsed) = parse(raw.as_deref())?;
    environment.push(EnvVar { name: VARIABLE.to_owned(), raw, parsed: Some(parsed) });
    Ok(kernels)
}

fn parse(raw: Option<&str>) -> anyhow::Result<(Kernels, String)> {
    match raw.filter(|raw| !raw.trim().is_empty()) {
        None => {
            let kernels = Kernels::detect();
            Ok((kernels, format!("not set: {}", kernels.name())))
        }
        Some(raw) => {
            let kernels = Kernels::parse(raw).with_context(|| format!("{VARIABLE}={raw}"))?;
            Ok((kernels, kernels.name().to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_and_a_wrong_one_is_an_error() {
        let fastest = Kernels::detect();
        assert_eq!(parse(None).unwrap(), (fastest, format!("not set: {}", fastest.name())));
        assert_eq!(parse(Some(" ")).unwrap().0, fastest);
        assert_eq!(parse(Some("scalar")).unwrap(), (Kernels::SCALAR, "scalar".to_owned()));
        let error = format!("{:#}", parse(Some("sse")).unwrap_err());
        assert!(error.starts_with("ARC_CPU_KERNELS=sse: `sse` is not a kernel path"), "{error}");
    }
}
