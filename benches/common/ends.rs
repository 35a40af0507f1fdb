//! The two ends of a connection, mouth to ear: what one says the other hears at once.
//!
//! Knows no relay, link or clock: slots are credited as soon as they are filled. Run by the caller's thread.

use mesh_relay::recv::RecvFlow;
use mesh_relay::send::{Acks, MAX_LANES, SendFlow, SendMode, SendTarget};
use mesh_relay::wire::Clear;

use super::{CHUNK, CHUNKS, Outcome};

pub(crate) struct Ends {
    send: SendFlow,
    recv: RecvFlow,
    keys: Vec<u32>,
    acks: Acks,
    /// Last chunks that went out on each lane, in all.
    lasts: [u32; MAX_LANES],
}

impl Ends {
    pub(crate) fn new(mode: SendMode) -> Self {
        let (keys, acks) = (vec![7; mode.lanes.len()], mode.acks);
        let recv = RecvFlow::new(acks, u8::from(mode.chunk.is_some()));
        Self { send: SendFlow::new(mode), recv, keys, acks, lasts: [0; MAX_LANES] }
    }

    /// A message: posted at both ends, announced, written, noted, acknowledged, taken.
    pub(crate) fn message(&mut self) -> Outcome<()> {
        let len = u64::from(CHUNK) * u64::from(CHUNKS);
        let (there, seq) = self.recv.post(len).ok_or("no room to receive")?;
        let here = self.send.post(len).ok_or("no room to send")?;
        while let Some(due) = self.recv.poll_clear() {
            self.send.on_cts(&Clear::new(due, &self.keys, 0, len))?;
        }
        while let Some(write) = self.send.poll()? {
            self.send.on_written(write.lane, write.id);
            let note = match write.target {
                SendTarget::Buffer { note, .. } => note,
                SendTarget::Slot { slot, header } => {
                    self.send.on_credit(write.lane, slot)?;
                    self.lasts[usize::from(write.lane)] += u32::from(header.last);
                    if header.last && self.acks == Acks::Link {
                        self.send.on_done(write.lane, self.lasts[usize::from(write.lane)])?;
                    }
                    header.note()
                }
            };
            self.recv.on_note(note, u64::from(write.len))?;
        }
        if self.acks == Acks::Receiver {
            self.send.on_ack(self.recv.poll_ack().ok_or("not complete")?)?;
        }
        if (self.send.take(here), self.recv.take(there)) != (Some(len), Some(len)) {
            return Err(format!("message {seq} did not arrive").into());
        }
        Ok(())
    }
}
