//! The cables of a make-believe fabric: cut and mended while nodes run.
//!
//! For sockets a byte a cable in the file beside the fabric file says whether it is cut; every node's preloaded library has that file in
//! its memory. Soft verbs have a switchboard of their own. On the thread of the faults; knows nothing of what runs.

use std::fs::OpenOptions;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use mesh_routing::Topology;
use mesh_soft_verbs::control::Control;

use super::args::{ArgsError, Fault, FaultKind};
use super::fault::cable;
use super::faults::{self, Faults, Step};

/// How the file of cuts is called after the fabric file.
pub(super) const CUTS: &str = "fabric.cuts";

/// Where cables are cut.
#[derive(Clone, Debug)]
pub(super) struct Cables {
    /// A byte a cable, in the order of the fabric file; 1: cut.
    pub(super) cuts: PathBuf,
    /// The fabric file of soft verbs, if links are made of them.
    pub(super) verbs: Option<PathBuf>,
}

/// One cable to cut or to mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct What {
    /// Its place in the fabric file.
    number: usize,
    ends: [Ipv4Addr; 2],
    cut: bool,
}

impl Cables {
    fn set(&self, what: &What) -> Result<(), String> {
        let file = |error: io::Error| format!("{}: {error}", self.cuts.display());
        let cuts = OpenOptions::new().write(true).open(&self.cuts).map_err(file)?;
        cuts.write_all_at(&[u8::from(what.cut)], what.number as u64).map_err(file)?;
        let Some(verbs) = &self.verbs else { return Ok(()) };
        let control = Control::open(verbs).map_err(|error| format!("soft verbs: {error}"))?;
        let [a, b] = what.ends;
        control.set_cable(a, b, !what.cut).map_err(|error| format!("soft verbs: {error}"))
    }
}

/// See [`faults::begin`].
pub(super) fn begin_faults(faults: &[Fault], topology: &Topology, cables: Cables) -> Result<Faults, ArgsError> {
    Faults::of(steps(faults, topology)?, move |what| cables.set(what))
}

fn steps(all: &[Fault], topology: &Topology) -> Result<Vec<Step<What>>, ArgsError> {
    faults::steps(all, |fault| match &fault.what {
        FaultKind::Absent(_) => Ok(Vec::new()),
        FaultKind::Kill(_) => Err(ArgsError::NeedsNetns(fault.to_string())),
        FaultKind::Cut(asked) | FaultKind::Mend(asked) => {
            let cut = matches!(fault.what, FaultKind::Cut(_));
            let near = cable(topology, asked).map_err(|problem| ArgsError::Fault(format!("{fault}: {problem}")))?;
            let links = topology.links().iter().enumerate();
            let meant = links.filter(|(_, link)| link.ends.iter().any(|end| near.contains(end)));
            Ok(meant
                .map(|(number, link)| What { number, ends: [link.ends[0].address, link.ends[1].address], cut })
                .collect())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_routing::{AddressPlan, Shape};

    fn asked(texts: &[&str]) -> Result<Vec<Step<What>>, ArgsError> {
        let faults: Vec<Fault> = texts.iter().map(|text| text.parse().expect("known")).collect();
        steps(&faults, &Topology::from_shape(Shape::Ring, 3, 2, &AddressPlan::default()).expect("a ring"))
    }

    #[test]
    fn a_cable_is_known_by_its_place_in_the_fabric_file() {
        // given a ring with two rails
        let topology = Topology::from_shape(Shape::Ring, 3, 2, &AddressPlan::default()).expect("a ring");
        // when an edge is cut, then both rails are, and each has the number and the ends of its line
        let both = asked(&["1 cut node2 node1"]).expect("a cable");
        assert_eq!(both.len(), 2);
        for step in &both {
            let link = &topology.links()[step.what.number];
            assert_eq!((step.what.ends, step.what.cut), ([link.ends[0].address, link.ends[1].address], true));
            let names = link.ends.map(|end| topology.name(end.node).to_owned());
            assert!(names.contains(&"node1".to_owned()) && names.contains(&"node2".to_owned()), "{names:?}");
        }
        // and a rail alone is one of them
        let one = asked(&["2 mend node2 node1 1"]).expect("a cable");
        assert_eq!((one.len(), one[0].what), (1, What { cut: false, ..both[1].what }));
    }

    #[test]
    fn a_cut_is_a_byte_in_the_file() {
        // given a file of three whole cables
        let cuts = std::env::temp_dir().join(format!("nccl-mesh-cuts-{}", std::process::id()));
        std::fs::write(&cuts, [0; 3]).expect("a temporary file");
        let cables = Cables { cuts: cuts.clone(), verbs: None };
        let what = What { number: 1, ends: [Ipv4Addr::LOCALHOST; 2], cut: true };
        // when one is cut and mended, then its byte says so, and the file keeps its length
        cables.set(&what).expect("written");
        assert_eq!(std::fs::read(&cuts).expect("there"), [0, 1, 0]);
        cables.set(&What { cut: false, ..what }).expect("written");
        assert_eq!(std::fs::read(&cuts).expect("there"), [0, 0, 0]);
        std::fs::remove_file(&cuts).expect("its own");
        // and a file that is gone is named
        assert!(cables.set(&what).expect_err("gone").contains("nccl-mesh-cuts"));
    }

    #[test]
    fn what_is_not_there_is_named_and_nodes_are_killed_in_namespaces_only() {
        for (text, told) in
            [("1 cut node0 node9", "no node node9"), ("1 cut node0 node1 2", "no rail 2"), ("1 kill node0", "--netns")]
        {
            let error = asked(&[text]).expect_err(text).to_string();
            assert!(error.contains(told) && error.contains(text), "{error}");
        }
    }
}
