//! Arc tried on itself: the scenarios, and the scripted runner that plays every ending of a cell.

mod checkout;
pub(crate) mod scenarios;
pub(crate) mod scripted;
