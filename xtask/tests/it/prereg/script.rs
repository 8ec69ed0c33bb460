//! The script of a training run with the figures of a test.

use std::fmt::Write as _;

use testkit::{Cell, Script};

/// What a ladder of the seed's shape measures.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    /// Seconds per step of the base.
    pub(super) a: f64,
    /// With P1 alone.
    pub(super) b: f64,
    /// With all four items.
    pub(super) c: f64,
    /// With all but P1.
    pub(super) c_without_p1: f64,
    /// How far P1 moves the loss of one step.
    pub(super) p1_loss_difference: f64,
    /// How much more memory the bundle takes, as a fraction.
    pub(super) bundle_memory_growth: f64,
    /// Whether the project's own checks pass.
    pub(super) checks_green: bool,
    /// Whether every item fails one of its oracles.
    pub(super) every_oracle_fails: bool,
    /// What goes wrong.
    pub(super) fault: Fault,
    /// What a launch costs.
    pub(super) machine_s: f64,
    /// How long a launch really takes.
    pub(super) pause_ms: u32,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The base writes no log.
    BaseIsSilent,
    /// The rung with all four items crashes.
    BundleCrashes,
    /// The rung with P1 alone runs out of memory.
    OneItemCrashes,
    /// P1's curve has a NaN at step 37.
    NanInCurve,
    /// The rung with all four items has a NaN at step 37.
    NanInBundle,
}

impl Default for Figures {
    fn default() -> Figures {
        Figures {
            a: 2.251,
            b: 2.495,
            c: 2.415,
            c_without_p1: 2.415,
            p1_loss_difference: 8.7e-3,
            bundle_memory_growth: 0.0,
            checks_green: true,
            every_oracle_fails: false,
            fault: Fault::None,
            machine_s: 720.0,
            pause_ms: 0,
        }
    }
}

const ITEMS: [&str; 4] = ["P1", "P2", "P3", "P4"];

/// The script that plays these figures.
pub(super) fn render_script(figures: &Figures) -> Script {
    let sets: [&[&str]; 7] = [&[], &["P1"], &["P2"], &["P3"], &["P4"], &["P2", "P3", "P4"], &ITEMS];
    let launches = sets.iter().flat_map(|items| [1, 50, 1100].map(|len| (*items, len)));
    launches.fold(Script::new(), |script, (items, len)| script.cell(cell(figures, items, len)))
}

fn cell(figures: &Figures, items: &[&str], len: u32) -> Cell {
    let has = |item: &str| items.contains(&item);
    let fault = match figures.fault {
        Fault::BundleCrashes if len == 1100 && items.len() == 4 => {
            Some("CUDA error: an illegal memory access was encountered\n")
        }
        Fault::OneItemCrashes if len == 1100 && items == ["P1"] => {
            Some("RuntimeError: CUDA out of memory\n")
        }
        _ => None,
    };
    let bytes = |item: &str| match figures.every_oracle_fails && has(item) {
        true => "other bytes",
        false => "bytes",
    };
    let files = [("decode.npz", bytes("P1")), ("grads.bin", bytes("P4"))];
    let cell = ITEMS
        .iter()
        .fold(Cell::new(), |cell, item| cell.env(item, if has(item) { "1" } else { "" }))
        .len(len)
        .set("profile_lines", false)
        .set("sleep_ms", figures.pause_ms)
        .set("files", toml::Table::from_iter(files.map(|(k, v)| (k.to_owned(), v.into()))));
    match fault {
        _ if figures.fault == Fault::BaseIsSilent && items.is_empty() => cell,
        Some(words) => cell.exit(1).stderr(words),
        None => cell.set("log", log(figures, items, len)),
    }
}

fn log(figures: &Figures, items: &[&str], len: u32) -> String {
    let has = |item: &str| items.contains(&item);
    let pace = match (items.len(), has("P1")) {
        (0, _) => figures.a,
        (4, _) => figures.c,
        (1, true) => figures.b,
        (3, false) => figures.c_without_p1,
        _ => figures.a,
    };
    // Loss curves are logged step by step, the ladder's figures every 20 steps.
    let steps: Vec<u64> = match len {
        1 => vec![1],
        50 => (1..=50).collect(),
        _ => (1..=16).map(|window| window * 20).chain([37]).collect(),
    };
    let last = steps.len() - 1;
    let mut lines = String::new();
    let mut lifetime: f64 = 0.0;
    for (at, step) in steps.iter().enumerate() {
        let wobble = if at % 2 == 0 { 0.002 } else { -0.002 };
        // The first 80 steps warm up, and are slower.
        let warm = if *step <= 80 { 1.4 } else { 1.0 };
        let seconds = if *step == 37 && len == 1100 { pace } else { (pace + wobble) * warm };
        let mut loss = 3.0 - 0.01 * *step as f64 + 5.0 * wobble;
        if has("P1") && items.len() == 1 && len == 1 {
            loss += figures.p1_loss_difference;
        }
        if has("P3") && items.len() == 1 && figures.every_oracle_fails {
            loss += 1.0;
        }
        let nan = *step == 37
            && match figures.fault {
                Fault::NanInCurve => len == 50 && items == ["P1"],
                Fault::NanInBundle => len == 1100 && items.len() == 4,
                _ => false,
            };
        let loss = if nan { "NaN".to_owned() } else { format!("{loss:.6}") };
        let growth = if items.len() > 1 { figures.bundle_memory_growth } else { 0.0 };
        let warm_up = if *step <= 40 { 2.0 } else { 0.0 };
        let window = 40.0 * (1.0 + growth) + warm_up;
        lifetime = lifetime.max(window);
        let claimed = if figures.every_oracle_fails && items == ["P2"] { 1.0 } else { lifetime };
        write!(
            lines,
            "{{\"step\": {step}, \"s_per_step\": {seconds:.6}, \"loss\": {loss}, \"grad_norm\": 1.5, \
             \"vram_window_peak_gib\": {window:.4}, \"vram_alloc_peak_gib\": {claimed:.4}"
        )
        .unwrap();
        if at == last {
            write!(lines, ", \"machine_s\": {}", figures.machine_s).unwrap();
        }
        lines.push_str("}\n");
    }
    lines
}
