//! What a scenario holds a run to, with everything that helps in the message.

use std::fmt::Debug;

use anyhow::bail;

use crate::selftest::checkout::run::Ran;

pub(super) fn same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> anyhow::Result<()> {
    if found != expected {
        bail!("{what}: found {found:#?}, expected {expected:#?}");
    }
    Ok(())
}

pub(super) fn code(ran: &Ran, expected: i32) -> anyhow::Result<()> {
    if ran.code != Some(expected) {
        bail!("exit code {:?} instead of {expected}; it said:\n{}", ran.code, ran.stderr);
    }
    Ok(())
}

pub(super) fn says(ran: &Ran, text: &str) -> anyhow::Result<()> {
    if !ran.stderr.contains(text) {
        bail!("it does not say `{text}`; it said:\n{}", ran.stderr);
    }
    Ok(())
}

pub(super) fn does_not_say(ran: &Ran, text: &str) -> anyhow::Result<()> {
    if ran.stderr.contains(text) {
        bail!("it says `{text}`:\n{}", ran.stderr);
    }
    Ok(())
}
