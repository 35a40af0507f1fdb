//! Statements that make a port, or the whole fabric, faulty: what real clusters have wrong, for programs that must notice.
//!
//! ```text
//! mtu 10.0.0.1 1024            # largest packet of a port: 256, 512, 1024, 2048 or 4096
//! gids 10.0.0.1 link-local     # what its GID table has: all, link-local (no IPv4 address), v1 (RoCE v1 only) or none
//! down 10.0.0.1                # without carrier from the start; `Control::set_port` brings it up
//! uncable 10.0.0.1 10.0.0.2    # takes a cable away: both ports stay up, and frames between them are lost
//! memlock 8388608              # most bytes that each process may register; or `memlock limit`: its RLIMIT_MEMLOCK
//! ```
//!
//! They follow the ports and cables that they are about. Pure. Any thread.

use super::{Plan, PlanFault, value};

/// What the GID table of a port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gids {
    /// A link-local and an IPv4 GID, each as RoCE v1 and v2.
    #[default]
    All,
    /// No IPv4 GID: the interface has no address.
    LinkLocal,
    /// Both GIDs, as RoCE v1 only.
    V1,
    /// Nothing.
    None,
}

/// How much memory a process may register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memlock {
    /// All.
    #[default]
    Unlimited,
    /// As many bytes as its `RLIMIT_MEMLOCK` says, as a kernel counts for a process without `CAP_IPC_LOCK`.
    Limit,
    /// As many bytes, whatever the process's limit is.
    Bytes(u64),
}

impl Plan {
    /// Takes a statement of this file's; `None` if it is another's.
    pub(super) fn fault(&mut self, words: &[&str]) -> Option<Result<(), PlanFault>> {
        let shape = |statement, needs| Err(PlanFault::Shape { statement, needs });
        Some(match words {
            ["mtu", address, bytes] => self.mtu(address, bytes),
            ["mtu", ..] => shape("mtu", "an address and a number of bytes"),
            ["gids", address, kind] => self.gids(address, kind),
            ["gids", ..] => shape("gids", "an address and all, link-local, v1 or none"),
            ["down", address] => self.at(address).map(|port| self.ports[port].down = true),
            ["down", ..] => shape("down", "an address"),
            ["uncable", a, b] => self.uncable(a, b),
            ["uncable", ..] => shape("uncable", "two addresses"),
            ["memlock", most] => self.memlock(most),
            ["memlock", ..] => shape("memlock", "a number of bytes, or limit"),
            _ => return None,
        })
    }

    fn mtu(&mut self, address: &str, bytes: &str) -> Result<(), PlanFault> {
        let port = self.at(address)?;
        self.ports[port].mtu = match bytes.parse() {
            Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => mtu,
            _ => return Err(value(bytes, "256, 512, 1024, 2048 or 4096")),
        };
        Ok(())
    }

    fn gids(&mut self, address: &str, kind: &str) -> Result<(), PlanFault> {
        let port = self.at(address)?;
        self.ports[port].gids = match kind {
            "all" => Gids::All,
            "link-local" => Gids::LinkLocal,
            "v1" => Gids::V1,
            "none" => Gids::None,
            other => return Err(value(other, "all, link-local, v1 or none")),
        };
        Ok(())
    }

    fn uncable(&mut self, a: &str, b: &str) -> Result<(), PlanFault> {
        let (a, b) = (self.at(a)?, self.at(b)?);
        let before = self.segments.len();
        self.segments.retain(|ends| *ends != [a, b] && *ends != [b, a]);
        if self.segments.len() == before {
            let (a, b) = (self.ports[a].address, self.ports[b].address);
            return Err(PlanFault::NoCable { a, b });
        }
        Ok(())
    }

    fn memlock(&mut self, most: &str) -> Result<(), PlanFault> {
        self.memlock = match (most, most.parse()) {
            ("limit", _) => Memlock::Limit,
            (_, Ok(bytes)) => Memlock::Bytes(bytes),
            (_, Err(_)) => return Err(value(most, "a number of bytes, or limit")),
        };
        Ok(())
    }

    /// The port with this address.
    fn at(&self, address: &str) -> Result<usize, PlanFault> {
        let address = address.parse().map_err(|_| value(address, "an IPv4 address"))?;
        self.find(address).ok_or(PlanFault::NoPort { address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "port a m0 10.0.0.1 100G\nport b m0 10.0.0.2 100G\ncable 10.0.0.1 10.0.0.2\n";

    fn parse(statement: &str) -> Result<Plan, super::super::PlanError> {
        Plan::parse(&format!("{PAIR}{statement}\n"))
    }

    #[test]
    fn ports_are_sound_unless_a_statement_says_otherwise() {
        // given no fault, then nothing is wrong; when there is one, then with its port alone
        let sound = parse("").expect("well formed");
        assert!(sound.ports.iter().all(|port| (port.mtu, port.gids, port.down) == (4096, Gids::All, false)));
        assert_eq!(sound.memlock, Memlock::Unlimited);
        let second = |statement: &str| {
            let plan = parse(statement).expect(statement);
            assert_eq!(plan.ports[0], sound.ports[0], "{statement}");
            plan.ports[1].clone()
        };
        assert_eq!(second("mtu 10.0.0.2 256").mtu, 256);
        assert_eq!(second("mtu 10.0.0.2 4096").mtu, 4096);
        for (word, kind) in
            [("all", Gids::All), ("link-local", Gids::LinkLocal), ("v1", Gids::V1), ("none", Gids::None)]
        {
            assert_eq!(second(&format!("gids 10.0.0.2 {word}")).gids, kind);
        }
        assert!(second("down 10.0.0.2").down);
        assert_eq!(parse("memlock 0").expect("a number").memlock, Memlock::Bytes(0));
        assert_eq!(parse("memlock limit").expect("a word").memlock, Memlock::Limit);
    }

    #[test]
    fn a_cable_is_taken_away_whichever_end_is_named_first() {
        assert!(parse("").expect("well formed").cabled(0, 1));
        for ends in ["10.0.0.1 10.0.0.2", "10.0.0.2 10.0.0.1"] {
            assert!(!parse(&format!("uncable {ends}")).expect("a cable").cabled(0, 1));
        }
    }

    #[test]
    fn faults_that_make_no_sense_are_named() {
        for (statement, wanted) in [
            ("mtu 10.0.0.1", "mtu needs an address"),
            ("mtu 10.0.0.1 1500", "\"1500\" is not 256, 512"),
            ("mtu 10.0.0.9 1024", "no port line above has address 10.0.0.9"),
            ("gids 10.0.0.1 v2", "\"v2\" is not all, link-local"),
            ("gids all", "gids needs an address"),
            ("down", "down needs an address"),
            ("down m0", "\"m0\" is not an IPv4 address"),
            ("uncable 10.0.0.1", "two addresses"),
            ("uncable 10.0.0.1 10.0.0.1", "no cable joins 10.0.0.1 and 10.0.0.1"),
            ("memlock much", "a number of bytes, or limit"),
        ] {
            let told = parse(statement).expect_err(statement).to_string();
            assert!(told.contains("line 4: ") && told.contains(wanted), "{statement:?}: {told}");
        }
    }
}
