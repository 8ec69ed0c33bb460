//! From texts to values: manifests, cargo's configuration, the lock, and a workspace resolved from
//! them. It reads no file.

pub(crate) mod family;
pub(crate) mod lockfile;
pub(crate) mod manifest;
pub(crate) mod source;
pub(crate) mod spanned;
pub(crate) mod workspace;
