//! What the tests of checks share.

use formats::cell_report::{
    AllocCounters, AllocatorReport, AllocatorSettings, CellReport, MemoryWindow,
};

use super::plan::{Leg, Setting};
use super::seen::LegNumbers;

/// A leg of the model `m`.
pub(super) fn leg(name: &str, setting: Setting) -> Leg {
    Leg {
        name: name.to_owned(),
        model: "m".to_owned(),
        setting,
        prompt_tokens: 8,
        max_tokens: 5,
        leave_free_mib: None,
    }
}

/// A sound run: with the cache on one driver call a step, killed a hundred.
pub(super) fn numbers(setting: Setting) -> LegNumbers {
    let calls = if setting == Setting::Killed { 100 } else { 1 };
    let step = AllocCounters {
        requests: 100,
        hits: 100 - calls,
        misses: calls,
        driver_allocs: calls,
        driver_frees: if setting == Setting::Killed { 100 } else { 0 },
        host_ns: Some(calls * 1000),
        ..AllocCounters::default()
    };
    let mut report = CellReport::default();
    report.device.backend = Some("cuda".to_owned());
    report.device.name = Some("Card".to_owned());
    report.timing.decode_step_ms = vec![2.0; 4];
    report.timing.decode_ms = Some(8.0);
    report.output.token_ids = vec![7, 8, 9, 10, 11];
    report.settings.allocator = Some(AllocatorSettings {
        state: if setting == Setting::Killed { "killed" } else { "policy" }.to_owned(),
        driver: Some("cuda".to_owned()),
        cap_bytes: match setting {
            Setting::Unbounded => None,
            Setting::CapMib(mib) => Some(mib << 20),
            _ => Some(1 << 30),
        },
        ..AllocatorSettings::default()
    });
    report.memory.idle_peak_bytes = Some(1 << 20);
    report.memory.windows = (0..8)
        .map(|index| MemoryWindow {
            first_step: index * 64,
            steps: 64,
            held_end_bytes: Some(if setting == Setting::Unbounded { index << 28 } else { 9 << 20 }),
            ..MemoryWindow::default()
        })
        .collect();
    let totals = AllocCounters {
        requests: 10,
        hits: 9,
        misses: 1,
        must_be_zero: formats::cell_report::MUST_BE_ZERO
            .iter()
            .map(|&name| (name.to_owned(), 0))
            .collect(),
        ..AllocCounters::default()
    };
    report.allocator = Some(AllocatorReport { totals, decode_steps: vec![step; 4] });
    LegNumbers { report, json: serde_json::Value::Null, wall_s: 3.0 }
}
