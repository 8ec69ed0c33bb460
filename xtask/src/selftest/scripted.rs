//! What the scripted runner is told to do: a stand-in for a decode engine that plays every ending.
//!
//! It owns the script's format and turns one launch into a plan and a cell report, which `run` then
//! plays. Scenarios and tests use it; a sweep never does by itself.

use std::collections::BTreeMap;

use formats::cell_report::{CellReport, EnvVar, MemoryWindow};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

pub(crate) mod args;
mod run;

pub(crate) use run::run;

/// A script: the first cell that matches a launch says what happens; where none does, the launch
/// is a plain success.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// A file that gains one line, `MODEL LENGTH`, with every launch.
    pub(crate) launch_log: Option<String>,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) noise_by: NoiseBy,
    #[serde(default, rename = "cell")]
    pub(crate) cells: Vec<ScriptedCell>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NoiseBy {
    #[default]
    Launch,
    /// The name of the file that its report goes to: the same launch has the same noise even where
    /// another one was killed before it.
    ReportName,
}

/// Which launches it is about, and what they do. Everything is done in the order of the fields.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScriptedCell {
    /// Only launches of this model.
    pub(crate) model: Option<String>,
    /// Only launches at this length.
    pub(crate) len: Option<u64>,
    /// Only launches with these variables set to these values; an empty value stands for unset.
    pub(crate) env: BTreeMap<String, String>,
    /// Only the launch with this number, counted from 0 in the launch log.
    pub(crate) launch: Option<u64>,
    /// Only launches whose report goes to a file with this in its name.
    pub(crate) report_file: Option<String>,

    pub(crate) ignore_sigterm: bool,
    /// Processes that are started and would outlive the runner by a minute.
    pub(crate) grandchildren: u64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    /// Bytes of filler for stdout.
    pub(crate) flood_bytes: u64,
    /// Memory that is touched and held, in MiB.
    pub(crate) touch_mib: u64,
    pub(crate) sleep_ms: u64,
    pub(crate) report: ReportKind,
    /// The four profile lines on stdout, unless this is `false`.
    pub(crate) profile_lines: Option<bool>,
    pub(crate) exit: i32,
    /// A signal that the runner sends itself instead of exiting.
    pub(crate) signal: Option<i32>,

    /// 5 where nothing is said.
    pub(crate) load_ms: Option<f64>,
    /// 20 where nothing is said.
    pub(crate) prefill_ms: Option<f64>,
    /// 10 where nothing is said.
    pub(crate) step_ms: Option<f64>,
    /// Noise over launches: standard deviation of all times in percent.
    pub(crate) noise_pct: f64,
    /// Each launch is slower than the one before by this many percent of the first.
    pub(crate) drift_pct: f64,
    /// Held memory grows by this with every decode step.
    pub(crate) leak_bytes_per_step: u64,
    /// Variables that the report names as consulted, with what the environment has.
    pub(crate) consults: Vec<String>,
    /// Fields that replace those of the report, as a table of the same shape.
    pub(crate) overlay: toml::Table,
    /// JSON lines for the file that `ARC_PREREG_LOG` names, as a ladder's runner writes them.
    pub(crate) log: String,
    /// Files with their text, for the folder that `ARC_PREREG_OUT` names.
    pub(crate) files: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReportKind {
    /// Written as it should be.
    #[default]
    Whole,
    None,
    /// The first half of it alone.
    Torn,
    /// Valid JSON without any number.
    Empty,
    /// A whole one, for another prompt length.
    OfAnotherCell,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptedLaunch {
    pub(crate) model: String,
    pub(crate) len: u64,
    pub(crate) max_tokens: u64,
    /// How many launches there were before, by the launch log.
    pub(crate) index: u64,
    pub(crate) report_name: String,
    pub(crate) env: BTreeMap<String, String>,
}

impl Script {
    pub(crate) fn plan_launch(&self, launch: &ScriptedLaunch) -> ScriptedCell {
        let matches = |cell: &&ScriptedCell| {
            cell.model.as_ref().is_none_or(|model| *model == launch.model)
                && cell.len.is_none_or(|len| len == launch.len)
                && cell.launch.is_none_or(|index| index == launch.index)
                && cell.report_file.as_ref().is_none_or(|part| launch.report_name.contains(part))
                && cell.env.iter().all(|(name, value)| {
                    launch.env.get(name).map(String::as_str).unwrap_or_default() == value
                })
        };
        self.cells.iter().find(matches).cloned().unwrap_or_default()
    }

    /// The times of this launch relative to those of the script: noise and drift.
    fn pace(&self, cell: &ScriptedCell, launch: &ScriptedLaunch) -> f64 {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(match self.noise_by {
            NoiseBy::Launch => launch.index,
            NoiseBy::ReportName => hash_name(&launch.report_name),
        });
        // The sum of twelve uniform numbers less six is close enough to a normal deviate.
        let deviate = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
        let noise = (cell.noise_pct / 100.0 * deviate).exp();
        noise * (1.0 + cell.drift_pct / 100.0 * launch.index as f64)
    }

    pub(crate) fn plan_report(
        &self,
        cell: &ScriptedCell,
        launch: &ScriptedLaunch,
    ) -> Result<serde_json::Value, serde_json::Error> {
        let pace = self.pace(cell, launch);
        let steps = launch.max_tokens.saturating_sub(1).max(1);
        let len = match cell.report {
            ReportKind::OfAnotherCell => launch.len + 1,
            _ => launch.len,
        };
        let mut report =
            CellReport { schema: formats::cell_report::SCHEMA, ..CellReport::default() };
        report.engine.name = Some("scripted-runner".to_owned());
        report.engine.version = Some("0.0.1".to_owned());
        report.engine.build_type = Some("release".to_owned());
        report.model.name = Some(launch.model.clone());
        report.device.backend = Some("cpu".to_owned());
        report.environment = cell
            .consults
            .iter()
            .map(|name| EnvVar {
                name: name.clone(),
                raw: launch.env.get(name).cloned(),
                parsed: Some(launch.env.get(name).cloned().unwrap_or("default".to_owned())),
            })
            .collect();
        report.prompt.target_tokens = Some(len);
        report.prompt.tokens = Some(len);
        report.prompt.token_hash = Some(format!("{len:064x}"));
        let step_ms = cell.step_ms.unwrap_or(10.0) * pace;
        report.timing.load_ms = Some(cell.load_ms.unwrap_or(5.0) * pace);
        report.timing.prefill_ms = Some(cell.prefill_ms.unwrap_or(20.0) * pace);
        report.timing.decode_step_ms = vec![step_ms; steps as usize];
        report.timing.decode_ms = Some(step_ms * steps as f64);
        report.output.tokens = Some(steps + 1);
        report.output.token_ids = (0..=steps as u32).collect();
        report.output.token_hash = Some(format!("{:064x}", steps + 1));
        let held = |step: u64| (64 << 20) + cell.leak_bytes_per_step * step;
        report.memory.windows = (0..steps)
            .map(|step| MemoryWindow {
                first_step: step,
                steps: 1,
                total_peak_bytes: Some(held(step + 1)),
                held_end_bytes: Some(held(step + 1)),
                ..MemoryWindow::default()
            })
            .collect();
        report.memory.total_peak_bytes = Some(held(steps));
        let mut value = serde_json::to_value(&report)?;
        overlay(&mut value, serde_json::to_value(&cell.overlay)?);
        Ok(value)
    }
}

/// FNV-1a: the same on every platform and version.
fn hash_name(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Replaces what the other value has, table by table.
fn overlay(value: &mut serde_json::Value, other: serde_json::Value) {
    use serde_json::Value::Object;
    match (value, other) {
        (Object(fields), Object(others)) => {
            for (name, other) in others {
                overlay(fields.entry(name).or_insert(serde_json::Value::Null), other);
            }
        }
        (value, other) => *value = other,
    }
}

/// The four lines that existing harnesses parse, of a report.
pub(crate) fn render_profile_lines(report: &serde_json::Value) -> String {
    let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64);
    let (Some(prompt), Some(prefill_ms), Some(generated), Some(decode_ms)) = (
        number("/prompt/tokens"),
        number("/timing/prefill_ms"),
        number("/output/tokens"),
        number("/timing/decode_ms"),
    ) else {
        return String::new();
    };
    format!(
        "Prompt tokens: {prompt}\nGenerated tokens: {generated}\nPrefill: {prefill_ms:.2} ms \
         ({:.2} tok/s)\nDecode: {decode_ms:.2} ms ({:.2} tok/s)\n",
        prompt / prefill_ms * 1e3,
        (generated - 1.0) / decode_ms * 1e3,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(model: &str, len: u64, index: u64) -> ScriptedLaunch {
        ScriptedLaunch {
            model: model.to_owned(),
            len,
            max_tokens: 9,
            index,
            report_name: format!("{index}.json"),
            env: BTreeMap::new(),
        }
    }

    #[test]
    fn the_first_cell_that_matches_decides() {
        let script: Script = toml::from_str(
            "[[cell]]\nmodel = \"a\"\nlen = 8\nexit = 3\n[[cell]]\nmodel = \"a\"\nexit = 4\n\
             [[cell]]\nenv = { K = \"1\" }\nexit = 5\n[[cell]]\nlaunch = 2\nexit = 6\n",
        )
        .unwrap();
        let exit = |launch: &ScriptedLaunch| script.plan_launch(launch).exit;
        assert_eq!(exit(&launch("a", 8, 0)), 3);
        assert_eq!(exit(&launch("a", 9, 0)), 4);
        assert_eq!(exit(&launch("b", 8, 0)), 0);
        assert_eq!(exit(&launch("b", 8, 2)), 6);
        let mut with_env = launch("b", 8, 2);
        with_env.env.insert("K".to_owned(), "1".to_owned());
        assert_eq!(exit(&with_env), 5);
    }

    #[test]
    fn noise_is_seeded_and_drift_is_exact() {
        let script = Script { seed: 7, ..Script::default() };
        let cell = ScriptedCell { noise_pct: 1.0, ..ScriptedCell::default() };
        let pace = |index| script.pace(&cell, &launch("a", 8, index));
        assert!((pace(3) - pace(3)).abs() < 1e-12);
        assert!((pace(3) - pace(4)).abs() > 1e-6);
        let by_name = Script { noise_by: NoiseBy::ReportName, ..script.clone() };
        let named = |name: &str, index| ScriptedLaunch {
            report_name: name.to_owned(),
            ..launch("a", 8, index)
        };
        let pace_of = |launch: &ScriptedLaunch| by_name.pace(&cell, launch);
        assert!((pace_of(&named("x", 3)) - pace_of(&named("x", 9))).abs() < 1e-12);
        assert!((pace_of(&named("x", 3)) - pace_of(&named("y", 3))).abs() > 1e-6);
        let cell = ScriptedCell { drift_pct: 1.0, ..ScriptedCell::default() };
        assert!((script.pace(&cell, &launch("a", 8, 5)) - 1.05).abs() < 1e-12);
    }

    #[test]
    fn the_overlay_replaces_single_fields() {
        let cell: ScriptedCell =
            toml::from_str("overlay = { output = { token_hash = \"ff\" } }").unwrap();
        let report = Script::default().plan_report(&cell, &launch("a", 8, 0)).unwrap();
        let report: CellReport = serde_json::from_value(report).unwrap();
        assert_eq!(report.output.token_hash.as_deref(), Some("ff"));
        assert_eq!((report.output.tokens, report.prompt.tokens), (Some(9), Some(8)));
    }
}
