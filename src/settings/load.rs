//! Environment and file to settings and warnings.
//!
//! For: the process and its tests. Must not know: who reads the settings.
//! Threads: [`Settings::load`] is pure; `of_process` reads the environment and one file, once.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::table::{Setting, table};
use super::value::nearest;
use super::{PREFIX, RelayCores, Settings, Warning};

/// Texts in force that are not defaults, by short name.
pub(super) type Chosen = BTreeMap<&'static str, (String, Origin)>;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// The file of `NCCL_MESH_CONF`.
    File,
    /// The environment.
    Environment,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
        })
    }
}

/// A row of `nccl-mesh env --all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The table's entry.
    pub setting: &'static Setting,
    /// Full name in the environment.
    pub name: String,
    /// Value in force, as text.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self::blank();
        for setting in table() {
            if let Some(value) = setting.kind.parse(setting.default).filter(|_| !setting.default.is_empty()) {
                (setting.store)(&mut settings, value);
            }
        }
        settings
    }
}

impl Settings {
    /// Settings from the variables `env` and the text of a settings file; the environment wins. Variables without our
    /// prefix are looked at only for `NCCL_IB_…`, which is said to have no effect.
    pub fn load(env: impl Iterator<Item = (String, String)>, conf: Option<&str>) -> (Self, Vec<Warning>) {
        let mut load = Load { settings: Self::default(), warnings: Vec::new(), idle: Vec::new() };
        if let Some(text) = conf {
            load.file(text);
        }
        let mut foreign = Vec::new();
        // Sorted, so that the same environment always says the same.
        let env: BTreeMap<String, String> = env.filter(|(_, value)| !value.trim().is_empty()).collect();
        for (name, value) in env {
            if name.starts_with(PREFIX) {
                load.one(&name, &value, Origin::Environment);
            } else if name.starts_with("NCCL_IB_") {
                foreign.push(name);
            }
        }
        if !foreign.is_empty() {
            load.warnings.push(Warning::OtherTransport { names: foreign });
        }
        (load.settings, load.warnings)
    }

    /// Every setting with its value in force, in the table's order.
    pub fn listed(&self) -> Vec<Listed> {
        let row = |setting: &'static Setting| {
            let (value, origin) = match self.chosen.get(setting.name) {
                Some((value, origin)) => (value.clone(), *origin),
                None => (setting.default.to_owned(), Origin::Default),
            };
            Listed { setting, name: setting.full_name(), value, origin }
        };
        table().iter().map(row).collect()
    }

    /// Settings of this process's environment and the file it names.
    pub(super) fn of_process() -> (Self, Vec<Warning>) {
        let env: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .filter(|(name, _)| name.starts_with("NCCL_"))
            .collect();
        let conf = env.iter().find(|(name, value)| name == "NCCL_MESH_CONF" && !value.trim().is_empty());
        let text = conf.map(|(_, path)| (path.clone(), std::fs::read_to_string(PathBuf::from(path.trim()))));
        match text {
            None => Self::load(env.into_iter(), None),
            Some((path, Ok(text))) => {
                let (settings, mut warnings) = Self::load(env.into_iter(), Some(&text));
                for warning in &mut warnings {
                    if let Warning::File { path: named, .. } = warning {
                        named.clone_from(&path);
                    }
                }
                (settings, warnings)
            }
            Some((path, Err(error))) => {
                let (settings, mut warnings) = Self::load(env.into_iter(), None);
                warnings.insert(0, Warning::File { path, reason: error.to_string() });
                (settings, warnings)
            }
        }
    }

    /// Values that are never seen: the table's defaults replace them.
    fn blank() -> Self {
        use std::time::Duration;
        Self {
            conf: None,
            topology: None,
            node: None,
            ports: None,
            switches: None,
            discovery: true,
            relay: true,
            cluster: None,
            job: None,
            port: 0,
            gid_index: None,
            traffic_class: None,
            service_level: 0,
            link: String::new(),
            disable_rdma: false,
            speed_mbps: None,
            chunk: 0,
            stripe: 0,
            relay_memory: 0,
            relay_slots: None,
            trunk_slots: None,
            lanes: 0,
            relay_cores: RelayCores::Auto,
            spin: None,
            socket_buffer: None,
            connect_timeout: Duration::ZERO,
            accept_timeout: Duration::ZERO,
            step_timeout: Duration::ZERO,
            timeout: Duration::ZERO,
            fatal_on_timeout: false,
            fast_fail: false,
            health_check_interval: Duration::ZERO,
            drain: Duration::ZERO,
            debug: 0,
            metrics: false,
            metrics_interval: Duration::ZERO,
            stats_file: None,
            chosen: Chosen::new(),
        }
    }
}

struct Load {
    settings: Settings,
    warnings: Vec<Warning>,
    /// Names already said to have no effect.
    idle: Vec<&'static str>,
}

impl Load {
    fn file(&mut self, text: &str) {
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                let reason = error.message().replace('\n', " ");
                let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
                let reason = line.map_or_else(|| reason.clone(), |line| format!("line {line}: {reason}"));
                self.warnings.push(Warning::File { path: "NCCL_MESH_CONF".to_owned(), reason });
                return;
            }
        };
        for (key, value) in table {
            let value = match value {
                toml::Value::String(text) => text,
                toml::Value::Array(items) => items.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                other => other.to_string(),
            };
            if value.trim().is_empty() {
                continue;
            }
            self.one(&key, &value, Origin::File);
        }
    }

    /// One value under the name that it has at its origin.
    fn one(&mut self, name: &str, value: &str, origin: Origin) {
        let Some(setting) = table().iter().find(|setting| name_at(origin, setting).as_deref() == Some(name)) else {
            self.unknown(name, origin);
            return;
        };
        if let super::Kind::Idle(reason) = setting.kind
            && !self.idle.contains(&setting.name)
        {
            self.idle.push(setting.name);
            self.warnings.push(Warning::Idle { name: setting.full_name(), reason });
        }
        match setting.kind.parse(value) {
            Some(parsed) => {
                (setting.store)(&mut self.settings, parsed);
                self.settings.chosen.insert(setting.name, (value.trim().to_owned(), origin));
            }
            None => self.warnings.push(Warning::Unparsable {
                name: name.to_owned(),
                value: value.to_owned(),
                origin: origin_words(origin),
                expected: setting.kind.expected(),
                default: setting.default,
            }),
        }
    }

    fn unknown(&mut self, name: &str, origin: Origin) {
        // Compared without prefix and case, so that a name in the manner of the other place is found.
        let upper = name.to_ascii_uppercase();
        let short = upper.strip_prefix(PREFIX).unwrap_or(&upper);
        let here = |setting: &&Setting| name_at(origin, setting).is_some();
        let nearest = nearest(short, table().iter().filter(here).map(|setting| setting.name));
        let nearest = table().iter().find(|setting| Some(setting.name) == nearest).and_then(|s| name_at(origin, s));
        self.warnings.push(Warning::Unknown { name: name.to_owned(), origin: origin_words(origin), nearest });
    }
}

/// The name of a setting at an origin; a file cannot name another file.
fn name_at(origin: Origin, setting: &Setting) -> Option<String> {
    match origin {
        Origin::File if setting.name == "CONF" => None,
        Origin::File => Some(setting.name.to_ascii_lowercase()),
        Origin::Default | Origin::Environment => Some(setting.full_name()),
    }
}

fn origin_words(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::File => "settings file",
        Origin::Environment => "environment",
    }
}
