//! Whether a machine is as it was before a cell: the driver answers, and free memory is back.
//!
//! Pure: it compares two looks. That the driver answers at all is what looking shows.

/// How much of a memory may still be missing after a cell, as a share of all of it.
const TOLERANCE: f64 = 0.02;

const GIB: f64 = (1_u64 << 30) as f64;

/// One memory: the system's, or a device's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) name: String,
    pub(super) total_bytes: u64,
    pub(super) free_bytes: u64,
}

/// Every memory whose size and free part can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) pools: Vec<Pool>,
}

/// What is missing after a cell, in words; `None` where everything is back.
pub(super) fn find_missing(before: &Look, after: &Look) -> Option<String> {
    let missing: Vec<String> = before
        .pools
        .iter()
        .filter_map(|was| {
            let Some(is) = after.pools.iter().find(|pool| pool.name == was.name) else {
                return Some(format!("{} cannot be read any more", was.name));
            };
            let lost = was.free_bytes.saturating_sub(is.free_bytes) as f64;
            (lost > was.total_bytes as f64 * TOLERANCE).then(|| {
                format!(
                    "{:.1} GiB of {} are free, {:.1} GiB were before",
                    is.free_bytes as f64 / GIB,
                    was.name,
                    was.free_bytes as f64 / GIB
                )
            })
        })
        .collect();
    (!missing.is_empty()).then(|| missing.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(free: &[(&str, u64)]) -> Look {
        let pool = |&(name, free_bytes): &(&str, u64)| Pool {
            name: name.to_owned(),
            total_bytes: 100 << 30,
            free_bytes: free_bytes << 30,
        };
        Look { pools: free.iter().map(pool).collect() }
    }

    #[test]
    fn two_percent_may_be_missing_and_no_more() {
        let before = look(&[("memory", 50), ("GPU 0", 90)]);
        assert_eq!(find_missing(&before, &look(&[("memory", 48), ("GPU 0", 99)])), None);
        assert_eq!(
            find_missing(&before, &look(&[("memory", 47), ("GPU 0", 80)])).as_deref(),
            Some(
                "47.0 GiB of memory are free, 50.0 GiB were before; 80.0 GiB of GPU 0 are free, 90.0 \
                 GiB were before"
            )
        );
        assert_eq!(
            find_missing(&before, &look(&[("memory", 50)])).as_deref(),
            Some("GPU 0 cannot be read any more")
        );
    }
}
