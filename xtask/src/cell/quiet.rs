//! Whether the machine was quiet while a run was measured: other load, throttling, swap, a GPU that
//! somebody else uses. Pure: it is given what the system counted before and after.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::count::render_count;

pub(crate) mod file;

/// What the system has counted so far. What cannot be read is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct HostSample {
    /// Processor time that was not idle, of the whole machine.
    pub(crate) busy: Option<Duration>,
    /// What a hypervisor gave to others of it, or kept.
    pub(crate) stolen: Option<Duration>,
    pub(crate) processors: Option<u64>,
    /// Pages swapped in and out.
    pub(crate) swapped_pages: Option<u64>,
    pub(crate) thermal_throttles: Option<u64>,
    /// Periods in which this cgroup was kept from running.
    pub(crate) cgroup_throttles: Option<u64>,
    pub(crate) gpu_processes: Option<u64>,
    /// Whether a GPU is slowed for heat or power right now.
    pub(crate) gpu_throttled: Option<bool>,
    pub(crate) driver_silent: bool,
}

/// What follows from a disturbed run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuietRule {
    /// It is rejected and repeated.
    Required,
    /// It counts, and what disturbed it is in the samples alone.
    Noted,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct QuietLimits {
    /// Load of other processes, in percent of all processors.
    pub(crate) max_other_load_pct: f64,
}

/// What a sweep makes of a disturbed cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SweepQuiet {
    /// Nobody looks.
    Off,
    /// It counts, and is marked.
    #[default]
    Noted,
    /// It is repeated, and counts, marked, where the last repetition is disturbed too.
    Repeat,
}

impl SweepQuiet {
    /// The word for it in definitions.
    pub(crate) fn word(self) -> &'static str {
        match self {
            SweepQuiet::Off => "off",
            SweepQuiet::Noted => "noted",
            SweepQuiet::Repeat => "repeat",
        }
    }
}

/// Time within a run in which it could not go on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LostTime {
    /// The machine slept.
    pub(crate) slept: Duration,
    /// The process was stopped, by a signal or a debugger.
    pub(crate) stopped: Duration,
}

/// Sleep below this is the distance of two readings of clocks.
const SLEEP_FLOOR: Duration = Duration::from_millis(10);

/// What was seen around one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct QuietNote {
    /// Load of other processes before the launch, in percent of all processors.
    pub(crate) other_load_before_pct: Option<f64>,
    /// The same while it ran.
    pub(crate) other_load_during_pct: Option<f64>,
    /// What disturbed the run, in words; empty where it was quiet.
    pub(crate) disturbances: Vec<String>,
}

/// One stretch of time between two samples, and what of its load was not somebody else's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    pub(crate) start: HostSample,
    pub(crate) end: HostSample,
    pub(crate) wall: Duration,
    /// Processor time of the measured run within it.
    pub(crate) own: Duration,
}

impl Stretch {
    /// Load of others, in percent of all processors: of other processes, and what was stolen.
    pub(crate) fn other_load_pct(&self) -> Option<f64> {
        let busy = self.end.busy?.checked_sub(self.start.busy?)?;
        // The system counts in hundredths of a second, so a short run may seem to be negative.
        self.percent(busy.saturating_sub(self.own))
    }

    /// What a hypervisor gave to others, in percent of all processors.
    pub(crate) fn stolen_pct(&self) -> Option<f64> {
        self.percent(self.end.stolen?.checked_sub(self.start.stolen?)?)
    }

    fn percent(&self, time: Duration) -> Option<f64> {
        let capacity = self.wall.as_secs_f64() * self.end.processors? as f64;
        (capacity > 0.0).then(|| 100.0 * time.as_secs_f64() / capacity)
    }
}

/// What disturbed a run, given the stretch before its launch and the one that it ran in.
pub(crate) fn check_quiet(
    before: &Stretch,
    during: &Stretch,
    lost: LostTime,
    limits: QuietLimits,
) -> QuietNote {
    let mut disturbances = Vec::new();
    if lost.slept >= SLEEP_FLOOR {
        disturbances.push(format!("the machine slept for {:.1} s", lost.slept.as_secs_f64()));
    }
    if !lost.stopped.is_zero() {
        disturbances
            .push(format!("the process was stopped for {:.1} s", lost.stopped.as_secs_f64()));
    }
    let mut note_load = |when: &str, stretch: &Stretch| {
        let load = stretch.other_load_pct();
        if let Some(load) = load.filter(|load| *load > limits.max_other_load_pct) {
            let stolen = stretch.stolen_pct().unwrap_or(0.0).min(load);
            let who = match (load - stolen, stolen) {
                (others, 0.05..) if others < 0.05 => format!("the hypervisor took {stolen:.1} %"),
                (others, 0.05..) => {
                    format!("other processes took {others:.1} % and the hypervisor {stolen:.1} %")
                }
                _ => format!("other processes took {load:.1} %"),
            };
            let limit = limits.max_other_load_pct;
            disturbances.push(format!("{who} of the processors {when} (limit {limit} %)"));
        }
        load
    };
    let load_before = note_load("before the launch", before);
    let load_during = note_load("during the run", during);

    let grown = |of: fn(&HostSample) -> Option<u64>| {
        Some(of(&during.end)?.saturating_sub(of(&during.start)?)).filter(|count| *count > 0)
    };
    if let Some(pages) = grown(|sample| sample.swapped_pages) {
        disturbances.push(format!("swapped: {}", render_count(pages as usize, "page")));
    }
    if let Some(times) = grown(|sample| sample.thermal_throttles) {
        disturbances.push(format!(
            "processors were throttled for heat {}",
            render_count(times as usize, "time")
        ));
    }
    if let Some(periods) = grown(|sample| sample.cgroup_throttles) {
        disturbances.push(format!(
            "the CPU quota of the cgroup throttled it in {}",
            render_count(periods as usize, "period")
        ));
    }
    for (when, sample) in [("before the launch", &during.start), ("after the run", &during.end)] {
        if let Some(processes) = sample.gpu_processes.filter(|processes| *processes > 0) {
            disturbances.push(format!(
                "on the GPU {when}: {}",
                render_count(processes as usize, "other process")
            ));
        }
    }
    if during.start.gpu_throttled == Some(true) || during.end.gpu_throttled == Some(true) {
        disturbances.push("the GPU was throttled".to_owned());
    }
    if during.start.driver_silent || during.end.driver_silent {
        disturbances.push("the NVIDIA driver did not answer".to_owned());
    }
    QuietNote {
        other_load_before_pct: load_before,
        other_load_during_pct: load_during,
        disturbances,
    }
}

/// The first line of `/proc/stat` as busy time of all processors, in ticks: everything but idle and
/// waiting for input and output. Time stolen by a hypervisor is somebody else's load.
pub(crate) fn parse_busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is within user.
    (ticks.len() >= 8).then(|| ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7])
}

/// The time that a hypervisor gave to others, in ticks: a part of [`parse_busy_ticks`].
pub(crate) fn parse_stolen_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

/// Processors that `/proc/stat` counts.
pub(crate) fn parse_processors(stat: &str) -> Option<u64> {
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    Some(stat.lines().filter(is_processor).count() as u64).filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QuietLimits = QuietLimits { max_other_load_pct: 10.0 };

    fn sample(busy_ms: u64) -> HostSample {
        HostSample {
            busy: Some(Duration::from_millis(busy_ms)),
            processors: Some(2),
            ..HostSample::default()
        }
    }

    fn stretch(start: HostSample, end: HostSample, own_ms: u64) -> Stretch {
        Stretch { start, end, wall: Duration::from_secs(1), own: Duration::from_millis(own_ms) }
    }

    fn during(end: HostSample) -> Vec<String> {
        let idle = stretch(sample(0), sample(0), 0);
        check_quiet(&idle, &stretch(sample(0), end, 0), LostTime::default(), LIMITS).disturbances
    }

    #[test]
    fn load_is_what_the_run_did_not_take_itself() {
        // 1.5 s busy on two processors within a second, 1.3 s of it our own: 10 % is others'.
        let load = stretch(sample(100), sample(1600), 1300).other_load_pct().unwrap();
        assert!((load - 10.0).abs() < 1e-9, "{load}");
        // Ticks are coarse: our own time may exceed what was counted.
        assert_eq!(stretch(sample(100), sample(1600), 1510).other_load_pct(), Some(0.0));
        assert_eq!(stretch(HostSample::default(), sample(9), 0).other_load_pct(), None);
    }

    #[test]
    fn time_that_was_lost_disturbs() {
        let idle = stretch(sample(0), sample(0), 0);
        let found = |slept, stopped| {
            let ms = Duration::from_millis;
            let lost = LostTime { slept: ms(slept), stopped: ms(stopped) };
            check_quiet(&idle, &idle, lost, LIMITS).disturbances
        };
        assert_eq!(found(2000, 0), ["the machine slept for 2.0 s"]);
        assert_eq!(found(9, 2100), ["the process was stopped for 2.1 s"]);
        assert_eq!(found(9, 0), [""; 0]);
    }

    #[test]
    fn load_before_and_during_disturbs() {
        let busy = stretch(sample(0), sample(700), 0);
        let quiet = stretch(sample(700), sample(1700), 1000);
        let note = check_quiet(&busy, &quiet, LostTime::default(), LIMITS);
        assert_eq!(
            note.disturbances,
            ["other processes took 35.0 % of the processors before the launch (limit 10 %)"]
        );
        assert_eq!(check_quiet(&quiet, &quiet, LostTime::default(), LIMITS).disturbances, [""; 0]);
        let both = check_quiet(&busy, &busy, LostTime::default(), LIMITS).disturbances;
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn what_a_hypervisor_takes_is_not_blamed_on_processes() {
        let found = |busy_ms, stolen_ms| {
            let at = |busy_ms, stolen_ms| HostSample {
                stolen: Some(Duration::from_millis(stolen_ms)),
                ..sample(busy_ms)
            };
            let during = stretch(at(0, 0), at(busy_ms, stolen_ms), 0);
            let idle = stretch(at(0, 0), at(0, 0), 0);
            check_quiet(&idle, &during, LostTime::default(), LIMITS).disturbances
        };
        let of = |who: &str| [format!("{who} of the processors during the run (limit 10 %)")];
        assert_eq!(found(300, 300), of("the hypervisor took 15.0 %"));
        assert_eq!(found(300, 100), of("other processes took 10.0 % and the hypervisor 5.0 %"));
        assert_eq!(found(300, 0), of("other processes took 15.0 %"));
        assert_eq!(found(200, 200), [""; 0], "within the limit");
    }

    #[test]
    fn swap_throttling_and_a_foreign_gpu_process_disturb() {
        let mut end = sample(0);
        end.swapped_pages = Some(3);
        assert_eq!(during(end).len(), 0, "nothing to compare with");
        let counting = HostSample {
            swapped_pages: Some(10),
            thermal_throttles: Some(1),
            cgroup_throttles: Some(5),
            gpu_processes: Some(0),
            gpu_throttled: Some(false),
            ..sample(0)
        };
        let idle = stretch(counting, counting, 0);
        let after = HostSample {
            swapped_pages: Some(12),
            thermal_throttles: Some(2),
            cgroup_throttles: Some(9),
            gpu_processes: Some(1),
            gpu_throttled: Some(true),
            driver_silent: true,
            ..counting
        };
        let found = check_quiet(&idle, &stretch(counting, after, 0), LostTime::default(), LIMITS)
            .disturbances;
        assert_eq!(
            found,
            [
                "swapped: 2 pages",
                "processors were throttled for heat 1 time",
                "the CPU quota of the cgroup throttled it in 4 periods",
                "on the GPU after the run: 1 other process",
                "the GPU was throttled",
                "the NVIDIA driver did not answer",
            ]
        );
        assert_eq!(check_quiet(&idle, &idle, LostTime::default(), LIMITS).disturbances, [""; 0]);
    }

    #[test]
    fn the_texts_of_the_system_are_read() {
        let stat = "cpu  100 5 20 9000 50 3 2 7 0 0\ncpu0 50 2 10 4500 25 1 1 3 0 0\n\
                    cpu1 50 3 10 4500 25 2 1 4 0 0\nintr 5\n";
        assert_eq!((parse_busy_ticks(stat), parse_stolen_ticks(stat)), (Some(137), Some(7)));
        assert_eq!(parse_processors(stat), Some(2));
        assert_eq!(parse_busy_ticks("cpu  1 2 3\n"), None);
        assert_eq!(parse_processors("intr 5\n"), None);
    }
}
