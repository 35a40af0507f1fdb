//! How many machine instructions the code itself takes, operation by operation, without I/O. Unlike times, counts are the same on a busy
//! machine, so small changes show.
//!
//! `cargo bench --bench instructions [-- --json | --check | --bless]` needs valgrind, and takes under a minute. `--check` compares with
//! `baseline.txt` and fails where an operation takes more than 10 % more; `--bless` writes that file anew. Counts depend on the compiler and on
//! the processor's kind, and say nothing of caches. Without `--bench` (as in `cargo test --benches`) every operation runs a few
//! times, and nothing is counted. Everything runs on the main thread.
//!
//! ```text
//!   operations  what is counted         callgrind  how
//!   turns       a trunk with 64 streams baseline   the file, the comparison
//! ```

mod baseline;
mod callgrind;
#[path = "../common/mod.rs"]
mod common;
mod operations;
mod turns;

use std::path::Path;
use std::process::Command;

use baseline::Counts;
use common::Outcome;

/// Rounds before those that are counted: queues and buffers have grown then.
const WARM_UP: u64 = 100;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [run, operation, rounds] = &arguments[..]
        && run == "--run"
    {
        return run_one(operation.parse()?, rounds.parse()?);
    }
    let wants = |name: &str| arguments.iter().any(|argument| argument == name);
    if !wants("--bench") {
        let all = operations::all()?.len();
        (0..all).try_for_each(|operation| run_one(operation, 1))?;
        println!("{all} operations run; nothing is counted without --bench");
        return Ok(());
    }
    if !callgrind::is_there() {
        println!("nothing is counted: there is no valgrind (Debian: apt-get install valgrind)");
        return if wants("--check") { Err("nothing to compare".into()) } else { Ok(()) };
    }
    let now = count(wants("--json"))?;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/instructions/baseline.txt");
    if wants("--bless") {
        std::fs::write(&file, now.text())?;
    }
    if wants("--check") {
        check(&Counts::parse(&std::fs::read_to_string(&file)?).ok_or("the baseline cannot be read")?, &now)?;
    }
    Ok(())
}

/// What valgrind runs.
fn run_one(operation: usize, rounds: u64) -> Outcome<()> {
    let mut all = operations::all()?;
    let round = &mut all.get_mut(operation).ok_or("no such operation")?.round;
    (0..WARM_UP + rounds).try_for_each(|_| round())
}

/// Counts and prints all.
fn count(json: bool) -> Outcome<Counts> {
    let mut rows = Vec::new();
    if !json {
        println!("instructions  operation");
    }
    for (n, operation) in operations::all()?.iter().enumerate() {
        let count = callgrind::instructions(n)? / f64::from(operation.times);
        if json {
            // Names hold nothing that JSON would escape; a test insists.
            println!("{{\"operation\":\"{}\",\"instructions\":{count:.1}}}", operation.name);
        } else {
            println!("{count:>12.1}  {}", operation.name);
        }
        rows.push((operation.name.to_owned(), count));
    }
    Ok(Counts { made_by: made_by(), rows })
}

fn made_by() -> String {
    let version = Command::new("rustc").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    format!("{}, {}", std::env::consts::ARCH, String::from_utf8_lossy(&version).trim())
}

fn check(before: &Counts, now: &Counts) -> Outcome<()> {
    if before.made_by != now.made_by {
        eprintln!("the baseline is of {}, this is {}: differences may be the compiler's", before.made_by, now.made_by);
    }
    let complaints = before.complaints(now);
    complaints.iter().for_each(|line| eprintln!("{line}"));
    if complaints.is_empty() { Ok(()) } else { Err("not within 10 % of the baseline".into()) }
}
