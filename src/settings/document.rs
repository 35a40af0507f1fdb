//! `docs/settings.md`, made from the table.
//!
//! For: the test that keeps the file fresh. Must not know: where the file lies. Threads: pure.

use std::fmt::Write;

use super::table::table;
use super::value::Kind;

const HEAD: &str = "\
# Settings

Environment variables, or the same names in lower case without `NCCL_MESH_` in the TOML file that `NCCL_MESH_CONF` names. The
environment wins. Empty means unset. A value that does not parse, or a name that does not exist, is a warning at the first
start of NCCL, with the nearest name. `nccl-mesh env --all` lists the values in force and where they come from. `NCCL_IB_…`
has no effect on this network.

This page is made from the table in `src/settings/table.rs`.

";

/// The text of `docs/settings.md`.
pub fn document() -> String {
    let mut out = String::from(HEAD);
    out.push_str("| name | default | takes | used in | meaning |\n|---|---|---|---|---|\n");
    for setting in table().iter().filter(|setting| !matches!(setting.kind, Kind::Idle(_))) {
        let default = match (setting.default, setting.unit) {
            ("", _) => "unset".to_owned(),
            (value, "") => value.to_owned(),
            (value, unit) if value.starts_with(|c: char| c.is_ascii_digit()) => format!("{value} {unit}"),
            (value, _) => value.to_owned(),
        };
        let unit = if setting.unit.is_empty() { String::new() } else { format!(" ({})", setting.unit) };
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "| `{}` | {default} | {}{unit} | {} | {} |",
            setting.full_name(),
            setting.kind.expected(),
            setting.used_in,
            setting.doc
        );
    }
    out.push_str("\nAccepted, without effect (said once):\n\n| name | why |\n|---|---|\n");
    for setting in table() {
        if let Kind::Idle(reason) = setting.kind {
            let _ = writeln!(out, "| `{}` | {reason} |", setting.full_name());
        }
    }
    out
}
