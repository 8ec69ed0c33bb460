//! Highest values, over the cache's life and over windows that readers own.
//!
//! The cache raises one segment's values; whoever reads folds the segment into the life's peaks and
//! into every open window. So an operation costs one comparison however many windows are open, and
//! no reader can reset another's window. A window starts at the values of its first moment, never at
//! zero: lifetime ≥ window ≥ current, always.

/// Highest bytes of one span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peaks {
    /// Highest live bytes.
    pub live_bytes: u64,
    /// Highest idle bytes.
    pub idle_bytes: u64,
    /// Highest held bytes.
    pub total_bytes: u64,
}

impl Peaks {
    fn raise_to(&mut self, other: Peaks) {
        self.live_bytes = self.live_bytes.max(other.live_bytes);
        self.idle_bytes = self.idle_bytes.max(other.idle_bytes);
        self.total_bytes = self.total_bytes.max(other.total_bytes);
    }
}

/// A window that its holder alone reads and restarts. It is given back to the cache that it came
/// from when it is not needed any more.
#[derive(Debug, PartialEq, Eq)]
pub struct PeakWindow {
    index: usize,
}

#[derive(Debug, Default)]
pub(crate) struct PeakLog {
    segment: Peaks,
    lifetime: Peaks,
    windows: Vec<Option<Peaks>>,
}

impl PeakLog {
    #[inline]
    pub(crate) fn raise_live(&mut self, live_bytes: u64) {
        if live_bytes > self.segment.live_bytes {
            self.segment.live_bytes = live_bytes;
        }
    }

    #[inline]
    pub(crate) fn raise_idle(&mut self, idle_bytes: u64) {
        if idle_bytes > self.segment.idle_bytes {
            self.segment.idle_bytes = idle_bytes;
        }
    }

    #[inline]
    pub(crate) fn raise_total(&mut self, total_bytes: u64) {
        if total_bytes > self.segment.total_bytes {
            self.segment.total_bytes = total_bytes;
        }
    }

    pub(crate) fn lifetime(&self) -> Peaks {
        let mut peaks = self.lifetime;
        peaks.raise_to(self.segment);
        peaks
    }

    /// Opens a window that starts at the current values.
    pub(crate) fn open(&mut self, current: Peaks) -> PeakWindow {
        self.fold(current);
        let index = match self.windows.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.windows.push(None);
                self.windows.len() - 1
            }
        };
        self.windows[index] = Some(current);
        PeakWindow { index }
    }

    /// The window's highest values so far.
    pub(crate) fn read(&self, window: &PeakWindow) -> Peaks {
        let mut peaks = self.windows.get(window.index).copied().flatten().unwrap_or_default();
        peaks.raise_to(self.segment);
        peaks
    }

    /// Reads the window and starts it anew at the current values.
    pub(crate) fn restart(&mut self, window: &PeakWindow, current: Peaks) -> Peaks {
        let peaks = self.read(window);
        self.fold(current);
        if let Some(start) = self.windows.get_mut(window.index) {
            *start = Some(current);
        }
        peaks
    }

    pub(crate) fn close(&mut self, window: PeakWindow) -> Peaks {
        let peaks = self.read(&window);
        if let Some(slot) = self.windows.get_mut(window.index) {
            *slot = None;
        }
        peaks
    }

    /// Ends the segment: everything open has seen it.
    fn fold(&mut self, current: Peaks) {
        self.lifetime.raise_to(self.segment);
        for window in self.windows.iter_mut().flatten() {
            window.raise_to(self.segment);
        }
        self.segment = current;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_window_starts_at_the_current_value_and_not_at_zero() {
        let mut log = PeakLog::default();
        log.raise_live(10);
        let window = log.open(Peaks { live_bytes: 4, ..Peaks::default() });
        assert_eq!(log.read(&window).live_bytes, 4);
        assert_eq!(log.lifetime().live_bytes, 10);
    }

    proptest! {
        /// Several readers open, restart and close windows over one walk of values; each window is
        /// compared with the highest value since its own start.
        #[test]
        fn windows_are_independent_and_lie_between_current_and_lifetime(
            steps in prop::collection::vec((0_u64..100, 0_u8..8, 0_usize..4), 1..200)
        ) {
            let mut log = PeakLog::default();
            let mut readers: [Option<(PeakWindow, u64)>; 4] = [None, None, None, None];
            let mut lifetime = 0;
            for (live, what, reader) in steps {
                log.raise_live(live);
                lifetime = lifetime.max(live);
                let current = Peaks { live_bytes: live, ..Peaks::default() };
                for (_, highest) in readers.iter_mut().flatten() {
                    *highest = (*highest).max(live);
                }
                match (what, &mut readers[reader]) {
                    (0..=2, slot @ None) => *slot = Some((log.open(current), live)),
                    (3, Some((window, highest))) => {
                        prop_assert_eq!(log.restart(window, current).live_bytes, *highest);
                        *highest = live;
                    }
                    (4, slot @ Some(_)) => {
                        let (window, highest) = slot.take().unwrap();
                        prop_assert_eq!(log.close(window).live_bytes, highest);
                    }
                    _ => {}
                }
                prop_assert_eq!(log.lifetime().live_bytes, lifetime);
                for (window, highest) in readers.iter().flatten() {
                    let peak = log.read(window).live_bytes;
                    prop_assert_eq!(peak, *highest);
                    prop_assert!(live <= peak && peak <= lifetime);
                }
            }
        }
    }
}
