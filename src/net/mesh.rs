//! What this process knows of the cluster: a topology with its routes, from a file, from what the nodes find, or from both.
//!
//! Any thread; not on the data path. Routes are made anew when the view changes, and serve connections that begin then; those that stand
//! are left alone.
//!
//! A file names all nodes and cables, so its routes hold from the start. What was found and is gone again (a cable that is pulled, a node
//! that has ended) is left out of them until it is back. Without a file there is only what is found.

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mesh_link::netdev;
use mesh_relay::discovery::{AgentAt, View};
use mesh_relay::node::{Mesh, Snapshot};
use mesh_routing::{Differences, NodeId, Policy, Router, Topology};

use super::NetError;
use super::node::list;

/// How long nothing must have changed before routes are chosen: nodes that start together find one another in a fraction of it.
const QUIET: Duration = Duration::from_millis(150);

/// A topology with its routes, seen from this node.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) topology: Topology,
    pub(super) router: Router,
    pub(super) me: NodeId,
    /// Of the file; 0 if there is none, as what is found may be another thing a moment later.
    pub(super) hash: u64,
    /// Links that were seen and are gone, or have a port without carrier, by their ports.
    pub(super) down: BTreeSet<[Ipv4Addr; 2]>,
    /// The agents of the nodes found, by key: whether the one on the shared port is a daemon, and the others.
    agents: HashMap<u64, (bool, Vec<AgentAt>)>,
}

impl Known {
    /// From a topology file.
    pub(super) fn read(path: &Path, name: Option<&str>, found: &[netdev::Address]) -> Result<Self, NetError> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| NetError::TopologyFile { path: path.to_owned(), why: e.to_string() })?;
        let topology = Topology::from_toml(&text).map_err(|problems| NetError::Topology {
            problems: problems.iter().map(|p| format!("{p} ({})", path.display())).collect::<Vec<_>>().join("\n"),
        })?;
        let me = match name {
            Some(name) => topology.node_by_name(name).ok_or_else(|| NetError::NoSuchNode {
                name: name.to_owned(),
                path: path.to_owned(),
                nodes: topology.nodes().iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(", "),
            })?,
            None => {
                let mine = found.iter().filter(|a| !a.address.is_loopback());
                mine.clone().find_map(|a| topology.port_by_address(a.address)).map(|(node, _)| node).ok_or_else(
                    || NetError::NotInTopology {
                        path: path.to_owned(),
                        addresses: list(&mine.map(|a| (a.address, a.prefix)).collect::<Vec<_>>()),
                    },
                )?
            }
        };
        let (router, hash) = (Router::new(&topology), topology.hash());
        Ok(Self { topology, router, me, hash, down: BTreeSet::new(), agents: HashMap::new() })
    }

    /// From a view; `None` while this node is not in it.
    fn found(view: &View, key: u64) -> Option<Self> {
        let (topology, _) = view.topology(Policy::default());
        let me = topology.node_by_key(key)?;
        // On a switched segment two may not hear each other: they go by a third.
        let router = match view.lacking(&topology) {
            none if none.is_empty() => Router::new(&topology),
            lacking => Router::avoiding(&topology, &lacking, &[]),
        };
        Some(Self { topology, router, me, hash: 0, down: BTreeSet::new(), agents: agents(view) })
    }

    /// The file's, without what was seen and is gone, and without cables at ports whose nodes say that they have no carrier.
    fn without(declared: &Self, view: &View, seen: &Seen) -> Self {
        let topology = declared.topology.clone();
        let present = ends_of(view);
        let mut down: BTreeSet<_> = seen.links.difference(&present).copied().collect();
        let dark: BTreeSet<_> =
            view.nodes.values().flat_map(|node| &node.ports).filter(|p| !p.up).map(|p| p.address).collect();
        for link in topology.links() {
            let mut ends = link.ends.map(|end| end.address);
            ends.sort_unstable();
            if ends.iter().any(|end| dark.contains(end)) {
                down.insert(ends);
            }
        }
        let links: Vec<_> = down.iter().filter_map(|[a, b]| topology.link_between(*a, *b)).collect();
        let gone = seen.nodes.iter().filter(|key| !view.nodes.contains_key(key));
        let nodes: Vec<_> = gone.filter_map(|key| topology.node_by_key(*key)).collect();
        let router = if links.is_empty() && nodes.is_empty() {
            Router::new(&topology)
        } else {
            Router::avoiding(&topology, &links, &nodes)
        };
        Self { topology, router, me: declared.me, hash: declared.hash, down, agents: agents(view) }
    }

    /// Classes that trunks need: one less than the relays of the longest route.
    pub(super) fn classes(&self) -> u8 {
        let longest = self.router.most_hops();
        longest.saturating_sub(2).clamp(1, 30) as u8
    }

    /// Whether there is a route to the node with this key.
    fn leads_to(&self, key: u64) -> bool {
        self.topology.node_by_key(key).is_some_and(|to| self.router.distance(self.me, to).is_some())
    }

    /// TCP port of the agent that relays for a job at a node; 0 is the one on the shared port. A job's own processes come before those of
    /// others, so that it does not end with another job; a daemon comes before both.
    pub(super) fn relay_port(&self, node: u64, job: u32, shared: u16) -> u16 {
        match self.agents.get(&node) {
            Some((false, agents)) if job != 0 => agents
                .iter()
                .find(|agent| agent.job == job)
                .map_or(0, |agent| if agent.port == shared { 0 } else { agent.port }),
            _ => 0,
        }
    }
}

fn agents(view: &View) -> HashMap<u64, (bool, Vec<AgentAt>)> {
    view.nodes.iter().map(|(key, node)| (*key, (node.daemon, node.agents.clone()))).collect()
}

fn ends_of(view: &View) -> BTreeSet<[Ipv4Addr; 2]> {
    view.links.iter().map(|[a, b]| [a.address, b.address]).collect()
}

/// Whether connections may be made, as far as the file is a contract: nothing is said yet, it is kept, or how it is broken.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict(Arc<OnceLock<Option<String>>>);

impl Verdict {
    /// Given once; `Some` refuses.
    pub(super) fn give(&self, broken: Option<String>) {
        // What was said first holds.
        let _ = self.0.set(broken);
    }

    /// What was said, if it was.
    pub(super) fn ask(&self) -> Option<Option<&str>> {
        self.0.get().map(Option::as_deref)
    }
}

#[derive(Debug, Default)]
struct Seen {
    links: BTreeSet<[Ipv4Addr; 2]>,
    nodes: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Latest {
    generation: u64,
    seen: Seen,
    known: Option<Arc<Known>>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Knowledge {
    key: u64,
    declared: Option<Arc<Known>>,
    mesh: Option<Mesh>,
    /// On the file as a contract.
    verdict: Verdict,
    latest: Mutex<Latest>,
}

impl Knowledge {
    pub(super) fn new(key: u64, declared: Option<Arc<Known>>, mesh: Option<Mesh>, verdict: Verdict) -> Self {
        let latest = Latest { known: declared.clone(), ..Latest::default() };
        Self { key, declared, mesh, verdict, latest: Mutex::new(latest) }
    }

    /// The file's, if there is one.
    pub(super) fn declared(&self) -> Option<&Arc<Known>> {
        self.declared.as_ref()
    }

    /// Whether there may yet be a way to the node with this key, that there is none to now: it may still be found, or a cable that the file
    /// names may come back, as when a node's process of the last job has just ended and that of the next one begins.
    pub(super) fn may_come(&self, key: u64) -> bool {
        self.mesh.is_some() && self.declared.as_ref().is_none_or(|known| known.leads_to(key))
    }

    /// How the file is broken, if it says that this is to be refused; `None` while that is not known.
    pub(super) fn broken(&self) -> Option<Option<&str>> {
        let refuses = |known: &Arc<Known>| known.topology.policy().differences == Differences::Refuse;
        match (&self.mesh, &self.declared) {
            (Some(_), Some(declared)) if refuses(declared) => self.verdict.ask(),
            _ => Some(None),
        }
    }

    /// Whether something has just been found, and more may follow in a moment: a route that is chosen now may be a poor one, or lead through
    /// another job's process for want of knowing one's own there. A file says nothing of processes.
    pub(super) fn grows(&self) -> bool {
        self.mesh.as_ref().is_some_and(|mesh| mesh.quiet() < QUIET)
    }

    /// What was found, as it is now, and whether this process owns the node; `None` where nothing is looked for.
    pub(super) fn found(&self) -> Option<(Arc<Snapshot>, bool)> {
        self.mesh.as_ref().map(|mesh| (mesh.snapshot(), mesh.owns()))
    }

    /// What is known now.
    pub(super) fn now(&self) -> Option<Arc<Known>> {
        let Some(mesh) = &self.mesh else { return self.declared.clone() };
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if mesh.generation() != latest.generation {
            let snapshot = mesh.snapshot();
            latest.generation = snapshot.generation;
            latest.known = match &self.declared {
                Some(declared) => {
                    let view = &snapshot.view;
                    latest.seen.links.extend(ends_of(view));
                    latest.seen.nodes.extend(view.nodes.keys());
                    Some(Arc::new(Known::without(declared, view, &latest.seen)))
                }
                None => Known::found(&snapshot.view, self.key).map(Arc::new),
            };
        }
        latest.known.clone()
    }
}

#[cfg(test)]
#[path = "mesh_tests.rs"]
mod tests;
