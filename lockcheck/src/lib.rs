//! Whether `Cargo.lock` holds what the manifests pin: readers for both, and the comparison.
//!
//! Nothing here runs cargo or git, reads files or needs sources. Cargo itself cannot answer the
//! question: with a cold cache it fails for good and bad locks alike, and where the revision in the
//! lock's url is right but the commit after it is not, it compiles that commit and exits with 0.

pub(crate) mod ancestry;
pub(crate) mod check;
pub(crate) mod family;
pub(crate) mod finding;
pub(crate) mod lockfile;
pub(crate) mod manifest;
pub(crate) mod repair;
pub(crate) mod report;
pub(crate) mod source;
pub(crate) mod spanned;
pub(crate) mod workspace;
