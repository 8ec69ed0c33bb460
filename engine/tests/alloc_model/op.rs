//! The operations of a random sequence.

/// One operation. Indices are taken modulo the number of things there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    /// A request on one of the streams.
    Alloc { bytes: u64, align: u64, stream: usize },
    /// Frees a handed-out block on its own stream.
    Free { block: usize },
    /// Frees a handed-out block on a stream that may not be its own.
    FreeOn { block: usize, stream: usize },
    /// Says that a block is used on a stream.
    RecordUse { block: usize, stream: usize },
    /// Frees a block again that was freed last.
    DoubleFree,
    /// Frees a block of somebody else.
    ForeignFree,
    /// One decode step of the policy.
    Decode,
    /// Many decode steps, so that windows end.
    DecodeMany,
    /// A prefill of the policy.
    Prefill,
    /// The driver refuses the next allocations.
    FailAllocs { count: u32 },
    /// Capture.
    Prime,
    /// Capture.
    Begin,
    /// Capture.
    Commit,
    /// Capture.
    Abort,
    /// Destroys a captured graph.
    DestroyGraph { graph: usize },
    /// All work on all streams is done.
    CompleteEvents,
    /// Gives everything idle back.
    Flush,
    /// Destroys a stream and makes another one with the same handle.
    RenewStream { stream: usize },
}

/// A small generator, so that a seed names a sequence.
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self) -> usize {
        self.below(1 << 16) as usize
    }

    /// Mostly a handful of sizes that share classes, sometimes odd ones, empty ones and ones that
    /// are larger than the cap or than memory.
    fn bytes(&mut self) -> u64 {
        match self.below(40) {
            0 => 0,
            1 => u64::MAX - self.below(4096),
            2 => self.below(1 << 22),
            3 => (256 << 20) + self.below(3) * (1 << 20),
            4..=9 => self.below(6000),
            _ => [100, 512, 600, 4096, 4097, 9000, 20_000, 70_000][self.below(8) as usize],
        }
    }

    fn stream(&mut self) -> usize {
        // One stream does most of the work.
        self.below(8).saturating_sub(5) as usize
    }

    fn op(&mut self) -> Op {
        match self.below(64) {
            0..=25 => {
                let align = if self.below(30) == 0 { 4096 } else { 64 };
                Op::Alloc { bytes: self.bytes(), align, stream: self.stream() }
            }
            26..=43 => Op::Free { block: self.index() },
            44..=45 => Op::FreeOn { block: self.index(), stream: self.stream() },
            46 => Op::RecordUse { block: self.index(), stream: self.stream() },
            47 => Op::DoubleFree,
            48 => Op::ForeignFree,
            49..=51 => Op::Decode,
            52 => Op::DecodeMany,
            53 => Op::Prefill,
            54 => Op::FailAllocs { count: 1 + self.below(3) as u32 },
            55 => Op::Prime,
            56..=57 => Op::Begin,
            58 => Op::Commit,
            59 => Op::Abort,
            60 => Op::DestroyGraph { graph: self.index() },
            61 => Op::CompleteEvents,
            62 => Op::Flush,
            _ => Op::RenewStream { stream: self.stream() },
        }
    }

    /// A sequence that starts with the cache on, as most interesting ones do.
    pub(crate) fn sequence(&mut self) -> Vec<Op> {
        let length = 8 + self.below(40);
        std::iter::once(Op::Decode).chain((0..length).map(|_| self.op())).collect()
    }
}
