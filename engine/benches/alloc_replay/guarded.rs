//! What every other product gets around its policy: a lock, as it would have in use.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, Mutex};

use crate::peer::{BenchDriver, Peer, PeerFactory};
use crate::workload::StepKind;

/// Numbers are hashed by one multiplication: as cheap as our own table.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("keys are numbers");
    }
    fn write_u64(&mut self, number: u64) {
        // The map takes its bucket from the low bits and its tag from the high ones.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map from numbers.
pub(crate) type FastMap<V> = HashMap<u64, V, BuildHasherDefault<FastHasher>>;

/// A policy under the lock. A free knows its address alone.
pub(crate) trait Policy {
    fn new(driver: Arc<BenchDriver>) -> Self;
    fn alloc(&mut self, bytes: u64) -> u64;
    fn free(&mut self, address: u64);
    fn begin_step(&mut self, _kind: StepKind) {}
}

/// A policy with its lock.
pub(crate) struct Guarded<P> {
    driver: Arc<BenchDriver>,
    policy: Mutex<P>,
}

impl<P> Guarded<P> {
    pub(crate) fn new(driver: Arc<BenchDriver>, policy: P) -> Self {
        Guarded { driver, policy: Mutex::new(policy) }
    }
}

/// A product of that policy.
pub(crate) fn guarded<P: Policy + 'static>(name: &'static str) -> PeerFactory {
    PeerFactory::made_by(name, || {
        let driver = Arc::new(BenchDriver::default());
        Guarded::new(driver.clone(), P::new(driver))
    })
}

impl<P: Policy> Peer for Guarded<P> {
    fn alloc(&mut self, bytes: u64) -> u64 {
        // Not `get_mut`: the lock is to be paid for.
        let policy: &Mutex<P> = &self.policy;
        policy.lock().expect("not poisoned").alloc(bytes)
    }
    fn free(&mut self, address: u64, _bytes: u64) {
        let policy: &Mutex<P> = &self.policy;
        policy.lock().expect("not poisoned").free(address);
    }
    fn begin_step(&mut self, kind: StepKind) {
        self.policy.lock().expect("not poisoned").begin_step(kind);
    }
    fn driver(&self) -> &BenchDriver {
        &self.driver
    }
}
