//! A node's part in a measurement: its progress thread measures points as the parent says them; one that only relays counts what that
//! cost.
//!
//! Knows the parent's messages and the two ends of its connections.

use std::time::Instant;

use super::duplex::{Duplex, DuplexError, Messages, Waiting};
use super::latency::{distribution, fast_rate};
use super::placement::pin_thread;
use super::point::{BenchWork, Measure, Point, PointResult, RelayCost, SETTLE, parts};
use crate::harness::counters::Counters;
use crate::harness::executor::Ends;
use crate::harness::messages::{FromNode, Setup, ToNode};
use crate::harness::node::Parent;
use crate::harness::plugin_ends::{PluginIncoming, PluginOutgoing};
use crate::harness::sys;
use crate::harness::transport::{Incoming, Outgoing};

/// Measures points until the parent wants no more, then gives the connections back.
pub(in crate::harness) fn points(
    setup: &Setup,
    work: &BenchWork,
    mut outgoing: Ends<PluginOutgoing>,
    mut incoming: Ends<PluginIncoming>,
    counters: &Counters,
    parent: &Parent,
) -> Result<(Ends<PluginOutgoing>, Ends<PluginIncoming>), String> {
    if let Some(core) = work.core {
        pin_thread(core)?;
    }
    let waiting = Waiting { spins: work.spins, limit: setup.limit };
    let meet = || parent.meet();
    let mut end = match (setup.rank, outgoing.pop(), incoming.pop()) {
        (Some(rank), Some((way, outgoing)), Some((_, incoming))) => {
            Some((way, End { rank, duplex: Duplex::new(outgoing, incoming, waiting), meet }))
        }
        (None, None, None) => None,
        _ => return Err("an end has one connection each way, a relay none".to_owned()),
    };
    loop {
        match (parent.next()?, &mut end) {
            (ToNode::Point(point), Some((_, end))) => parent.tell(&FromNode::Point(end.point(&point)?))?,
            (ToNode::Point(point), None) => parent.tell(&FromNode::Point(relay(&point, counters, meet)?))?,
            (ToNode::Finish, _) => break,
            (other, _) => return Err(format!("expected a point, got {other:?}")),
        }
    }
    let Some((way, end)) = end else { return Ok((Vec::new(), Vec::new())) };
    let (outgoing, incoming) = end.duplex.into_ends();
    Ok((vec![(way, outgoing)], vec![(way, incoming)]))
}

/// How often all meet at a point.
const fn meetings(measure: Measure) -> usize {
    match measure {
        Measure::PingPong { .. } | Measure::Stream { .. } => 2,
        Measure::Idle { .. } => 4,
    }
}

fn relay(point: &Point, counters: &Counters, meet: impl Fn() -> Result<(), String>) -> Result<PointResult, String> {
    // Reading the counters costs time too, so that is done outside.
    let before = counters.read()?;
    meet()?;
    let started = sys::own_processor_time();
    for _ in 1..meetings(point.measure) {
        meet()?;
    }
    let used = sys::own_processor_time().saturating_sub(started);
    let relay = match (before, counters.read()?) {
        (Some(before), Some(after)) => {
            let cpu_ns = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
            Some(RelayCost { cpu_ns, chunks: after.since(&before).forwarded_chunks })
        }
        _ => None,
    };
    Ok(PointResult { relay, ..PointResult::default() })
}

/// One of the two ends: rank 0 begins, rank 1 answers. `meet` waits for all nodes.
struct End<O, I, M> {
    rank: usize,
    duplex: Duplex<O, I>,
    meet: M,
}

impl<O: Outgoing, I: Incoming, M: Fn() -> Result<(), String>> End<O, I, M> {
    fn point(&mut self, point: &Point) -> Result<PointResult, String> {
        let (own, other) = (self.rank as u32 & 1, 1 - (self.rank as u32 & 1));
        let messages = Messages {
            bytes: point.bytes,
            out: point.first.wrapping_add(own),
            into: point.first.wrapping_add(other),
            check: point.check,
        };
        let mut result = PointResult::default();
        match point.measure {
            Measure::PingPong { rounds } => result.latency = self.ping_pong(messages, rounds + SETTLE)?,
            Measure::Stream { messages: count, depth } => {
                if let Some((seconds, fast)) = self.stream(messages, count, depth)? {
                    (result.stream_seconds, result.stream_p90) = (Some(seconds), fast);
                }
            }
            Measure::Idle { calls } => result.test_ns = Some(self.idle(messages, calls)?),
        }
        (result.checked_bytes, result.wrong_bytes) = self.duplex.take_checked();
        Ok(result)
    }

    fn ping_pong(&mut self, messages: Messages, rounds: usize) -> Result<Option<super::point::Latency>, String> {
        // Written once before, so that the loop touches no new page.
        let mut ends_of_rounds = vec![Instant::now(); if self.rank == 0 { rounds } else { 0 }];
        self.duplex.post_ahead(rounds).map_err(text)?;
        (self.meet)()?;
        if self.rank == 0 {
            self.duplex.ping(messages, &mut ends_of_rounds).map_err(text)?;
        } else {
            self.duplex.pong(messages, rounds).map_err(text)?;
        }
        (self.meet)()?;
        Ok(distribution(ends_of_rounds.get(SETTLE - 1..).unwrap_or_default()))
    }

    fn stream(&mut self, messages: Messages, count: usize, depth: usize) -> Result<Option<(f64, Option<f64>)>, String> {
        let mut moments = vec![Instant::now(); parts(count)];
        if self.rank != 0 {
            self.duplex.post_ahead(count).map_err(text)?;
        }
        (self.meet)()?;
        let started = Instant::now();
        if self.rank == 0 {
            self.duplex.stream_out(messages, count, depth, &mut moments).map_err(text)?;
        } else {
            self.duplex.stream_in(messages, count).map_err(text)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        (self.meet)()?;
        let fast = fast_rate(&moments, count.checked_div(moments.len()).unwrap_or_default());
        Ok((self.rank == 0).then_some((seconds, fast)))
    }

    fn idle(&mut self, mut messages: Messages, calls: usize) -> Result<f64, String> {
        (self.meet)()?;
        let mut time = None;
        if self.rank != 0 {
            self.duplex.post_ahead(1).map_err(text)?;
            time = Some(self.duplex.idle_receive(calls).map_err(text)?);
        }
        (self.meet)()?;
        if self.rank == 0 {
            self.duplex.send(&mut messages).map_err(text)?;
            self.duplex.await_gone().map_err(text)?;
            self.duplex.send(&mut messages).map_err(text)?;
            time = Some(self.duplex.idle_send(calls).map_err(text)?);
        } else {
            self.duplex.receive(&mut messages).map_err(text)?;
        }
        (self.meet)()?;
        if self.rank == 0 {
            self.duplex.await_gone().map_err(text)?;
        } else {
            self.duplex.post_ahead(1).map_err(text)?;
            self.duplex.receive(&mut messages).map_err(text)?;
        }
        (self.meet)()?;
        Ok(time.unwrap_or_default().as_secs_f64() * 1e9 / calls.max(1) as f64)
    }
}

fn text(error: DuplexError) -> String {
    error.to_string()
}
