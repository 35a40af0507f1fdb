//! The options with which commands are told what a fabric of processes is made of. Knows nothing of what runs on it. Runs on the
//! command's main thread.

use mesh_routing::Topology;
use mesh_sim::harness::{Agents, LinkKind, RunArgs, Work, usual_link};
use std::path::PathBuf;
use std::time::Duration;

/// What links and nodes are made of, and how results are printed.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct FabricArgs {
    /// What links are made of: tcp, or verbs (on soft verbs, see docs/soft-verbs.md) [default: verbs where soft verbs are, else tcp]
    #[arg(long)]
    pub(crate) link: Option<LinkKind>,
    /// Folder with the libibverbs.so.1 of soft verbs [default: soft-verbs beside this program]
    #[arg(long, value_name = "FOLDER")]
    soft_verbs: Option<PathBuf>,
    /// A statement for soft verbs' fabric file, such as engine=clock, strict=on or latency=2000; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    soft_verbs_set: Vec<String>,
    /// The plugin's file [default: beside this program]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// A variable for every node; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl FabricArgs {
    /// A run on such a fabric, in which every node starts and has the rank of its place.
    pub(crate) fn run_args(&self, topology: Topology, work: Work, timeout: Duration) -> RunArgs {
        RunArgs {
            topology,
            real_ports: false,
            netns: false,
            link: self.link.unwrap_or_else(|| usual_link(self.soft_verbs.as_deref())),
            work,
            rank_order: Vec::new(),
            faults: Vec::new(),
            plugin: self.plugin.clone(),
            fabric: None,
            soft_verbs: self.soft_verbs.clone(),
            soft_verbs_set: self.soft_verbs_set.clone(),
            discover: false,
            agents: Agents::None,
            jobs: 1,
            endings: Vec::new(),
            node_program: Vec::new(),
            environment: self.env.clone(),
            timeout,
            json: self.json,
        }
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.contains('\0') => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not of the form NAME=VALUE".to_owned()),
    }
}
