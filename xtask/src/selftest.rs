//! Arc tried on itself: the scenarios, and the scripted runner and
//! server that play every ending of a cell.

mod checkout;
pub(crate) mod scenarios;
pub(crate) mod scripted;
pub(crate) mod server;
