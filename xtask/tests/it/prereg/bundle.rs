//! The S-bundle, whole: a training runner without a model, a guard over two metrics, an item that lands
//! only where the guard passes, and a transfer with fewer steps.

use std::fmt::Write as _;

use serde_json::{Value, json};
use testkit::{Cell, Script};

use super::Lab;
use super::script::Figures;

const DOCUMENT: &str = include_str!("s_bundle.toml");
const VARIABLES: [&str; 6] = ["P1", "P2", "P3A", "P3B", "P3C", "P4"];

/// What the bundle measures.
#[derive(Clone, Copy)]
struct Bundle {
    /// How much of a step it saves.
    gain: f64,
    /// How much more memory it takes in its window than the base over its lifetime.
    growth: f64,
}

/// The log of a launch with these variables set.
fn log(bundle: Bundle, set: &[&str], steps: u32) -> String {
    let is_whole = set.len() == VARIABLES.len();
    let pace = if is_whole { 2.251 * (1.0 - bundle.gain) } else { 2.251 };
    let windows: Vec<u32> = match steps {
        1 => vec![1],
        50 => (1..=50).collect(),
        _ => (1..=steps / 20).map(|window| window * 20).collect(),
    };
    let last = windows.len() - 1;
    let mut lines = String::new();
    for (at, step) in windows.iter().enumerate() {
        // The first 80 steps warm up; one window in five is slow.
        let slow = if at % 5 == 4 { 1.05 } else { 1.0 };
        let pace = if *step <= 80 { pace * 1.4 } else { pace * slow };
        let loss = 3.0 - 0.01 * f64::from(*step) + if at % 2 == 0 { 0.01 } else { -0.01 };
        let growth = if is_whole { bundle.growth } else { 0.0 };
        let window = 40.0 * (1.0 + growth);
        write!(
            lines,
            "{{\"step\": {step}, \"s_per_step\": {pace:.6}, \"loss\": {loss:.6}, \"grad_norm\": 1.5, \
             \"vram_alloc_peak_gib\": {:.4}",
            if is_whole { window + 1.5 } else { 40.0 }
        )
        .unwrap();
        if set.contains(&"P2") {
            write!(lines, ", \"vram_window_peak_gib\": {window:.4}").unwrap();
        }
        if at == last {
            write!(lines, ", \"machine_s\": {}", f64::from(steps) * 2.2 + 60.0).unwrap();
        }
        lines.push_str("}\n");
    }
    lines
}

fn script(bundle: Bundle) -> Script {
    let mut sets: Vec<Vec<&str>> = vec![Vec::new(), VARIABLES.to_vec()];
    sets.extend(VARIABLES.map(|one| vec![one]));
    let files = ["decode.npz", "embedding.bin", "gradients.bin"];
    let launches = sets.iter().flat_map(|set| [1, 50, 100, 320].map(|steps| (set, steps)));
    launches.fold(Script::new(), |script, (set, steps)| {
        let cell = VARIABLES
            .iter()
            .fold(Cell::new(), |cell, name| {
                cell.env(name, if set.contains(name) { "1" } else { "" })
            })
            .len(steps)
            .set("profile_lines", false)
            .set("files", toml::Table::from_iter(files.map(|it| (it.to_owned(), "same".into()))))
            .set("log", log(bundle, set, steps));
        script.cell(cell)
    })
}

/// A workspace in which the bundle is frozen.
fn frozen(bundle: Bundle) -> Lab {
    let lab = Lab::new(DOCUMENT, &Figures::default());
    lab.script(&script(bundle));
    lab.write("planted-mismatch.sh", "exit 134\n");
    let program = crate::XTASK;
    // No model and no prompt: the steps are all that a launch is told.
    lab.write(
        "bench-configs/runners/train.toml",
        format!(
            "result = \"log\"\ncommand = [{program:?}, \"scripted-runner\", \"--script\", \"script.toml\", \
             \"--model\", \"train\", \"--prompt-tokens\", \"{{max_tokens}}\"]\n"
        ),
    );
    lab.commit("x");
    assert_eq!(lab.prereg(&["check", "seed"]).exits_with(0).stdout.matches("error").count(), 0);
    lab.freeze();
    lab
}

fn run(bundle: Bundle, exit: i32) -> (Value, Lab) {
    let lab = frozen(bundle);
    lab.prereg(&["run", "seed"]).exits_with(exit);
    (lab.result(), lab)
}

#[test]
fn at_3_2_percent_the_bundle_lands_only_what_is_free() {
    let (result, lab) = run(Bundle { gain: 0.032, growth: 0.0 }, 0);
    assert_eq!(result["rule"], "below_bar");
    assert_eq!(result["landing"]["land"], json!(["P2", "P3b", "P4"]));
    assert_eq!(result["landing"]["park"], json!(["P1", "P3a", "P3c"]));
    let report = lab.report();
    assert!(report.contains("fired: land only P2, P3b (if guard(vram)), P4."), "{report}");
    assert!(report.contains("- P3b (if guard(vram)): guard(vram): yes."), "{report}");
    assert!(report.contains("| primary (primary) | (A - C) / A over `s_per_step` | +3.20 % |"));
    let of_metrics = "(C - value(vram_lifetime, A)) / value(vram_lifetime, A) over `vram_window`";
    assert!(report.contains(of_metrics), "{report}");
    // The slowest windows have a figure of their own, of the same readings.
    assert!(report.contains("### `s_per_step_p90` (s), p90"), "{report}");
    assert_eq!(result["rounds"][0]["figures"]["s_per_step_p90"]["A"]["value"], 2.36355);
}

#[test]
fn at_6_percent_the_whole_bundle_lands_and_transfers_with_fewer_steps() {
    let (result, lab) = run(Bundle { gain: 0.06, growth: 0.0 }, 0);
    assert_eq!(result["rule"], "land");
    assert_eq!(result["landing"]["land"], json!(["P1", "P2", "P3a", "P3b", "P3c", "P4"]));
    lab.prereg(&["report", "seed", "--check"]).exits_with(0);
    let before = lab.launches().len();
    let output = lab.prereg(&["transfer", "seed"]).exits_with(0);
    assert!(output.stdout.contains("| primary | +6.00 % | +6.00 % |"), "{}", output.stdout);
    assert_eq!(lab.launches()[before..], ["train 100", "train 100"]);
}

#[test]
fn an_item_that_lands_on_a_guard_stays_out_where_the_guard_fails() {
    let (result, _lab) = run(Bundle { gain: 0.06, growth: 0.03 }, 1);
    assert_eq!(result["rule"], "below_bar");
    assert_eq!(result["landing"]["land"], json!(["P2", "P4"]));
    assert_eq!(result["landing"]["told"], json!(["P3b (if guard(vram)): guard(vram): no"]));
    let guard = &result["rounds"][0]["guards"][0];
    assert_eq!(guard["passes"], false);
    assert!((guard["value"].as_f64().unwrap() - 0.03).abs() < 1e-9, "{guard}");
}

#[test]
fn a_runner_without_a_model_serves_ladders_alone_and_others_need_one() {
    let lab = frozen(Bundle { gain: 0.0, growth: 0.0 });
    let definition = "runner = \"train\"\nmodels = [\"model.toml\"]\nlengths = [8]\n";
    lab.write("sweep.toml", definition);
    let args = ["sweep", "--config", "sweep.toml"];
    let output = lab.workspace.command(&args).run();
    assert_eq!(output.code, Some(2), "{output}");
    let said = "runner `train` measures no cell: its `result` is its log";
    assert!(output.stderr.contains(said), "{output}");
    lab.edit(super::DOCUMENT, "runner = \"train\"", "runner = \"scripted\"");
    let output = lab.prereg(&["check", "seed"]).exits_with(2);
    assert!(
        output.stderr.contains("names no `model`, which only a runner with"),
        "{}",
        output.stderr
    );
}
