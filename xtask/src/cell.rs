//! One way to run a cell, for every command that measures.
//!
//! It owns the child and its output, the evidence and the classification, the result, runners, the
//! guard before every launch, the client of servers, the watch for quiet, and the journal's lines about cells. What a
//! command does with a classified cell is its own business.

pub(crate) mod capture;
pub(crate) mod child;
pub(crate) mod classify;
pub(crate) mod environment;
pub(crate) mod evidence;
pub(crate) mod executor;
pub(crate) mod grid;
pub(crate) mod guard;
pub(crate) mod health;
pub(crate) mod journal;
pub(crate) mod length;
pub(crate) mod outcome;
pub(crate) mod pins;
pub(crate) mod quiet;
pub(crate) mod result;
pub(crate) mod row;
pub(crate) mod runner;
pub(crate) mod serving;
pub(crate) mod session;
pub(crate) mod spec;
pub(crate) mod variants;
pub(crate) mod work;
