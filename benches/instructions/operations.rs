//! What is counted: operations on the path of a chunk or a message, each as a round that can be repeated for ever.
//!
//! Knows nothing of counting; run by the caller's thread. A round that does not do what its name says is an error, and what is too small
//! to check in every round was checked before the first.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use mesh_relay::board::{BOARD_PLACES, Layout};
use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, SendFlow, SendLane, SendMode, SendTarget};
use mesh_relay::wire::{ChunkHeader, Clear, Msg, messages};

use crate::common::ends::Ends;
use crate::common::relay::Relay;
use crate::common::{CHUNK, CHUNKS, Outcome};
use crate::turns::Turns;

/// Small things are done so often in a round that the loop around them does not count.
const MANY: u32 = 64;

pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// How often a round does it.
    pub(crate) times: u32,
    pub(crate) round: Box<dyn FnMut() -> Outcome<()>>,
}

fn operation(name: &'static str, times: u32, round: impl FnMut() -> Outcome<()> + 'static) -> Operation {
    Operation { name, times, round: Box::new(round) }
}

/// Something small.
fn small(name: &'static str, mut step: impl FnMut() -> Outcome<()> + 'static) -> Operation {
    operation(name, MANY, move || (0..MANY).try_for_each(|_| step()))
}

/// All, in the order in which they are told.
pub(crate) fn all() -> Outcome<Vec<Operation>> {
    let mut all = wire()?;
    all.push(chunk_at_a_sender());
    all.extend(relays()?);
    all.extend(ends());
    all.extend(idle()?);
    Ok(all)
}

fn same<T: PartialEq + ?Sized>(what: &str, a: &T, b: &T) -> Outcome<()> {
    if a == b { Ok(()) } else { Err(format!("{what} is decoded as something else").into()) }
}

/// Headers and messages as bytes.
fn wire() -> Outcome<Vec<Operation>> {
    let header = ChunkHeader { stream: 3, seq: 7, at: 4096, len: CHUNK, key: 1, parts: 1, last: true };
    let bytes = header.encode();
    same("a header", &ChunkHeader::decode(&bytes, CHUNK)?, &header)?;
    let cts = Msg::Cts { stream: 3, clear: Clear::new(7, &[5], 1 << 40, 1 << 20) };
    let (mut out, mut clear) = (Vec::new(), Vec::new());
    cts.encode(&mut clear);
    same("a clear-to-send", &Msg::decode(&clear)?, &cts)?;
    let told = [Msg::Credit { n: 8, slots: std::array::from_fn(|n| n as u16 % 8) }, Msg::Done { stream: 0, count: 7 }];
    let mut frame = Vec::new();
    told.iter().for_each(|msg| msg.append(&mut frame));
    let heard = messages(&frame).collect::<Result<Vec<_>, _>>()?;
    let Some(Msg::Credit { n: 8, slots }) = heard.first() else { return Err("the credits are not there".into()) };
    same("a list of credits", &slots[..8], &[0, 1, 2, 3, 4, 5, 6, 7][..])?;
    same("a count of deliveries", &heard[1..], &told[1..])?;
    Ok(vec![
        small("a chunk's header, encoded", move || {
            black_box(black_box(header).encode());
            Ok(())
        }),
        small("a chunk's header, decoded", move || {
            black_box(ChunkHeader::decode(black_box(&bytes), CHUNK)?);
            Ok(())
        }),
        small("a clear-to-send, encoded", move || {
            black_box(&cts).encode(&mut out);
            black_box(&out);
            Ok(())
        }),
        small("a clear-to-send, decoded", move || {
            black_box(Msg::decode(black_box(&clear))?);
            Ok(())
        }),
        small("a frame of 8 credits and a count of deliveries, decoded", move || {
            for msg in messages(black_box(&frame)) {
                black_box(msg?);
            }
            Ok(())
        }),
    ])
}

/// Long messages at a sender with few slots, so that what a chunk needs is nearly all.
fn chunk_at_a_sender() -> Operation {
    let mut flow = SendFlow::new(SendMode::relayed(CHUNK, CHUNKS, Acks::Link));
    let (len, mut seq) = (u64::from(CHUNK) * u64::from(MANY), 0);
    operation("a chunk at its sender: slot filled, written, credited", MANY, move || {
        let place = flow.post(len).ok_or("no room to send")?;
        flow.on_cts(&Clear::new(seq, &[7], 0, len))?;
        let mut chunks = 0;
        while let Some(write) = flow.poll()? {
            let SendTarget::Slot { slot, .. } = write.target else { return Err("not into a slot".into()) };
            flow.on_written(write.lane, write.id);
            flow.on_credit(write.lane, slot)?;
            chunks += 1;
        }
        seq += 1;
        flow.on_done(0, seq)?;
        if (chunks, flow.take(place)) != (MANY, Some(len)) {
            return Err(format!("{chunks} chunks of {MANY}").into());
        }
        Ok(())
    })
}

fn relays() -> Outcome<Vec<Operation>> {
    let (mut last, mut trunk) = (Relay::new(2, Acks::Link)?, Relay::new(3, Acks::Link)?);
    let (mut few, mut many) = (Turns::new(8)?, Turns::new(128)?);
    let chunks = u32::from(CHUNKS);
    Ok(vec![
        operation("a chunk at the last relay: in, delivered, written, counted, credited", chunks, move || {
            last.message()
        }),
        operation("a chunk at a relay before a trunk: in, forwarded, written, credited", chunks, move || {
            trunk.message()
        }),
        operation("a turn on a trunk that 64 streams want, 8 slots", 1, move || few.turn()),
        operation("a turn on a trunk that 64 streams want, 128 slots", 1, move || many.turn()),
    ])
}

/// Messages of 4 chunks' length from post to take, both ends together.
fn ends() -> Vec<Operation> {
    let lanes = vec![SendLane { weight: 1, slots: CHUNKS }; 2];
    let modes = [
        ("a message at its two ends, direct", SendMode::direct(1, 1 << 16, Acks::Link)),
        ("a message at its two ends, direct over two rails", SendMode::direct(2, 512, Acks::Link)),
        ("a message at its two ends, over relays in 4 chunks", SendMode::relayed(CHUNK, CHUNKS, Acks::Link)),
        (
            "a message at its two ends, over two lanes with relays",
            SendMode { lanes, chunk: Some(CHUNK), stripe: 512, acks: Acks::Link },
        ),
    ];
    let all = modes.into_iter().map(|(name, mode)| {
        let mut ends = Ends::new(mode);
        operation(name, 1, move || ends.message())
    });
    all.collect()
}

/// What a user's test asks again and again while nothing comes.
fn idle() -> Outcome<Vec<Operation>> {
    let mut send = SendFlow::new(SendMode::direct(1, 1 << 16, Acks::Link));
    let sent = send.post(8).ok_or("no room to send")?;
    let mut recv = RecvFlow::new(Acks::Link, 0);
    let (posted, _) = recv.post(8).ok_or("no room to receive")?;
    recv.poll_clear().ok_or("nothing to announce")?;
    let layout = Layout::new(1);
    let words = layout.place() * BOARD_PLACES as usize / 8;
    let board: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    Ok(vec![
        small("a look at a sender with nothing to do", move || {
            let flow = black_box(&mut send);
            if flow.poll()?.is_some() || flow.take(sent).is_some() { Err("something to do".into()) } else { Ok(()) }
        }),
        small("a look at a receiver with nothing to do", move || {
            let flow = black_box(&mut recv);
            let busy = flow.poll_clear().is_some() || flow.poll_ack().is_some() || flow.take(posted).is_some();
            if busy { Err("something to do".into()) } else { Ok(()) }
        }),
        small("a look at an empty place of a board", move || {
            let load = |at: usize| board[at / 8].load(Ordering::Relaxed);
            match layout.read(black_box(5), load, || fence(Ordering::Acquire)) {
                Some(_) => Err("a clear-to-send that nobody left".into()),
                None => Ok(()),
            }
        }),
    ])
}
