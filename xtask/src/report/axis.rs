//! Axes: where a value lies on the page, and which values are written beside them.

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Log,
}

/// An axis from one place on the page to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    low: f64,
    high: f64,
    low_at: f64,
    high_at: f64,
}

/// A value on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// Values that are further apart than this by a factor are shown on a logarithmic axis.
const LINEAR_UP_TO_FACTOR: f64 = 12.0;
const MOST_TICKS: usize = 8;

impl Axis {
    /// An axis of prompt lengths: logarithmic, with a margin on both sides.
    pub(super) fn of_lengths(lengths: &[u64], low_at: f64, high_at: f64) -> Axis {
        let low = lengths.iter().min().copied().unwrap_or(1) as f64;
        let high = lengths.iter().max().copied().unwrap_or(1) as f64;
        let margin = if high > low { (high / low).powf(0.06) } else { 2.0 };
        Axis { scale: Scale::Log, low: low / margin, high: high * margin, low_at, high_at }
    }

    /// An axis of speeds: from zero, or logarithmic where they are far apart.
    pub(super) fn of_speeds(speeds: &[f64], low_at: f64, high_at: f64) -> Axis {
        let low = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let high = speeds.iter().copied().fold(0.0, f64::max);
        if high > low * LINEAR_UP_TO_FACTOR {
            let (low, high) = (low / 1.5, high * 1.5);
            Axis { scale: Scale::Log, low, high, low_at, high_at }
        } else {
            let high = if high > 0.0 { high * 1.12 } else { 1.0 };
            Axis { scale: Scale::Linear, low: 0.0, high, low_at, high_at }
        }
    }

    /// Where a value lies on the page.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.low_at + part * (self.high_at - self.low_at)
    }

    /// Round values within the axis, about five of them.
    pub(super) fn round_ticks(&self) -> Vec<Tick> {
        let values: Vec<f64> = match self.scale {
            Scale::Linear => {
                let step = round_step(self.high / 5.0);
                (0..=MOST_TICKS).map(|n| n as f64 * step).collect()
            }
            Scale::Log => {
                let first = self.low.log10().floor() as i32;
                let last = self.high.log10().ceil() as i32;
                let decades = (last - first) as usize;
                let digits: &[f64] = if decades > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
                (first..=last)
                    .step_by(decades.div_ceil(MOST_TICKS).max(1))
                    .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
                    .collect()
            }
        };
        values
            .into_iter()
            .filter(|value| (self.low..=self.high).contains(value))
            .map(|value| Tick { at: self.place(value), label: render_tick(value) })
            .collect()
    }

    /// The given lengths, without those whose text would run into the one before.
    pub(super) fn length_ticks(&self, lengths: &[u64]) -> Vec<Tick> {
        let mut ticks: Vec<Tick> = Vec::new();
        for length in lengths {
            let tick = Tick { at: self.place(*length as f64), label: render_count(*length) };
            let half = |tick: &Tick| text_width(&tick.label) / 2.0;
            if ticks.last().is_none_or(|last| tick.at - half(&tick) > last.at + half(last) + 5.0) {
                ticks.push(tick);
            }
        }
        ticks
    }
}

/// About how wide a text of eleven pixels is.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 6.4
}

/// The least of 1, 2, 2.5 and 5 times a power of ten that is not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|digit| digit * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

/// A count with a comma between thousands.
pub(super) fn render_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A speed with three digits that say something.
pub(super) fn render_speed(speed: f64) -> String {
    match speed {
        _ if speed >= 99.95 => render_count(speed.round() as u64),
        _ if speed >= 9.995 => format!("{speed:.1}"),
        _ => format!("{speed:.2}"),
    }
}

/// A round value without needless zeros.
fn render_tick(value: f64) -> String {
    if value >= 1000.0 { render_count(value.round() as u64) } else { format!("{}", round6(value)) }
}

fn round6(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).collect()
    }

    #[test]
    fn doublings_of_the_length_are_equally_far_apart() {
        let axis = Axis::of_lengths(&[512, 32_768], 100.0, 400.0);
        let steps: Vec<f64> = [512.0, 1024.0, 2048.0].map(|length| axis.place(length)).to_vec();
        assert!((steps[1] - steps[0] - (steps[2] - steps[1])).abs() < 1e-9);
        assert!(steps[0] > 100.0 && axis.place(32_768.0) < 400.0);
    }

    #[test]
    fn a_single_length_lies_in_the_middle() {
        let axis = Axis::of_lengths(&[512], 100.0, 400.0);
        assert!((axis.place(512.0) - 250.0).abs() < 1e-9);
    }

    #[test]
    fn speeds_start_at_zero_unless_they_are_far_apart() {
        let near = Axis::of_speeds(&[35.46, 147.0], 300.0, 100.0);
        assert_eq!(near.scale, Scale::Linear);
        assert!((near.place(0.0) - 300.0).abs() < 1e-9);
        assert_eq!(labels(&near.round_ticks()), ["0", "50", "100", "150"]);
        let far = Axis::of_speeds(&[102.41, 6051.03], 300.0, 100.0);
        assert_eq!(far.scale, Scale::Log);
        assert_eq!(labels(&far.round_ticks()), ["100", "200", "500", "1,000", "2,000", "5,000"]);
        let none = Axis::of_speeds(&[], 300.0, 100.0);
        assert!(none.place(0.5).is_finite());
    }

    #[test]
    fn lengths_that_would_run_into_each_other_are_left_out() {
        let axis = Axis::of_lengths(&[100, 101, 1000], 0.0, 300.0);
        assert_eq!(labels(&axis.length_ticks(&[100, 101, 1000])), ["100", "1,000"]);
    }

    #[test]
    fn numbers_are_written_with_what_matters() {
        assert_eq!(render_count(32_768), "32,768");
        assert_eq!(render_count(999), "999");
        assert_eq!(
            [6051.03, 147.0, 35.46, 8.512].map(render_speed),
            ["6,051", "147", "35.5", "8.51"]
        );
        assert_eq!(round_step(33.0), 50.0);
        assert_eq!(round_step(0.21), 0.25);
    }
}
