//! Nodes in network namespaces of their own, joined by pairs of virtual Ethernet devices: the kernel's own interfaces, addresses, routes
//! and carriers instead of a preloaded library.
//!
//! `layout` says what there is to make, `ip` makes it with the command of that name, `keeper` removes it whatever happens,
//! `faults` pulls cables and plugs. Knows no plugin and no messages of the run. Lives on the thread that runs the harness, but for the
//! thread of the faults.

mod faults;
mod ip;
mod keeper;
mod layout;

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use mesh_routing::Topology;
use thiserror::Error;

pub(super) use faults::begin_faults;
use ip::Ip;
use keeper::Keeper;
pub use keeper::run_keeper;
use layout::Layout;

/// The interface of every node that is for control connections, not for links.
pub(super) const MANAGEMENT: &str = "mgmt0";

/// Why there are no namespaces.
#[derive(Debug, Error)]
pub enum NetnsError {
    /// The user may not make them.
    #[error(
        "--netns makes network namespaces and needs the rights of root: this process has no {missing}; run it with sudo (in a \
         container: started with --privileged), or leave --netns out"
    )]
    Rights {
        /// Capabilities.
        missing: String,
    },
    /// The command `ip` is missing.
    #[error("--netns drives the command ip, which is not in PATH, /usr/sbin or /sbin: install iproute2")]
    NoIp,
    /// The command `ip` failed.
    #[error("ip {arguments} failed: {said}; --netns needs a kernel with network namespaces, veth and bridges")]
    Ip {
        /// Its arguments.
        arguments: String,
        /// Its standard error, or how it ended.
        said: String,
    },
    /// Every block of addresses for the management network is the topology's too.
    #[error(
        "--netns: the topology uses all addresses that a management network could have ({blocks}); change one of its subnets"
    )]
    NoBlock {
        /// The blocks.
        blocks: String,
    },
    /// More nodes than the management network has room for.
    #[error("--netns: {nodes} nodes are more than the {most} that a bridge joins")]
    TooMany {
        /// Nodes of the topology.
        nodes: usize,
        /// The most.
        most: usize,
    },
    /// The process that removes everything does not start.
    #[error("--netns: the process that removes the namespaces does not start: {0}")]
    Keeper(#[source] std::io::Error),
}

/// The namespaces of a run; they go with the value, or with the process.
#[derive(Debug)]
pub(super) struct Netns {
    ip: Ip,
    layout: Layout,
    _keeper: Keeper,
}

impl Netns {
    /// Makes a namespace a node and everything in it; all interfaces are up when this returns.
    pub(super) fn create(topology: &Topology) -> Result<Self, NetnsError> {
        ip::check_rights()?;
        let ip = Ip::find()?;
        keeper::sweep(&ip);
        let run = std::process::id();
        let layout = Layout::of(topology, run)?;
        let keeper = Keeper::start(&ip, run)?;
        ip.batch(None, &layout.making(topology))?;
        for (namespace, lines) in layout.inside(topology) {
            ip.batch(Some(namespace), &lines)?;
        }
        Ok(Self { ip, layout, _keeper: keeper })
    }

    /// A command that runs a program in a node's namespace.
    pub(super) fn program(&self, node: usize, program: &OsStr) -> Command {
        let mut command = self.ip.command();
        command.args(["netns", "exec", self.layout.namespace(node)]).arg(program);
        command
    }

    /// Where a node can be reached by all, whatever is cabled.
    pub(super) fn management_address(&self, node: usize) -> Ipv4Addr {
        self.layout.management_address(node)
    }

    /// Statements that make soft verbs' devices follow the netdevs.
    pub(super) fn soft_verbs(topology: &Topology) -> Vec<String> {
        layout::soft_verbs(topology)
    }

    /// What faults need to do their work.
    fn hands(&self) -> (Ip, Layout) {
        (self.ip.clone(), self.layout.clone())
    }
}

/// Where a program lies that users' shells may not look for.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}
