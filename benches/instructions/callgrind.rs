//! Counts the instructions of a round: this very program under callgrind, with so many rounds and with twice as many. The difference,
//! divided, is a round; starting up is in both and cancels.
//!
//! Knows nothing of what a round does. Run by the main thread; waits for valgrind, some seconds for each operation.

use std::process::{Command, Stdio};

use crate::common::Outcome;

/// Rounds of the shorter of the two runs.
const ROUNDS: u64 = 500;

/// Whether there is a valgrind.
pub(crate) fn is_there() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Instructions that a round of an operation takes.
pub(crate) fn instructions(operation: usize) -> Outcome<f64> {
    let (once, twice) = (total(operation, ROUNDS)?, total(operation, 2 * ROUNDS)?);
    let rounds = twice.checked_sub(once).ok_or("twice the rounds took fewer instructions")?;
    Ok(rounds as f64 / ROUNDS as f64)
}

/// Instructions of a whole run.
fn total(operation: usize, rounds: u64) -> Outcome<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(std::env::current_exe()?);
    let output = command.arg("--run").args([operation.to_string(), rounds.to_string()]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let count = collected(&said).filter(|_| output.status.success());
    count.ok_or_else(|| format!("valgrind ended with {} and no count:\n{said}", output.status).into())
}

/// The count in what callgrind says at its end, as `==123== Collected : 456`.
pub(crate) fn collected(said: &str) -> Option<u64> {
    let count = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    count.trim().parse().ok()
}
