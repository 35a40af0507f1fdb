//! The connecting side of path set-up: opens a leg a lane, asks along the route, waits for every lane's answer, or says why not.
//!
//! ```text
//!   dialing ──leg──▶ asked ──ready──▶ ready ──all lanes──▶ handed to the connection
//!      ▲  └─failed─┐   └─refused─▶ failed
//!      └───retry───┘               failed ◀─ time is up
//! ```

use super::{Action, Engine, LegId, LentSlots, MS, Purpose, Role, SendPath, Time};
use crate::code;
use crate::send::{CUT, DEPTH, MAX_LANES};
use crate::wire::{HopAddr, Msg, Refusal, Setup};

/// Most messages kept for a connection until it is handed over: more than an honest peer can send.
const MOST_EARLY: usize = 4 * DEPTH * MAX_LANES;

/// What to connect to, and by which way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Named by the caller; comes back in [`Action::Connected`] or [`Action::ConnectFailed`].
    pub request: u64,
    /// Drawn at random.
    pub conn: [u8; 16],
    /// The listener's token.
    pub token: [u8; 16],
    /// One lane a leg; either all are single hops or none is.
    pub lanes: Vec<Vec<HopAddr>>,
    /// How long it may take, in nanoseconds.
    pub budget: Time,
    /// What people call the peer.
    pub peer: String,
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) hops: Vec<HopAddr>,
    pub(super) leg: Option<LegId>,
    pub(super) last_error: String,
    ready: Option<Ready>,
}

impl Lane {
    /// The leg is gone, or was never had; the next attempt starts from nothing.
    pub(super) fn lost(&mut self, why: String) {
        self.leg = None;
        self.ready = None;
        self.last_error = why;
    }
}

#[derive(Clone, Copy, Debug)]
struct Ready {
    key: u32,
    base: u64,
    slots: u16,
    stride: u32,
    chunk: u32,
}

#[derive(Debug)]
pub(super) struct Connect {
    conn: [u8; 16],
    token: [u8; 16],
    pub(super) lanes: Vec<Lane>,
    pub(super) deadline: Time,
    started: Time,
    peer: String,
    early: Vec<(u8, Msg)>,
}

impl Engine {
    /// Starts to set up a connection; ends in exactly one [`Action::Connected`] or [`Action::ConnectFailed`], unless cancelled.
    pub fn connect(&mut self, now: Time, request: ConnectRequest) {
        let ConnectRequest { request, conn, token, lanes, budget, peer } = request;
        let relayed = lanes.iter().any(|hops| hops.len() > 1);
        let sane = (1..=MAX_LANES).contains(&lanes.len())
            && lanes.iter().all(|h| (1..=crate::wire::MAX_HOPS).contains(&h.len()))
            && (!relayed || lanes.iter().all(|h| h.len() > 1))
            && !self.connects.contains_key(&request);
        if !sane {
            let why = self.refuse_text(code::BAD_ROUTE, &format!("no usable route to {peer}"));
            self.out.push_back(Action::ConnectFailed { request, why });
            return;
        }
        let count = lanes.len();
        let lanes =
            lanes.into_iter().map(|hops| Lane { hops, leg: None, last_error: String::new(), ready: None }).collect();
        let connect = Connect { conn, token, lanes, deadline: now + budget, started: now, peer, early: Vec::new() };
        self.connects.insert(request, connect);
        for lane in 0..count {
            self.dial(Purpose::Lane { request, lane: lane as u8 });
        }
    }

    /// Gives up a connection that is being set up; nothing more is heard of it.
    pub fn cancel(&mut self, request: u64) {
        if let Some(connect) = self.connects.remove(&request) {
            self.drop_lanes(&connect);
        }
    }

    pub(super) fn lane_up(&mut self, now: Time, request: u64, lane: u8, leg: LegId) {
        let Some(connect) = self.connects.get_mut(&request) else {
            self.out.push_back(Action::Drop { leg, graceful: false });
            return;
        };
        let lanes = connect.lanes.len() as u8;
        let Some(entry) = connect.lanes.get_mut(usize::from(lane)) else { return };
        entry.leg = Some(leg);
        let hop = entry.hops[0];
        let budget_ms = (connect.deadline.saturating_sub(now) / MS).saturating_sub(20).max(1) as u32;
        let setup = Setup {
            stream: 0,
            conn: connect.conn,
            token: connect.token,
            lane,
            lanes,
            at: 0,
            budget_ms,
            hops: entry.hops.clone(),
        };
        self.add_leg(leg, hop.from, hop.to, Role::Connecting { request, lane });
        self.send(leg, Msg::Setup(setup));
    }

    pub(super) fn connecting(&mut self, request: u64, lane: u8, msg: Msg) {
        let Some(connect) = self.connects.get_mut(&request) else { return };
        let entry = &mut connect.lanes[usize::from(lane)];
        match msg {
            Msg::Ready { key, base, slots, stride, chunk, .. } if entry.ready.is_none() => {
                let relayed = entry.hops.len() > 1;
                let sane =
                    !relayed || slots > 0 && chunk > 0 && u64::from(chunk).is_multiple_of(CUT) && stride >= chunk;
                if !sane {
                    return self.fail_connect(
                        request,
                        code::PROTOCOL_BROKEN,
                        "the relay's answer makes no sense".into(),
                    );
                }
                entry.ready = Some(Ready { key, base, slots, stride, chunk });
                self.try_finish(request);
            }
            Msg::Refused { why, .. } => self.fail_with(request, why),
            msg @ (Msg::Cts { .. } | Msg::Close { .. } | Msg::Ack { .. } | Msg::Credit { .. })
                if entry.ready.is_some() && connect.early.len() < MOST_EARLY =>
            {
                connect.early.push((lane, msg));
            }
            msg => self.fail_connect(request, code::PROTOCOL_BROKEN, format!("unexpected {}", msg.name())),
        }
    }

    fn try_finish(&mut self, request: u64) {
        let Some(connect) = self.connects.get(&request) else { return };
        if !connect.lanes.iter().all(|l| l.ready.is_some() && l.leg.is_some()) {
            return;
        }
        let Some(connect) = self.connects.remove(&request) else { return };
        let hops = connect.lanes.iter().map(|lane| lane.hops.len()).max().unwrap_or(1);
        let path = if hops == 1 {
            SendPath::Direct
        } else {
            let ready = || connect.lanes.iter().filter_map(|lane| lane.ready);
            let chunk = ready().map(|r| r.chunk).min().unwrap_or_default();
            let slots = ready()
                .map(|Ready { key, base, slots, stride, .. }| LentSlots { key, base, count: slots, stride })
                .collect();
            // The cast is exact: at most MAX_HOPS.
            SendPath::Relayed { relays: (hops - 1) as u8, chunk, slots }
        };
        let legs: Vec<LegId> = connect.lanes.iter().filter_map(|l| l.leg).collect();
        for leg in &legs {
            self.legs.remove(leg);
        }
        self.out.push_back(Action::Connected { request, legs, path, early: connect.early });
    }

    /// A message on a leg that is not ours any more. If its connection still waits to be carried out, then the message came in one
    /// batch with the answer that completed the connection, and is the connection's: a receiver clears its sender to send at once.
    pub(super) fn handed_over(&mut self, id: LegId, msg: Msg) {
        let waiting = self.out.iter_mut().find_map(|action| match action {
            Action::Connected { legs, early, .. } | Action::Accepted { legs, early, .. } => {
                legs.iter().position(|leg| *leg == id).map(|lane| (lane, early))
            }
            _ => None,
        });
        if let Some((lane, early)) = waiting
            && early.len() < MOST_EARLY
        {
            early.push((lane as u8, msg));
        }
    }

    pub(super) fn fail_connect(&mut self, request: u64, code: u16, what: String) {
        let why = self.refuse_text(code, &what);
        self.fail_with(request, why);
    }

    fn fail_with(&mut self, request: u64, why: Refusal) {
        if let Some(connect) = self.connects.remove(&request) {
            self.drop_lanes(&connect);
            self.out.push_back(Action::ConnectFailed { request, why });
        }
    }

    fn drop_lanes(&mut self, connect: &Connect) {
        for leg in connect.lanes.iter().filter_map(|l| l.leg) {
            if self.legs.remove(&leg).is_some() {
                self.send(leg, Msg::Close { stream: 0, code: 0 });
                self.out.push_back(Action::Drop { leg, graceful: true });
            }
        }
    }

    pub(super) fn expire_connects(&mut self, now: Time) {
        let late: Vec<u64> = self.connects.iter().filter(|(_, c)| c.deadline <= now).map(|(r, _)| *r).collect();
        for request in late {
            let Some(c) = self.connects.get(&request) else { continue };
            let Some(lane) = c.lanes.iter().find(|l| l.ready.is_none()) else { continue };
            let (hop, ms) = (lane.hops[0], now.saturating_sub(c.started) / MS);
            let what = match (lane.leg, lane.last_error.is_empty()) {
                (Some(_), true) => format!("no answer about the path to {} from {} for {ms} ms", c.peer, hop.to),
                (None, true) => format!("no answer from {} for {ms} ms on the way to {}", hop.to, c.peer),
                // A leg may just be there once more, and fare no better.
                (_, false) => {
                    format!(
                        "cannot reach {} from {} for {ms} ms on the way to {}: {}",
                        hop.to, hop.from, c.peer, lane.last_error
                    )
                }
            };
            // A leg that broke has said what to look at.
            let hint = if what.contains('?') { "" } else { "; is the job started on every node, and is the cable in?" };
            let what = format!("{what}{hint}");
            self.fail_connect(request, code::NO_ANSWER, what);
        }
    }
}
