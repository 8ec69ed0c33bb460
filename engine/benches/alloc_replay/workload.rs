//! The allocation patterns that are replayed: recorded traces and generated shapes.

use std::io::Read as _;
use std::path::PathBuf;

use engine::alloc::trace::{TraceRecord, UNKNOWN_ID, parse_trace};

/// One event of a pattern. Slots name blocks from their allocation to their free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Alloc { slot: u32, bytes: u64 },
    Free { slot: u32 },
}

/// What a step is for the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    Decode,
    Prefill,
}

/// A pattern, made step by step so that a long one needs little memory.
pub(crate) trait Workload {
    fn name(&self) -> &'static str;
    fn steps(&self) -> usize;
    fn slots(&self) -> usize;
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind;
}

/// The first steps of a pattern.
pub(crate) struct FirstSteps {
    pub(crate) of: Box<dyn Workload>,
    pub(crate) steps: usize,
}

impl Workload for FirstSteps {
    fn name(&self) -> &'static str {
        self.of.name()
    }
    fn steps(&self) -> usize {
        self.steps.min(self.of.steps())
    }
    fn slots(&self) -> usize {
        self.of.slots()
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        self.of.fill(step, events)
    }
}

const LAYERS: usize = 43;
const STATIC_SIZES: u64 = 24;
const STATIC_PAIRS_PER_LAYER: usize = 256;

/// One decode step of a 43-layer model: 24 sizes that repeat and 86 that follow the KV length, in
/// 11,094 pairs.
#[derive(Debug)]
pub(crate) struct DecodeShape {
    pub(crate) steps: usize,
    pub(crate) first_kv: u64,
}

impl DecodeShape {
    pub(crate) const USUAL: DecodeShape = DecodeShape { steps: 300, first_kv: 2000 };

    /// Static sizes from half a KiB to half a MiB, none of them round.
    fn static_bytes(i: usize) -> u64 {
        let i = i as u64 % STATIC_SIZES;
        (512 << (i % 11)) + 96 * (i + 1)
    }
}

impl Workload for DecodeShape {
    fn name(&self) -> &'static str {
        "decode shape"
    }
    fn steps(&self) -> usize {
        self.steps
    }
    fn slots(&self) -> usize {
        10
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        let kv = self.first_kv + step as u64;
        for layer in 0..LAYERS {
            for growing in 0..2 {
                // 64 to 234 bytes a token, each buffer of its own size.
                let bytes = kv * (64 + 2 * (2 * layer as u64 + growing));
                events.push(Event::Alloc { slot: 8 + growing as u32, bytes });
            }
            // Up to eight intermediates are alive at once, as in an attention block.
            for pair in 0..STATIC_PAIRS_PER_LAYER {
                let slot = (pair % 8) as u32;
                if pair >= 8 {
                    events.push(Event::Free { slot });
                }
                events.push(Event::Alloc { slot, bytes: Self::static_bytes(pair * 7 + layer) });
            }
            events.extend((0..10).map(|slot| Event::Free { slot }));
        }
        StepKind::Decode
    }
}

/// 132 buffers a step that grow by 8 KiB each token: nothing is ever asked for twice.
#[derive(Debug)]
pub(crate) struct KvGrowth {
    pub(crate) steps: usize,
    /// Tokens between two steps that are replayed.
    pub(crate) stride: u64,
}

impl KvGrowth {
    pub(crate) fn to_128k(stride: u64) -> Self {
        KvGrowth { steps: ((128 << 10) / stride) as usize, stride }
    }
}

impl Workload for KvGrowth {
    fn name(&self) -> &'static str {
        "KV growth to 128k"
    }
    fn steps(&self) -> usize {
        self.steps
    }
    fn slots(&self) -> usize {
        3
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        let bytes = (step as u64 + 1) * self.stride * (8 << 10);
        for _ in 0..44 {
            events.extend(
                (0..3).map(|slot| Event::Alloc { slot, bytes: bytes - 4096 * u64::from(slot) }),
            );
            events.extend((0..3).map(|slot| Event::Free { slot }));
        }
        StepKind::Decode
    }
}

/// Sizes that come back every fourth step.
#[derive(Debug)]
pub(crate) struct PeriodFour;

impl Workload for PeriodFour {
    fn name(&self) -> &'static str {
        "period-4 sizes"
    }
    fn steps(&self) -> usize {
        400
    }
    fn slots(&self) -> usize {
        8
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        let phase = (step % 4) as u64;
        for i in 0..500_u64 {
            let slot = (i % 8) as u32;
            if i >= 8 {
                events.push(Event::Free { slot });
            }
            events.push(Event::Alloc {
                slot,
                bytes: 3000 + 7001 * ((i + 3 * phase) % 16) + phase * 911,
            });
        }
        events.extend((0..8).map(|slot| Event::Free { slot }));
        StepKind::Decode
    }
}

/// A prefill with large one-shot buffers between every 20 decode steps.
#[derive(Debug)]
pub(crate) struct PrefillInterleave;

impl Workload for PrefillInterleave {
    fn name(&self) -> &'static str {
        "prefill interleave"
    }
    fn steps(&self) -> usize {
        210
    }
    fn slots(&self) -> usize {
        10
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        if !step.is_multiple_of(21) {
            return DecodeShape::USUAL.fill(step, events);
        }
        for layer in 0..LAYERS as u64 {
            let bytes = (24 << 20) + layer * 4096 + step as u64 * 1000;
            events.extend((0..4).map(|slot| Event::Alloc { slot, bytes: bytes >> slot }));
            events.extend((0..4).map(|slot| Event::Free { slot }));
        }
        StepKind::Prefill
    }
}

/// A server with eight sequences: after every 50 decode steps of all of them one ends, and the prompt of
/// another, about 2,000 tokens, is prefilled. A sequence has one block of KV cache a layer.
#[derive(Debug)]
pub(crate) struct Serving;

impl Serving {
    const SEQUENCES: usize = 8;
    /// Decode steps after a prefill, and the prefill.
    const ROUND: usize = 51;
    const ROUNDS: usize = 24;
    /// Slots of a decode step.
    const OTHERS: usize = 10;

    fn kv_slots(sequence: usize) -> impl Iterator<Item = u32> {
        let first = Self::OTHERS + sequence * LAYERS;
        (first..first + LAYERS).map(|slot| slot as u32)
    }
}

impl Workload for Serving {
    fn name(&self) -> &'static str {
        "serving"
    }
    fn steps(&self) -> usize {
        Self::ROUND * Self::ROUNDS
    }
    fn slots(&self) -> usize {
        Self::OTHERS + Self::SEQUENCES * LAYERS
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        let (round, within) = (step / Self::ROUND, step % Self::ROUND);
        if within > 0 {
            let tokens = DecodeShape { steps: 0, first_kv: 16_000 };
            tokens.fill(Self::SEQUENCES * (round + within), events);
            if step + 1 == self.steps() {
                let kv = (0..Self::SEQUENCES).flat_map(Self::kv_slots);
                events.extend(kv.map(|slot| Event::Free { slot }));
            }
            return StepKind::Decode;
        }
        let (sequence, tokens) = (round % Self::SEQUENCES, 2_000 + 37 * (round as u64 % 11));
        if round >= Self::SEQUENCES {
            events.extend(Self::kv_slots(sequence).map(|slot| Event::Free { slot }));
        }
        // Room for 2,560 tokens of eight key heads of 64 elements, keys and values in half precision.
        let kv = Self::kv_slots(sequence);
        events.extend(kv.map(|slot| Event::Alloc { slot, bytes: 2_560 * 8 * 64 * 2 * 2 }));
        for _ in 0..LAYERS {
            // The hidden state twice, then the two halves of the feed-forward, in half precision.
            for (slot, width) in (0..).zip([4_096, 4_096, 14_336, 14_336]) {
                events.push(Event::Alloc { slot, bytes: tokens * width * 2 });
            }
            events.extend((0..4).map(|slot| Event::Free { slot }));
        }
        StepKind::Prefill
    }
}

/// Turns of a chat: the KV length falls back and grows again, each time further.
#[derive(Debug)]
pub(crate) struct MultiTurn;

impl Workload for MultiTurn {
    fn name(&self) -> &'static str {
        "multi-turn regrowth"
    }
    fn steps(&self) -> usize {
        400
    }
    fn slots(&self) -> usize {
        10
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        let (turn, within) = (step / 50, step % 50);
        DecodeShape { steps: 0, first_kv: 500 + 400 * turn as u64 }.fill(within * 8, events)
    }
}

/// Odd sizes without any pattern, freed in another order than they came.
#[derive(Debug)]
pub(crate) struct OddSizes;

impl Workload for OddSizes {
    fn name(&self) -> &'static str {
        "adversarial odd sizes"
    }
    fn steps(&self) -> usize {
        200
    }
    fn slots(&self) -> usize {
        256
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        let mut state = 0x1234_5678_9abc_def1_u64.wrapping_add(step as u64);
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut held = [false; 256];
        for _ in 0..4000 {
            let slot = (next() % 256) as usize;
            if std::mem::replace(&mut held[slot], true) {
                events.push(Event::Free { slot: slot as u32 });
            }
            let log2 = 6 + next() % 15;
            events.push(Event::Alloc {
                slot: slot as u32,
                bytes: ((1 << log2) + next() % (1 << log2)) | 1,
            });
        }
        let held = (0_u32..).zip(held).filter(|(_, held)| *held);
        events.extend(held.map(|(slot, _)| Event::Free { slot }));
        StepKind::Decode
    }
}

/// A recorded trace, cut into its steps. Blocks older than the trace are left out.
#[derive(Debug)]
pub(crate) struct Recorded {
    name: &'static str,
    steps: Vec<Vec<Event>>,
    slots: usize,
}

impl Recorded {
    /// Blocks of at least `min_bytes` of one trace; `None` where the data is absent.
    pub(crate) fn read(name: &'static str, file: &str, min_bytes: u64) -> Option<Self> {
        let path = shared_data()?.join("traces").join(file);
        let compressed = std::fs::read(path).ok()?;
        let mut bytes = vec![];
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut bytes).ok()?;
        let records = parse_trace(&bytes).expect("the recorded trace is well formed");
        Some(Self::from_records(name, &records, min_bytes))
    }

    fn from_records(name: &'static str, records: &[TraceRecord], min_bytes: u64) -> Self {
        let mut steps: Vec<Vec<Event>> = vec![];
        let mut slot_of = std::collections::HashMap::new();
        let mut vacant: Vec<u32> = vec![];
        let mut slots = 0_u32;
        for record in records {
            if record.id == UNKNOWN_ID {
                continue;
            }
            let step = usize::from(record.step);
            if steps.len() <= step {
                steps.resize(step + 1, vec![]);
            }
            if record.op.begins_block() && record.bytes >= min_bytes {
                let slot = vacant.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                slot_of.insert(record.id, slot);
                steps[step].push(Event::Alloc { slot, bytes: record.bytes });
            } else if !record.op.begins_block()
                && let Some(slot) = slot_of.remove(&record.id)
            {
                vacant.push(slot);
                steps[step].push(Event::Free { slot });
            }
        }
        Recorded { name, steps, slots: slots as usize }
    }
}

impl Workload for Recorded {
    fn name(&self) -> &'static str {
        self.name
    }
    fn steps(&self) -> usize {
        self.steps.len()
    }
    fn slots(&self) -> usize {
        self.slots
    }
    fn fill(&self, step: usize, events: &mut Vec<Event>) -> StepKind {
        events.extend_from_slice(&self.steps[step]);
        StepKind::Decode
    }
}

/// The folder of shared test data, where it is there.
fn shared_data() -> Option<PathBuf> {
    let folder = std::env::var_os("ARC_SHARED_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")),
        PathBuf::from,
    );
    folder.is_dir().then_some(folder)
}
