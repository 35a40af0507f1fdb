//! Soft verbs under a run: the fabric file of the make-believe devices, and what every node's process is told of them.
//!
//! Lives on the thread that runs the harness; the folder in shared memory goes with the value.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use mesh_routing::Topology;

use super::args::LinkKind;
use super::scene::SceneError;

/// Where the devices' shared memory lies.
pub(super) const SHARED: &str = "/dev/shm";
/// How folders of runs begin there; the process's number and a serial number follow.
pub(super) const FOLDER: &str = "nccl-mesh-verbs-";
/// Mbit/s of a port whose topology names none.
const USUAL_MBPS: u32 = 100_000;

/// The devices of a run.
#[derive(Debug)]
pub(super) struct SoftVerbs {
    library: PathBuf,
    folder: PathBuf,
}

/// What links are made of if nobody says: of RDMA queue pairs where soft verbs are, beside this program or in the folder that is named.
#[must_use]
pub fn usual_link(named: Option<&Path>) -> LinkKind {
    if named.is_some() || find(named).is_ok() { LinkKind::Verbs } else { LinkKind::Tcp }
}

/// The folder of the library; the error is where it was looked for.
fn find(named: Option<&Path>) -> Result<PathBuf, PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let folder = named.map_or_else(|| program.with_file_name("soft-verbs"), Path::to_owned);
    let found = std::fs::canonicalize(&folder).ok().filter(|folder| folder.join("libibverbs.so.1").is_file());
    found.ok_or(folder)
}

impl SoftVerbs {
    /// Finds the library and writes the fabric file.
    pub(super) fn create(named: Option<&Path>, topology: &Topology, statements: &[String]) -> Result<Self, SceneError> {
        let library = find(named).map_err(|folder| SceneError::NoSoftVerbs { folder })?;
        // Unique among runs of this machine: the process, and a serial number within it.
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(SHARED).join(format!("{FOLDER}{}-{serial}", std::process::id()));
        let write = |path: &Path, outcome: std::io::Result<()>| {
            outcome.map_err(|source| SceneError::Write { path: path.to_owned(), source })
        };
        write(&folder, std::fs::create_dir(&folder))?;
        let made = Self { library, folder };
        let file = made.fabric_file();
        write(&file, std::fs::write(&file, fabric_text(topology, statements)))?;
        Ok(made)
    }

    /// Puts a process of `node` on the devices.
    pub(super) fn enter(&self, command: &mut Command, node: &str) {
        let mut folders = self.library.clone().into_os_string();
        if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
            folders.push(":");
            folders.push(others);
        }
        command
            .env("LD_LIBRARY_PATH", folders)
            .env("MESH_SOFT_VERBS", self.fabric_file())
            .env("MESH_SOFT_VERBS_NODE", node);
    }

    /// What describes the devices.
    pub(super) fn fabric_file(&self) -> PathBuf {
        self.folder.join("fabric")
    }
}

impl Drop for SoftVerbs {
    fn drop(&mut self) {
        // What cannot be removed is left to the next start of the machine; the run's outcome does not depend on it.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Every port as a device of its own, every link as a cable, and the caller's statements.
fn fabric_text(topology: &Topology, statements: &[String]) -> String {
    let mut text = String::new();
    for node in topology.nodes() {
        // In the order of their labels: which port a program takes for its first may matter to it.
        let mut ports: Vec<_> = node.ports.iter().collect();
        ports.sort_by_key(|port| &port.device);
        for (n, port) in ports.into_iter().enumerate() {
            let mbps = port.speed_mbps.unwrap_or(USUAL_MBPS);
            // Writing to a string cannot fail.
            let _ = writeln!(text, "port {} mesh{n} {} {mbps}M", node.name, port.address);
        }
    }
    for subnet in topology.switches() {
        let ports = topology.nodes().iter().flat_map(|node| &node.ports).filter(|port| subnet.contains(port.address));
        let ports: Vec<String> = ports.map(|port| port.address.to_string()).collect();
        let _ = writeln!(text, "switch {}", ports.join(" "));
    }
    for link in topology.links().iter().filter(|link| !link.switched) {
        let _ = writeln!(text, "cable {} {}", link.ends[0].address, link.ends[1].address);
    }
    for statement in statements {
        let _ = writeln!(text, "{}", statement.replacen('=', " ", 1));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_routing::{AddressPlan, Shape};
    use std::net::Ipv4Addr;

    #[test]
    fn devices_are_in_the_order_of_the_ports_labels() {
        // given a node whose second address has the first label
        let text = "schema = 1\n[[node]]\nname = \"a\"\nport = [{ device = \"y\", address = \"10.0.0.1/30\" }, { device = \"x\", address = \"10.0.0.5/30\" }]\n\
                    [[node]]\nname = \"b\"\nport = [{ device = \"x\", address = \"10.0.0.2/30\" }, { device = \"y\", address = \"10.0.0.6/30\" }]\n";
        let topology = Topology::from_toml(text).expect("sound");
        // then that one is the node's first device
        let text = fabric_text(&topology, &[]);
        let line = |text: &str| format!("{text} {USUAL_MBPS}M");
        let lines: Vec<&str> = text.lines().take(4).collect();
        assert_eq!(
            lines,
            [
                line("port a mesh0 10.0.0.5"),
                line("port a mesh1 10.0.0.1"),
                line("port b mesh0 10.0.0.2"),
                line("port b mesh1 10.0.0.6")
            ]
        );
    }

    #[test]
    fn every_port_is_a_device_and_every_link_a_cable() {
        let plan = AddressPlan { base: Ipv4Addr::new(10, 0, 0, 0) };
        let topology = Topology::from_shape(Shape::Ring, 3, 1, &plan).unwrap();
        let text = fabric_text(&topology, &["strict=on".to_owned()]);
        assert_eq!(text.matches("port ").count(), 6, "{text}");
        assert_eq!(text.matches("cable ").count(), 3, "{text}");
        assert!(text.ends_with("\nstrict on\n"), "{text}");
        assert!(text.contains("port node0 mesh0 10.0.0.1 100000M"), "{text}");
    }

    #[test]
    fn a_folder_without_the_library_is_named() {
        let plan = AddressPlan { base: Ipv4Addr::new(10, 0, 0, 0) };
        let topology = Topology::from_shape(Shape::Line, 2, 1, &plan).unwrap();
        let error = SoftVerbs::create(Some(Path::new("/nonexistent")), &topology, &[]).unwrap_err().to_string();
        assert!(error.contains("/nonexistent") && error.contains("mesh-soft-verbs"), "{error}");
        // and whoever names a folder means verbs; nobody gets something else instead
        assert_eq!(usual_link(Some(Path::new("/nonexistent"))), LinkKind::Verbs);
    }
}
