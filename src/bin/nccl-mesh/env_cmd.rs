//! `nccl-mesh env`: the variables to set, and those set that contradict. Reads the environment and NCCL's own configuration
//! files, changes nothing. Runs on the command's main thread.

use crate::routes::{emit, fail};
use mesh_routing::render::Table;
use nccl_net_mesh::settings;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `nccl-mesh env`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// List every setting with value, default, unit and origin instead
    #[arg(long)]
    all: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// A variable and where it was set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set {
    value: String,
    origin: String,
}

/// Variables of NCCL, by name.
type Variables = BTreeMap<String, Set>;

/// Runs the command; fails if anything that is set contradicts.
pub(crate) fn run(args: &Args) -> ExitCode {
    let contradictions = contradictions(&variables());
    let warnings = settings::warnings();
    let text = match (args.all, args.json) {
        (true, json) => all_settings(json),
        (false, true) => exports().into_iter().fold(String::new(), |text, (name, value)| {
            text + &json!({ "name": name, "value": value }).to_string() + "\n"
        }),
        (false, false) => exports()
            .into_iter()
            .fold(String::new(), |text, (name, value)| text + &format!("export {name}={}\n", quoted(&value))),
    };
    // What is exported stays fit for `eval`: all else goes to standard error.
    let written = emit(&text);
    for warning in warnings {
        fail(&warning.to_string());
    }
    for contradiction in &contradictions {
        fail(contradiction);
    }
    if contradictions.is_empty() { written } else { ExitCode::FAILURE }
}

/// The variables that bring NCCL to use the plugin and nothing else. The third is for programs that make communicators anew after they
/// have destroyed all: NCCL 2.28 forgets the plugin with the last one.
fn exports() -> Vec<(&'static str, String)> {
    vec![
        ("NCCL_NET_PLUGIN", plugin_name()),
        ("NCCL_NET", "Mesh".to_owned()),
        ("NCCL_NET_PLUGIN_REF_COUNT", "1".to_owned()),
    ]
}

/// The short name if the loader finds the library by it, else the library's path.
fn plugin_name() -> String {
    const FILE: &str = "libnccl-net-mesh.so";
    let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let standard = ["/usr/lib", "/usr/local/lib", "/lib"].map(PathBuf::from);
    let found = std::env::split_paths(&searched).chain(standard).any(|folder| folder.join(FILE).is_file());
    if found {
        return "mesh".to_owned();
    }
    let folder = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let beside = folder.map(|folder| folder.join(FILE)).filter(|path| path.is_file());
    beside.map_or_else(|| "mesh".to_owned(), |path| path.display().to_string())
}

/// As a word of a shell.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%".contains(c);
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', r"'\''"))
    }
}

/// What NCCL will see: its configuration files, over which the environment wins.
fn variables() -> Variables {
    let mut all = Variables::new();
    let own = std::env::var_os("NCCL_CONF_FILE").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".nccl.conf"));
    for path in [Some(PathBuf::from("/etc/nccl.conf")), own.or(home)].into_iter().flatten() {
        // No file is the common case; one that cannot be read is not read by NCCL either.
        if let Ok(text) = std::fs::read_to_string(&path) {
            all.extend(file_variables(&text, &path.display().to_string()));
        }
    }
    for (name, value) in std::env::vars_os() {
        let (name, value) = (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned());
        if name.starts_with("NCCL_") && !value.is_empty() {
            all.insert(name, Set { value, origin: "environment".to_owned() });
        }
    }
    all
}

/// Lines `NAME=VALUE`; others and comments do not count, as with NCCL.
fn file_variables(text: &str, origin: &str) -> Variables {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    let set = |value: &str| Set { value: value.trim().to_owned(), origin: origin.to_owned() };
    pairs.map(|(name, value)| (name.trim().to_owned(), set(value))).filter(|(_, set)| !set.value.is_empty()).collect()
}

/// One line each, with the remedy.
fn contradictions(variables: &Variables) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, Set { value, origin }) in variables {
        let Some(reason) = contradiction(name, value) else { continue };
        lines.push(format!("mesh[E32] {name}={value} ({origin}): {reason}"));
    }
    lines
}

fn contradiction(name: &str, value: &str) -> Option<&'static str> {
    let lower = value.to_ascii_lowercase();
    match name {
        "NCCL_NET" if lower != "mesh" => Some("NCCL will use another network; set NCCL_NET=Mesh"),
        "NCCL_NET_PLUGIN" if !lower.split(',').any(|name| name.contains("mesh")) => {
            Some("NCCL will not load this plugin; set NCCL_NET_PLUGIN=mesh")
        }
        "NCCL_ALGO" if !lower.contains(':') => Some(
            "an algorithm for all collectives keeps NCCL from the best one and fails where a collective lacks it; \
             all of them work here: unset it, or name the collective as in allreduce:tree",
        ),
        "NCCL_PAT_ENABLE" if lower == "0" => Some("PAT works here, relayed where hosts share no cable: unset it"),
        "NCCL_P2P_NET_DISABLE" if lower == "1" => Some("pairs work here, relayed where they share no cable: unset it"),
        _ if name.starts_with("NCCL_IB_") => {
            Some("a setting of NCCL's own InfiniBand transport, without effect here: unset it to avoid confusion")
        }
        _ => None,
    }
}

fn all_settings(json: bool) -> String {
    let listed = settings::get().listed();
    if json {
        return listed.iter().fold(String::new(), |text, row| {
            let setting = row.setting;
            let line = json!({
                "name": row.name, "value": row.value, "default": setting.default, "unit": setting.unit,
                "origin": row.origin.to_string(), "used_in": setting.used_in, "meaning": setting.doc,
            });
            text + &line.to_string() + "\n"
        });
    }
    let mut table = Table::new(&["name", "value", "default", "unit", "origin", "meaning"]);
    for row in &listed {
        let or_unset = |text: &str| if text.is_empty() { "unset".to_owned() } else { text.to_owned() };
        table.row([
            row.name.clone(),
            or_unset(&row.value),
            or_unset(row.setting.default),
            row.setting.unit.to_owned(),
            row.origin.to_string(),
            row.setting.doc.to_owned(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(pairs: &[(&str, &str)]) -> Variables {
        let pair = |(name, value): &(&str, &str)| {
            ((*name).to_owned(), Set { value: (*value).to_owned(), origin: "environment".to_owned() })
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_contradicts_is_named_with_its_remedy() {
        let variables = set(&[
            ("NCCL_NET", "IB"),
            ("NCCL_NET_PLUGIN", "none"),
            ("NCCL_ALGO", "Ring"),
            ("NCCL_IB_GID_INDEX", "3"),
            ("NCCL_PAT_ENABLE", "0"),
        ]);
        let lines = contradictions(&variables);
        assert_eq!(lines.len(), variables.len());
        assert!(lines.iter().all(|line| line.starts_with("mesh[E32] NCCL_") && line.contains("(environment)")));
        assert!(lines.iter().any(|line| line.contains("NCCL_NET=IB") && line.contains("NCCL_NET=Mesh")));
    }

    #[test]
    fn what_agrees_is_not() {
        let variables = set(&[
            ("NCCL_NET", "mesh"),
            ("NCCL_NET_PLUGIN", "/opt/libnccl-net-mesh.so"),
            ("NCCL_ALGO", "allreduce:tree;allgather:pat"),
            ("NCCL_DEBUG", "INFO"),
            ("NCCL_PAT_ENABLE", "2"),
        ]);
        assert_eq!(contradictions(&variables), [""; 0]);
    }

    #[test]
    fn nccl_files_are_read_line_by_line() {
        let variables =
            file_variables("# comment\nNCCL_NET=IB\n NCCL_ALGO = Ring \nNCCL_X=\nnonsense\n", "/etc/nccl.conf");
        assert_eq!(variables.len(), 2);
        assert_eq!(variables["NCCL_ALGO"].value, "Ring");
        assert!(contradictions(&variables).iter().all(|line| line.contains("(/etc/nccl.conf)")));
    }

    #[test]
    fn words_are_fit_for_a_shell() {
        assert_eq!(quoted("/opt/lib/libnccl-net-mesh.so"), "/opt/lib/libnccl-net-mesh.so");
        assert_eq!(quoted("/my lib/it's"), r"'/my lib/it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
