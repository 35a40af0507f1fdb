//! `cargo run -p mesh-soft-verbs --example build -- FOLDER`: makes the folder with `libibverbs.so.1` and `libibverbs.so`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: build FOLDER");
        return ExitCode::from(2);
    };
    match mesh_soft_verbs::artefact::build(Path::new(&folder)) {
        Ok(library) => {
            println!("{}", library.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
