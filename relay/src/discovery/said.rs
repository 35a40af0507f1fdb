//! Says each fault once while it lasts, however often it is noticed.
//!
//! Must not know what is said. Bounded. Runs on the thread of the node's owner.

use std::collections::BTreeMap;

use super::event::Event;
use super::types::{MS, Time};

/// Faults remembered at once. Beyond that new ones are not said: who floods us with faults gets no room in the log either.
const MAX: usize = 64;
/// A fault that was not noticed for so long is over, and is said anew when it comes back.
const OVER: Time = 10_000 * MS;

/// See the module. By [`Event::subject`]: a sender that says something else each time says the same.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<Event, Time>);

impl Said {
    /// Whether the fault is to be said now.
    pub(super) fn first(&mut self, now: Time, event: &Event) -> bool {
        let subject = event.subject();
        if let Some(last) = self.0.get_mut(&subject) {
            let over = now >= last.saturating_add(OVER);
            *last = now;
            return over;
        }
        if self.0.len() >= MAX {
            self.0.retain(|_, last| now < last.saturating_add(OVER));
        }
        let room = self.0.len() < MAX;
        if room {
            self.0.insert(subject, now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::WireError;
    use std::net::Ipv4Addr;

    const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// A fault of each kind that a sender can cause, as datagram number `n` of it causes it.
    fn faults(n: u32) -> Vec<Event> {
        let remote = Ipv4Addr::new(10, 0, 0, 2);
        let (made_up, name) = (Ipv4Addr::from(n), || format!("node-{n}"));
        vec![
            Event::Unreadable { local: LOCAL, from: remote, why: WireError::Magic { got: n } },
            Event::OtherSource { local: LOCAL, from: remote, says: made_up, node: name() },
            Event::OutsideSubnet { local: LOCAL, prefix: 30, remote, remote_prefix: n as u8 % 32, node: name() },
            Event::AddressTaken { local: LOCAL, address: LOCAL, node: name() },
            Event::SameId { local: LOCAL, remote, id: name(), node: name(), other: name() },
            Event::ThreeEnds { local: LOCAL, one: (remote, name()), two: (made_up, name()) },
            Event::DatabaseFull { limit: 1024, node: n.into() },
        ]
    }

    #[test]
    fn who_makes_up_faults_is_told_of_once_and_leaves_room_for_others() {
        // given a sender whose every datagram has another fault of each kind, for longer than a fault is remembered
        let mut said = Said::default();
        let told = |said: &mut Said, n: u32| {
            faults(n).into_iter().filter(|fault| said.first(Time::from(n) * 10 * MS, fault)).count()
        };
        // then each kind is said for the first, and no more
        assert_eq!(told(&mut said, 0), 7);
        assert_eq!((1..2000).map(|n| told(&mut said, n)).sum::<usize>(), 0);
        // and what is wrong on another port is still said
        let other = Ipv4Addr::new(10, 0, 1, 1);
        let elsewhere = Event::AddressTaken { local: other, address: other, node: "b".into() };
        assert!(said.first(20_000 * MS, &elsewhere));
        // when it has been still for a while, then it is a new fault
        assert_eq!(told(&mut said, 5000), 7);
    }
}
