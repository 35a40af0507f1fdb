//! Changes a fabric while programs run on it:
//! `cargo run -p mesh-soft-verbs --example cable -- FILE cut|restore A B | gid A INDEX|none | rate A BITS | latency A NS | counters A |
//! connected | sweep`.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;

use mesh_soft_verbs::control::Control;

const USAGE: &str = "usage: cable FILE cut A B | restore A B | gid A INDEX|none | rate A BITS_A_SECOND | latency A NANOSECONDS | counters A | \
                     connected | sweep";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    let [file, action @ ..] = words else { return Err(USAGE.into()) };
    let control = Control::open(Path::new(file))?;
    let port = |text: &str| text.parse::<Ipv4Addr>();
    match action {
        ["cut", a, b] => control.set_cable(port(a)?, port(b)?, false)?,
        ["restore", a, b] => control.set_cable(port(a)?, port(b)?, true)?,
        ["gid", a, "none"] => control.take_gid(port(a)?)?,
        ["gid", a, index] => control.set_gid_index(port(a)?, index.parse()?)?,
        ["rate", a, rate] => control.set_rate(port(a)?, rate.parse()?)?,
        ["latency", a, latency] => control.set_latency(port(a)?, latency.parse()?)?,
        ["counters", a] => return Ok(format!("{:?}", control.counters(port(a)?)?)),
        ["connected"] => {
            let told: Vec<String> = control.connected().iter().map(|pair| format!("{pair:?}")).collect();
            return Ok(told.join("\n"));
        }
        ["sweep"] => return Ok(format!("{} objects of dead processes freed", control.sweep())),
        _ => return Err(USAGE.into()),
    }
    Ok("done".to_owned())
}
