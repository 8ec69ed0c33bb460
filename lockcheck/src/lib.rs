//! Checks offline that `Cargo.lock` holds what the manifests pin: is the code that a `--locked` build
//! compiles the code that was asked for?
//!
//! Cargo itself cannot answer that. With a cold cache it fails for good and bad locks alike, and
//! where the revision in the lock's url is right but the commit after it is not, it compiles that
//! commit and exits with 0. So this crate reads manifests and lock itself. It runs no cargo, needs no
//! sources and no network, and works in any workspace.
//!
//! ```
//! use lockcheck::{Code, Scope, Strictness, check, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let manifest = dir.path().join("Cargo.toml");
//! # std::fs::write(&manifest, "[package]\nname = \"app\"\nversion = \"0.1.0\"\n\n\
//! #     [dependencies]\nserde = \"2\"\n")?;
//! # std::fs::write(dir.path().join("Cargo.lock"), "version = 4\n\n[[package]]\nname = \"app\"\n\
//! #     version = \"0.1.0\"\ndependencies = [\"serde\"]\n\n[[package]]\nname = \"serde\"\n\
//! #     version = \"1.0.0\"\n\
//! #     source = \"registry+https://github.com/rust-lang/crates.io-index\"\n")?;
//! // The manifest asks for serde 2, the lock holds serde 1.
//! let workspace = read::find_root(Some(&manifest))?.read_workspace()?;
//! let report = check(&workspace, Scope::Everything, Strictness::Warn);
//!
//! assert!(!report.agrees());
//! assert_eq!(report.findings[0].code, Code::Version);
//! assert_eq!(report.findings[0].wanted.as_deref(), Some("serde ^2"));
//! # Ok(())
//! # }
//! ```
//!
//! [`read`] is the only module that touches files, the environment and processes. The others take
//! values and return values; [`report`] renders, and only the command line prints.

mod ancestry;
mod check;
mod clone;
mod error;
mod finding;
mod nearest;
mod parse;
mod repair;

#[cfg(feature = "cli")]
pub mod cli;
pub mod read;
pub mod report;

pub use ancestry::{Ancestry, AncestryRule, Relation};
pub use check::{Counts, Report, Scope, Strictness, check};
pub use clone::{Before, CloneQuestion, check_clone};
pub use error::Error;
pub use finding::{Code, Finding, Location, Repair, Severity, Subject};
pub use parse::family::Family;
pub use parse::workspace::Workspace;
