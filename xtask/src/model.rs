//! Models: what a name refers to, where the files are, and `cargo xtask model`.

pub(crate) mod args;
pub(crate) mod fetch;
pub(crate) mod link;
pub(crate) mod reference;
mod run;

pub(crate) use run::run;
pub(crate) mod source;
pub(crate) mod store;
