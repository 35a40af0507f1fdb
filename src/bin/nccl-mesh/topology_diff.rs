//! `nccl-mesh topology diff A B`: how a found topology differs from the declared one. Knows nothing of how either was
//! made. Runs on the command's main thread.

use crate::routes::{emit, fail};
use crate::shape_args::load_file;
use mesh_routing::{Difference, PortAt, Topology, compare};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `nccl-mesh topology diff`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Topology file that says what should be; `-` reads standard input
    declared: PathBuf,
    /// Topology file that says what is; `-` reads standard input
    found: PathBuf,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// Runs the command; fails if there are differences.
pub(crate) fn run(args: &Args) -> ExitCode {
    if [&args.declared, &args.found].iter().all(|path| *path == Path::new("-")) {
        return fail("mesh[E78] -: standard input can be read once; name a file for the other topology");
    }
    // Both are read, so that what is wrong with either is told.
    match (load_file(&args.declared), load_file(&args.found)) {
        (Ok(declared), Ok(found)) => report(args, &declared, &found),
        (declared, found) => {
            let errors: Vec<_> = [declared.err(), found.err()].iter().flatten().map(ToString::to_string).collect();
            fail(&errors.join("\n"))
        }
    }
}

fn report(args: &Args, declared: &Topology, found: &Topology) -> ExitCode {
    let differences = compare(declared, found);
    let text = if args.json { objects(&differences) } else { lines(&differences) };
    let written = emit(&text);
    if differences.is_empty() { written } else { ExitCode::FAILURE }
}

fn lines(differences: &[Difference]) -> String {
    let line = |difference: &Difference| format!("{}: {difference}\n", difference.severity());
    let mut text: String = differences.iter().map(line).collect();
    text += &match differences.len() {
        0 => "no differences\n".to_owned(),
        1 => "1 difference\n".to_owned(),
        more => format!("{more} differences\n"),
    };
    text
}

fn objects(differences: &[Difference]) -> String {
    differences.iter().map(|difference| format!("{}\n", object(difference))).collect()
}

/// The kind, what it is about and the two values, where it has any.
fn object(difference: &Difference) -> Value {
    let mut row = Map::new();
    row.insert("kind".into(), difference.kind().into());
    row.insert("severity".into(), difference.severity().name().into());
    row.insert("message".into(), difference.to_string().into());
    let facts = match difference {
        Difference::MissingNode { node, id } | Difference::ExtraNode { node, id } => json!({"node": node, "id": id}),
        Difference::RenamedNode { id, declared, found } => {
            json!({"node": declared, "id": id, "declared": declared, "found": found})
        }
        Difference::RelayDiffers { node, declared } => {
            json!({"node": node, "declared": declared, "found": !declared})
        }
        Difference::MissingPort { port, prefix } | Difference::PortNotDeclared { port, prefix } => {
            with_port(port, json!({"prefix": prefix}))
        }
        Difference::AddressOnAnotherNode { declared, found } => {
            with_port(declared, json!({"declared": end(declared), "found": end(found)}))
        }
        Difference::WrongPrefix { port, declared, found } => {
            with_port(port, json!({"declared": declared, "found": found}))
        }
        Difference::LowerSpeed { port, declared_mbps, found_mbps } => {
            with_port(port, json!({"declared_mbps": declared_mbps, "found_mbps": found_mbps}))
        }
        Difference::SmallerMtu { port, declared, found } => {
            with_port(port, json!({"declared_bytes": declared, "found_bytes": found}))
        }
        Difference::MissingCable { ends } => json!({"declared": ends.each_ref().map(end)}),
        Difference::ExtraCable { ends } => json!({"found": ends.each_ref().map(end)}),
        Difference::CableInAnotherPort { declared, found } => {
            json!({"declared": declared.each_ref().map(end), "found": found.each_ref().map(end)})
        }
        Difference::OffSwitch { port, subnet } => with_port(port, json!({"subnet": subnet.to_string()})),
        _ => json!({}),
    };
    if let Value::Object(facts) = facts {
        row.extend(facts);
    }
    Value::Object(row)
}

fn end(port: &PortAt) -> Value {
    json!({"node": port.node, "device": port.device, "address": port.address.to_string()})
}

fn with_port(port: &PortAt, facts: Value) -> Value {
    let mut all = end(port);
    if let (Value::Object(all), Value::Object(facts)) = (&mut all, facts) {
        all.extend(facts);
    }
    all
}
