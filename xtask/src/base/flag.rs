//! On or off, read by value and never by presence: `FEATURE=0` is off.

/// What the value of a variable means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flag {
    /// `1`, `true`, `yes`, `on`.
    On,
    /// `0`, `false`, `no`, `off`, empty, or not set.
    Off,
    /// Anything else: to be reported, and taken for the safe side.
    Unrecognised,
}

/// Reads a value, without regard to case or surrounding space.
pub(crate) fn parse_flag(raw: Option<&str>) -> Flag {
    match raw.map(|value| value.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "0" | "false" | "no" | "off") => Flag::Off,
        Some("1" | "true" | "yes" | "on") => Flag::On,
        Some(_) => Flag::Unrecognised,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_decide_and_not_presence() {
        for on in ["1", "true", "YES", " on "] {
            assert_eq!(parse_flag(Some(on)), Flag::On, "{on}");
        }
        for off in ["0", "false", "No", "OFF", "", "  "] {
            assert_eq!(parse_flag(Some(off)), Flag::Off, "{off}");
        }
        assert_eq!(parse_flag(None), Flag::Off);
        for other in ["2", "enabled", "01"] {
            assert_eq!(parse_flag(Some(other)), Flag::Unrecognised, "{other}");
        }
    }
}
