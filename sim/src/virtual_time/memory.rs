//! What lies where: for every slot of a pool and every receive buffer, whose bytes it holds and who may touch it.
//!
//! No bytes are copied; a record says which bytes of which message they would be. Every touch is checked against the life of a slot:
//!
//! ```text
//!   unlent ──lend──▶ upstream ──sent──▶ in flight ──land──▶ filled ──credit──▶ crediting ──arrives──▶ upstream
//!      ▲                                                       │ withdrawn while it is read
//!      └───────────────withdrawn─────────── orphan ◀───────────┘
//! ```
//!
//! This is the conservation of credits: a slot is in exactly one of these states, so a credit can neither be lost nor given twice.

/// Bytes of a message: which connection's, which message, from where, how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) conn: u32,
    pub(super) seq: u32,
    pub(super) start: u64,
    pub(super) len: u32,
}

/// Where a slot is in its life. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Unlent,
    Upstream,
    InFlight,
    Filled,
    Crediting,
    Orphan,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) stage: Stage,
    pub(super) content: Option<Payload>,
    pub(super) read: bool,
}

/// The pool of one node.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) slots: Vec<Slot>,
}

type Checked<T> = Result<T, String>;

impl Pool {
    pub(super) fn new(slots: u32) -> Self {
        Self { slots: vec![Slot { stage: Stage::Unlent, content: None, read: false }; slots as usize] }
    }

    fn slot(&mut self, slot: u32) -> Checked<&mut Slot> {
        self.slots.get_mut(slot as usize).ok_or_else(|| format!("there is no slot {slot}"))
    }

    fn pass(&mut self, slot: u32, from: Stage, to: Stage, what: &str) -> Checked<&mut Slot> {
        let s = self.slot(slot)?;
        if s.stage != from {
            return Err(format!("slot {slot} is {what}, but it is {s:?}"));
        }
        s.stage = to;
        Ok(s)
    }

    /// A run becomes somebody's to fill.
    pub(super) fn lend(&mut self, first: u32, count: u16) -> Checked<()> {
        (first..first + u32::from(count)).try_for_each(|slot| {
            let s = self.pass(slot, Stage::Unlent, Stage::Upstream, "lent")?;
            s.content = None;
            if s.read { Err(format!("slot {slot} is lent while it is read")) } else { Ok(()) }
        })
    }

    /// The upstream node has posted a write into it.
    pub(super) fn sent(&mut self, slot: u32) -> Checked<()> {
        self.pass(slot, Stage::Upstream, Stage::InFlight, "being filled").map(drop)
    }

    /// The write has landed.
    pub(super) fn land(&mut self, slot: u32, payload: Payload) -> Checked<()> {
        let s = self.pass(slot, Stage::InFlight, Stage::Filled, "filled")?;
        s.content = Some(payload);
        if s.read { Err(format!("slot {slot} is overwritten while it is read")) } else { Ok(()) }
    }

    /// A leg begins to read it.
    pub(super) fn read(&mut self, slot: u32) -> Checked<Payload> {
        let s = self.slot(slot)?;
        match (s.stage, s.content, s.read) {
            (Stage::Filled, Some(payload), false) => {
                s.read = true;
                Ok(payload)
            }
            _ => Err(format!("slot {slot} is sent on, but it is {s:?}")),
        }
    }

    /// The leg reads it no more.
    pub(super) fn unread(&mut self, slot: u32) -> Checked<()> {
        let s = self.slot(slot)?;
        if !s.read {
            return Err(format!("slot {slot} is no longer read, but it was not: {s:?}"));
        }
        s.read = false;
        if s.stage == Stage::Orphan {
            s.stage = Stage::Unlent;
        }
        Ok(())
    }

    /// The engine gives the credit back.
    pub(super) fn credit(&mut self, slot: u32) -> Checked<()> {
        let s = self.pass(slot, Stage::Filled, Stage::Crediting, "credited")?;
        s.content = None;
        if s.read { Err(format!("slot {slot} is credited while it is read")) } else { Ok(()) }
    }

    /// The credit has arrived upstream.
    pub(super) fn credited(&mut self, slot: u32) -> Checked<()> {
        self.pass(slot, Stage::Crediting, Stage::Upstream, "back upstream").map(drop)
    }

    /// The leg that the run was lent to is gone.
    pub(super) fn withdraw(&mut self, first: u32, count: u16) {
        for s in &mut self.slots[first as usize..][..usize::from(count)] {
            s.stage = if s.read { Stage::Orphan } else { Stage::Unlent };
        }
    }

    /// Slots that belong to a run, and slots that hold a chunk.
    pub(super) fn usage(&self) -> (u32, u32) {
        let count = |f: fn(Stage) -> bool| self.slots.iter().filter(|s| f(s.stage)).count() as u32;
        (count(|s| s != Stage::Unlent), count(|s| matches!(s, Stage::Filled | Stage::Orphan)))
    }
}

/// Where a receive is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    Unposted,
    Posted,
    Complete,
}

/// One receive buffer: which bytes have landed.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) state: Receive,
    /// Disjoint, in order, not touching.
    got: Vec<(u64, u64)>,
}

impl Buffer {
    pub(super) fn new() -> Self {
        Self { state: Receive::Unposted, got: Vec::new() }
    }

    /// A write lands at `offset`.
    pub(super) fn land(&mut self, offset: u64, len: u64, capacity: u64) -> Checked<()> {
        if self.state != Receive::Posted {
            return Err(format!("a write into a receive that is {:?}", self.state));
        }
        let end = offset.checked_add(len).filter(|end| *end <= capacity);
        let end = end.ok_or_else(|| format!("{len} bytes at {offset} of a buffer of {capacity}"))?;
        if len == 0 {
            return Ok(());
        }
        let at = self.got.partition_point(|(_, e)| *e <= offset);
        if self.got.get(at).is_some_and(|(s, _)| *s < end) {
            return Err(format!("bytes {offset} to {end} arrive twice; there are {:?}", self.got));
        }
        self.got.insert(at, (offset, end));
        if self.got.get(at + 1).is_some_and(|(s, _)| *s == end) {
            self.got[at].1 = self.got.remove(at + 1).1;
        }
        if at > 0 && self.got[at - 1].1 == offset {
            self.got[at - 1].1 = self.got.remove(at).1;
        }
        Ok(())
    }

    /// Whether exactly the bytes before `len` are there.
    pub(super) fn holds(&self, len: u64) -> bool {
        if len == 0 { self.got.is_empty() } else { self.got == [(0, len)] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_lives_in_order_and_every_other_step_is_caught() {
        let chunk = Payload { conn: 0, seq: 0, start: 0, len: 1 };
        let mut pool = Pool::new(2);
        assert!(pool.sent(0).is_err(), "not lent");
        pool.lend(0, 2).unwrap();
        assert!(pool.lend(1, 1).is_err(), "lent twice");
        pool.sent(0).unwrap();
        assert!(pool.sent(0).is_err(), "filled twice");
        pool.land(0, chunk).unwrap();
        assert_eq!(pool.read(0), Ok(chunk));
        assert!(pool.read(0).is_err(), "read twice");
        assert!(pool.credit(0).is_err(), "credited while read");
        // A run that is withdrawn while it is read is not lent again until it is read no more.
        let mut pool = Pool::new(2);
        pool.lend(0, 2).unwrap();
        pool.sent(0).unwrap();
        pool.land(0, chunk).unwrap();
        pool.read(0).unwrap();
        pool.withdraw(0, 2);
        assert_eq!(pool.usage(), (1, 1));
        assert!(pool.lend(0, 1).is_err());
        pool.unread(0).unwrap();
        assert_eq!(pool.usage(), (0, 0));
        pool.lend(0, 2).unwrap();
    }

    #[test]
    fn bytes_are_counted_once_in_any_order() {
        let mut buffer = Buffer::new();
        assert!(buffer.land(0, 1, 10).is_err(), "not posted");
        buffer.state = Receive::Posted;
        for (offset, len) in [(4, 2), (0, 2), (6, 4), (2, 2)] {
            assert!(!buffer.holds(10));
            buffer.land(offset, len, 10).unwrap();
            assert!(buffer.land(offset, 1, 10).is_err(), "twice");
        }
        assert!(buffer.holds(10) && !buffer.holds(9));
        assert!(buffer.land(10, 1, 10).is_err(), "behind the end");
        assert!(buffer.land(10, 0, 10).is_ok(), "nothing at the end");
        assert!(buffer.land(u64::MAX, 2, 10).is_err());
    }
}
