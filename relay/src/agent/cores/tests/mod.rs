//! Machines made of small files in a temporary folder, and what is chosen on them.
//!
//! `preference` is about which core, `limits` about how many there are, `setting` about what the user says and about files that make no
//! sense.

mod limits;
mod preference;
mod setting;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::machine::Machine;
use super::*;

/// The calling thread in these machines; the main thread is 70.
const ME: u32 = 77;

/// The root of a machine.
struct Tree(PathBuf);

impl Tree {
    /// A machine with that many cores, all allowed, that says nothing else about them. Its process has a main thread and the calling one.
    fn new(cores: usize) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let tree = Self(std::env::temp_dir().join(format!("nccl-mesh-cores-{}-{serial}", std::process::id())));
        let all = format!("0-{}", cores - 1);
        tree.file("sys/devices/system/cpu/online", &all)
            .file("proc/thread-self/status", &format!("Name:\tmesh-relay\nPid:\t{ME}\n"))
            .allowed(&all)
            .thread(70, &all)
            .thread(ME, &all);
        tree
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// The cores that the process may use.
    fn allowed(&self, list: &str) -> &Self {
        self.file("proc/self/status", &format!("Name:\tpython3\nPid:\t70\nCpus_allowed_list:\t{list}\n"))
    }

    /// A thread of the process that may use these cores.
    fn thread(&self, id: u32, list: &str) -> &Self {
        let status = format!("Name:\tworker\nState:\tS (sleeping)\nPid:\t{id}\nCpus_allowed_list:\t{list}\n");
        self.file(&format!("proc/self/task/{id}/status"), &status)
    }

    /// A file for each of the cores, from core 0 on.
    fn each(&self, file: &str, values: &[u64]) -> &Self {
        for (core, value) in values.iter().enumerate() {
            self.file(&format!("sys/devices/system/cpu/cpu{core}/{file}"), &format!("{value}\n"));
        }
        self
    }

    /// Two hyper-threads a physical core, numbered as x86 does: 0 and n, 1 and n + 1, …
    fn hyper_threads(&self, physical: usize) -> &Self {
        for core in 0..2 * physical {
            let (low, high) = (core % physical, core % physical + physical);
            self.file(
                &format!("sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"),
                &format!("{low},{high}\n"),
            );
        }
        self
    }

    /// The process's groups, and where they are mounted.
    fn groups(&self, groups: &str, mounts: &str) -> &Self {
        self.file("proc/self/cgroup", groups).file("proc/self/mountinfo", mounts)
    }

    fn machine(&self) -> Machine {
        Machine::read(&self.0)
    }

    /// What is chosen automatically where every core can be had.
    fn auto(&self, seed: u64) -> Chosen {
        decide(&CoreChoice::Auto, seed, &self.machine(), |_| true)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn chosen(core: Option<usize>, yields: bool, why: &str) -> Chosen {
    Chosen { core, yields, why: why.to_owned() }
}
