//! Size classes: the physical sizes that the cache asks the driver for.
//!
//! 512 B granules up to 4 KiB, then eight classes an octave up to 256 MiB, then multiples of 2 MiB.
//! A request wastes at most 511 B or one eighth of itself. All arithmetic is checked.

/// Every class is a multiple of this.
pub const GRANULE_BYTES: u64 = 512;
/// Up to here the classes are the granules.
pub const LINEAR_MAX_BYTES: u64 = 4 << 10;
/// Above this, sizes are rounded to [`HUGE_STEP_BYTES`].
pub const OCTAVE_MAX_BYTES: u64 = 256 << 20;
/// Step of the largest sizes.
pub const HUGE_STEP_BYTES: u64 = 2 << 20;
/// No object may be larger, so no request is.
pub const REQUEST_MAX_BYTES: u64 = i64::MAX as u64;

const LINEAR_SLOTS: u64 = LINEAR_MAX_BYTES / GRANULE_BYTES;
const LINEAR_MAX_LOG2: u32 = LINEAR_MAX_BYTES.ilog2();
/// log2 of the number of classes in one octave.
const OCTAVE_LOG2: u32 = 3;
/// Number of slots that hold exactly one size.
const SIZED_SLOTS: u64 =
    LINEAR_SLOTS + ((OCTAVE_MAX_BYTES.ilog2() - LINEAR_MAX_LOG2) as u64) * (1 << OCTAVE_LOG2);

/// The slot that all sizes above [`OCTAVE_MAX_BYTES`] share.
pub(crate) const HUGE_SLOT: u16 = SIZED_SLOTS as u16;
pub(crate) const SLOTS: usize = SIZED_SLOTS as usize + 1;

/// The class of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SizeClass {
    /// Index of the class's list; all huge sizes share the last one.
    pub(crate) slot: u16,
    /// Physical bytes of a block of this class.
    pub bytes: u64,
}

/// The class that serves `bytes`, or `None` where no block can be that large. `bytes` must not be
/// zero: empty requests never reach a class.
#[inline]
#[must_use]
pub fn class_of(bytes: u64) -> Option<SizeClass> {
    debug_assert!(bytes > 0, "an empty request has no class");
    if bytes <= OCTAVE_MAX_BYTES {
        let last = bytes.wrapping_sub(1);
        if bytes <= LINEAR_MAX_BYTES {
            let slot = last / GRANULE_BYTES;
            return Some(SizeClass { slot: slot as u16, bytes: (slot + 1) * GRANULE_BYTES });
        }
        let log2 = last.ilog2();
        let shift = log2 - OCTAVE_LOG2;
        let eighths = last >> shift;
        let octave = u64::from(log2 - LINEAR_MAX_LOG2) << OCTAVE_LOG2;
        let slot = LINEAR_SLOTS + octave + (eighths & ((1 << OCTAVE_LOG2) - 1));
        return Some(SizeClass { slot: slot as u16, bytes: (eighths + 1) << shift });
    }
    let rounded = bytes.checked_next_multiple_of(HUGE_STEP_BYTES)?;
    (rounded <= REQUEST_MAX_BYTES).then_some(SizeClass { slot: HUGE_SLOT, bytes: rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every class border of the sized classes, smallest first.
    fn borders() -> Vec<u64> {
        let mut borders = vec![];
        let mut bytes = 1;
        while bytes <= OCTAVE_MAX_BYTES {
            let class = class_of(bytes).unwrap();
            borders.push(class.bytes);
            bytes = class.bytes + 1;
        }
        borders
    }

    #[test]
    fn slots_and_sizes_rise_together_without_a_gap() {
        let borders = borders();
        assert_eq!(borders.len(), usize::from(HUGE_SLOT));
        for (slot, bytes) in borders.iter().enumerate() {
            assert_eq!(class_of(*bytes), Some(SizeClass { slot: slot as u16, bytes: *bytes }));
        }
        assert_eq!(borders[..9], [512, 1024, 1536, 2048, 2560, 3072, 3584, 4096, 4608]);
        assert_eq!(*borders.last().unwrap(), OCTAVE_MAX_BYTES);
    }

    #[test]
    fn waste_is_at_most_an_eighth_or_511_bytes_and_classes_are_their_own_class() {
        let mut sizes: Vec<u64> = (1..=64 << 10).collect();
        for border in borders() {
            sizes.extend([border - 1, border, border + 1]);
        }
        for step in 1..2000 {
            sizes.extend([step * HUGE_STEP_BYTES, step * HUGE_STEP_BYTES + 1]);
        }
        for bytes in sizes {
            let class = class_of(bytes).unwrap();
            assert!(class.bytes >= bytes, "{bytes}");
            assert_eq!(class.bytes % GRANULE_BYTES, 0, "{bytes}");
            let waste = class.bytes - bytes;
            assert!(waste <= 511 || waste * 8 <= bytes, "{bytes} wastes {waste}");
            assert_eq!(class_of(class.bytes), Some(class), "{bytes}");
        }
    }

    #[test]
    fn sizes_near_the_end_of_the_number_line_have_no_class() {
        for bytes in [u64::MAX, u64::MAX - 1, u64::MAX - HUGE_STEP_BYTES, 1 << 63, i64::MAX as u64]
        {
            assert_eq!(class_of(bytes), None, "{bytes}");
        }
        let largest = REQUEST_MAX_BYTES / HUGE_STEP_BYTES * HUGE_STEP_BYTES;
        assert_eq!(class_of(largest).map(|class| class.bytes), Some(largest));
        assert_eq!(class_of(largest + 1), None);
    }
}
