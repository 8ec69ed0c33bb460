//! Reader of recorded allocation traces.
//!
//! Records of 16 bytes, little-endian: `u32` id, `u8` operation, `u8` log2 of the alignment, `u16`
//! step, `u64` whose low 48 bits are the size and whose high 16 bits are the thread.

/// Bytes of one record.
pub const RECORD_BYTES: usize = 16;
/// The id of a free whose block is older than the trace.
pub const UNKNOWN_ID: u32 = u32::MAX;

/// What a record says was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceOp {
    /// An allocation.
    Alloc,
    /// An allocation of zeroed memory.
    AllocZeroed,
    /// A free.
    Free,
    /// A realloc gave up this block.
    ReallocOld,
    /// A realloc made this block.
    ReallocNew,
}

impl TraceOp {
    /// Whether a block begins here rather than ends.
    #[must_use]
    pub fn begins_block(self) -> bool {
        matches!(self, TraceOp::Alloc | TraceOp::AllocZeroed | TraceOp::ReallocNew)
    }
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRecord {
    /// Names the block from its allocation to its free, or is [`UNKNOWN_ID`].
    pub id: u32,
    /// What was done.
    pub op: TraceOp,
    /// Log2 of the alignment.
    pub align_log2: u8,
    /// The decode step.
    pub step: u16,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// The thread.
    pub thread: u16,
}

/// Why a trace cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The bytes do not end where a record does.
    #[error("the trace ends within a record: {bytes} bytes is not a multiple of {RECORD_BYTES}")]
    Truncated {
        /// Length of the trace.
        bytes: usize,
    },
    /// An unknown operation.
    #[error("record {record}: unknown operation {op}")]
    UnknownOp {
        /// Index of the record.
        record: usize,
        /// Its operation.
        op: u8,
    },
    /// An alignment that no address can have.
    #[error("record {record}: alignment 2^{align_log2} is too large")]
    Alignment {
        /// Index of the record.
        record: usize,
        /// Log2 of its alignment.
        align_log2: u8,
    },
}

/// Parses a whole trace, decompressed.
///
/// # Errors
/// Where it ends within a record, or a record holds what no allocator does.
pub fn parse_trace(bytes: &[u8]) -> Result<Vec<TraceRecord>, TraceError> {
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(TraceError::Truncated { bytes: bytes.len() });
    }
    records.iter().enumerate().map(|(record, bytes)| parse_record(record, bytes)).collect()
}

fn parse_record(record: usize, bytes: &[u8; RECORD_BYTES]) -> Result<TraceRecord, TraceError> {
    let [i0, i1, i2, i3, op, align_log2, s0, s1, rest @ ..] = *bytes;
    let op = match op {
        0 => TraceOp::Alloc,
        1 => TraceOp::AllocZeroed,
        2 => TraceOp::Free,
        3 => TraceOp::ReallocOld,
        4 => TraceOp::ReallocNew,
        op => return Err(TraceError::UnknownOp { record, op }),
    };
    if align_log2 >= 63 {
        return Err(TraceError::Alignment { record, align_log2 });
    }
    let packed = u64::from_le_bytes(rest);
    Ok(TraceRecord {
        id: u32::from_le_bytes([i0, i1, i2, i3]),
        op,
        align_log2,
        step: u16::from_le_bytes([s0, s1]),
        bytes: packed & ((1 << 48) - 1),
        thread: (packed >> 48) as u16,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_is_read_field_by_field() {
        let bytes = [7, 1, 0, 0, 4, 6, 49, 0, 0, 16, 0, 0, 0, 0, 2, 0];
        let record = TraceRecord {
            id: 263,
            op: TraceOp::ReallocNew,
            align_log2: 6,
            step: 49,
            bytes: 4096,
            thread: 2,
        };
        assert_eq!(parse_trace(&bytes), Ok(vec![record]));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        assert_eq!(parse_trace(&[0; 17]), Err(TraceError::Truncated { bytes: 17 }));
        let mut bytes = [0; 32];
        bytes[20] = 5;
        assert_eq!(parse_trace(&bytes), Err(TraceError::UnknownOp { record: 1, op: 5 }));
        bytes[20] = 0;
        bytes[5] = 64;
        assert_eq!(parse_trace(&bytes), Err(TraceError::Alignment { record: 0, align_log2: 64 }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_trace(&bytes);
        }
    }
}
