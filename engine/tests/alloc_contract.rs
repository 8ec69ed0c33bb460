//! One contract over every driver that runs here: simulated, the system allocator, `mmap`.

#[path = "alloc_contract/suite.rs"]
mod suite;

use engine::alloc::driver::host::{HostDriver, HostDriverKind};
use engine::alloc::driver::sim::SimDriver;

#[test]
fn the_simulated_driver_keeps_the_contract() {
    suite::run(SimDriver::new);
}

#[test]
fn the_system_allocator_keeps_the_contract() {
    suite::run(|| HostDriver::new(HostDriverKind::System));
}

#[test]
fn mmap_keeps_the_contract() {
    suite::run(|| HostDriver::new(HostDriverKind::Mmap));
}
