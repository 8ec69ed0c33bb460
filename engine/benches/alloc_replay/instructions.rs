//! Instruction counts: this program runs itself under callgrind, one product and pattern at a time.

use std::path::Path;
use std::process::Command;

use crate::peer::PeerFactory;
use crate::workload::Workload;

/// Steps that are replayed: a count does not vary, and callgrind is slow.
const STEPS: &str = "30";

/// Prints a table with the instructions that each product needs for a pair.
pub(crate) fn count(workload: &dyn Workload, peers: &[PeerFactory]) {
    println!("\n### {}: instructions a pair, first {STEPS} steps\n", workload.name());
    println!("| allocator | instructions a pair |\n| --- | --- |");
    for peer in peers {
        match count_one(peer.name, workload.name()) {
            Ok(instructions) => println!("| {} | {instructions:.1} |", peer.name),
            Err(error) => println!("| {} | – ({error}) |", peer.name),
        }
    }
}

fn count_one(peer: &str, workload: &str) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(["--collect-atstart=no", "--toggle-collect=*run_events*"])
        .arg(Path::new(&program))
        .args(["--steps", STEPS, "--single", peer, workload])
        .output()
        .map_err(|error| error.to_string())?;
    let (out, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let pairs = out.lines().find_map(|line| line.strip_suffix(" pairs")?.parse::<f64>().ok());
    let collected =
        log.lines().find_map(|line| line.split("Collected :").nth(1)?.trim().parse::<f64>().ok());
    match (pairs, collected) {
        (Some(pairs), Some(collected)) => Ok(collected / pairs),
        _ => Err(format!("callgrind: {}", output.status)),
    }
}
