//! What goes wrong on purpose, and how it is written: `WHEN WHAT`.
//!
//! Pure. Any thread.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use mesh_routing::{End, Link, Topology};

use super::args::ArgsError;

/// Something that goes wrong on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How long after the start.
    pub at: Duration,
    /// What.
    pub what: FaultKind,
}

/// Kinds of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The node of this name never starts.
    Absent(String),
    /// A cable carries nothing any more; in network namespaces its ports lose their carrier.
    Cut(Cable),
    /// A cable that was cut carries again.
    Mend(Cable),
    /// All processes of the node of this name are killed; in network namespaces only.
    Kill(String),
}

/// The cable between two nodes, or one rail of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Names of the nodes.
    pub nodes: [String; 2],
    /// The rail, from 0; `None`: all.
    pub rail: Option<usize>,
}

impl fmt::Display for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.nodes[0], self.nodes[1])?;
        self.rail.map_or(Ok(()), |rail| write!(f, " {rail}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at.subsec_millis() {
            0 => write!(f, "{}", self.at.as_secs())?,
            _ => write!(f, "{}ms", self.at.as_millis())?,
        }
        match &self.what {
            FaultKind::Absent(node) => write!(f, " absent {node}"),
            FaultKind::Cut(cable) => write!(f, " cut {cable}"),
            FaultKind::Mend(cable) => write!(f, " mend {cable}"),
            FaultKind::Kill(node) => write!(f, " kill {node}"),
        }
    }
}

impl FromStr for Fault {
    type Err = ArgsError;

    /// Reads `WHEN WHAT`.
    fn from_str(text: &str) -> Result<Self, ArgsError> {
        let unknown = || ArgsError::UnknownFault(text.to_owned());
        let words: Vec<&str> = text.split_whitespace().collect();
        let [when, kind, rest @ ..] = &words[..] else { return Err(unknown()) };
        let at = parse_time(when).ok_or_else(unknown)?;
        let what = match (*kind, rest) {
            ("absent", [node]) if at.is_zero() => FaultKind::Absent((*node).to_owned()),
            ("kill", [node]) => FaultKind::Kill((*node).to_owned()),
            ("cut" | "mend", [a, b, rail @ ..]) if rail.len() <= 1 => {
                let rail = rail.first().map(|rail| rail.parse().map_err(|_| unknown())).transpose()?;
                let cable = Cable { nodes: [*a, *b].map(str::to_owned), rail };
                if *kind == "cut" { FaultKind::Cut(cable) } else { FaultKind::Mend(cable) }
            }
            _ => return Err(unknown()),
        };
        Ok(Self { at, what })
    }
}

/// Seconds, with `s` behind them or nothing, or milliseconds with `ms`; to the millisecond, and no more than a day.
fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1.0),
        None => (text.strip_suffix('s').unwrap_or(text), 1e3),
    };
    let millis = number.parse::<f64>().ok()? * unit;
    (0.0..=86_400e3).contains(&millis).then(|| Duration::from_millis(millis.round() as u64))
}

/// The ends on the first node of the rails of a cable; the error says what is not there.
pub(super) fn cable(topology: &Topology, cable: &Cable) -> Result<Vec<End>, String> {
    let node = |name: &String| topology.node_by_name(name).ok_or_else(|| format!("no node {name}"));
    let [a, b] = &cable.nodes;
    let (first, second) = (node(a)?, node(b)?);
    let edge = topology.edge_between(first, second).ok_or_else(|| format!("no cable between {a} and {b}"))?;
    let links = topology.links_of_edge(edge).iter().map(|link| topology.link(*link));
    let links: Vec<_> = links.filter(|link| !link.switched).collect();
    let ends = |links: &[&Link]| links.iter().filter_map(|link| link.end_of(first).copied()).collect();
    match cable.rail {
        _ if links.is_empty() => Err(format!("a switch is between {a} and {b}, no cable")),
        None => Ok(ends(&links)),
        Some(rail) => links
            .get(rail)
            .map(|link| ends(&[link]))
            .ok_or_else(|| format!("no rail {rail} between {a} and {b}, which have {}, counted from 0", links.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_faults_are_taken() {
        let fault = "0 absent node2".parse::<Fault>().expect("known");
        assert_eq!(fault.what, FaultKind::Absent("node2".to_owned()));
        assert_eq!(fault.to_string(), "0 absent node2");
        for text in ["2 cut node0 node1", "500ms mend node0 node1 1", "90 kill node3"] {
            assert_eq!(text.parse::<Fault>().expect("known").to_string(), text);
        }
        assert_eq!("1.5s kill a".parse::<Fault>().expect("known").at, Duration::from_millis(1500));
        let wrong =
            ["", "absent node2", "1 absent node2", "0 absent", "0 absent a b", "1 cut a", "1 cut a b x", "-1 kill a"];
        for wrong in wrong.into_iter().chain(["1 cut a b 0 0", "soon kill a", "1 kill", "NaN kill a", "1e9 kill a"]) {
            let error = wrong.parse::<Fault>().expect_err(wrong);
            assert!(error.to_string().contains("known: \"0 absent NODE\""), "{error}");
        }
    }
}
