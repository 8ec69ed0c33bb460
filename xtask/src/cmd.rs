//! The commands, one module each: read → plan → act → write.

pub(crate) mod verify_lock;
