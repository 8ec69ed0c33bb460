//! How long the rest of a sweep takes, by this run and by earlier journals.
//!
//! Pure. It is a guess for the person who waits; nothing is decided by it.

use std::collections::HashMap;
use std::time::Duration;

/// What is known of how long cells take, in milliseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Durations {
    by_cell: HashMap<(String, u64), f64>,
}

impl Durations {
    /// Notes how long a launched cell took; the last note counts.
    pub(crate) fn note(&mut self, model: &str, len: u64, wall_ms: f64) {
        if wall_ms.is_finite() && wall_ms >= 0.0 {
            self.by_cell.insert((model.to_owned(), len), wall_ms);
        }
    }

    /// How long these cells will take; `None` while nothing is known.
    pub(crate) fn estimate<'a>(
        &self,
        cells: impl Iterator<Item = (&'a str, u64)>,
    ) -> Option<Duration> {
        let mut total_ms = 0.0;
        for (model, len) in cells {
            total_ms += self.estimate_cell_ms(model, len)?;
        }
        Duration::try_from_secs_f64(total_ms / 1e3).ok()
    }

    /// The cell itself, else the nearest length of its model in proportion to the length, else the
    /// mean of all.
    fn estimate_cell_ms(&self, model: &str, len: u64) -> Option<f64> {
        if let Some(&known) = self.by_cell.get(&(model.to_owned(), len)) {
            return Some(known);
        }
        let nearest = self
            .by_cell
            .iter()
            .filter(|((name, _), _)| name == model)
            .min_by_key(|((_, known), _)| known.abs_diff(len));
        if let Some(((_, known_len), ms)) = nearest {
            return Some(ms * len as f64 / (*known_len).max(1) as f64);
        }
        let count = self.by_cell.len();
        (count > 0).then(|| self.by_cell.values().sum::<f64>() / count as f64)
    }
}

/// A duration as people say it.
pub(crate) fn render_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_best_is_used() {
        let mut durations = Durations::default();
        assert_eq!(durations.estimate([("a", 8)].into_iter()), None);
        durations.note("a", 512, 1000.0);
        durations.note("a", 2048, 5000.0);
        durations.note("b", 512, 3000.0);
        let seconds =
            |model, len| durations.estimate([(model, len)].into_iter()).unwrap().as_secs_f64();
        assert_eq!(seconds("a", 512), 1.0);
        assert_eq!(seconds("a", 8192), 20.0);
        assert_eq!(seconds("a", 256), 0.5);
        assert_eq!(seconds("c", 512), 3.0);
        let both = durations.estimate([("a", 512), ("b", 512)].into_iter()).unwrap();
        assert_eq!(both, Duration::from_secs(4));
    }

    #[test]
    fn nothing_left_takes_no_time() {
        assert_eq!(Durations::default().estimate(std::iter::empty()), Some(Duration::ZERO));
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(render_duration(Duration::from_millis(1499)), "1 s");
        assert_eq!(render_duration(Duration::from_secs(61)), "1 min 1 s");
        assert_eq!(render_duration(Duration::from_secs(7260)), "2 h 1 min");
    }
}
