//! What the owner of a node and the other processes of that node say to each other, as bytes.
//!
//! Little endian; every length is bounded before it is used. Pure; knows no sockets.
//!
//! ```text
//!   frame   length u32 (of what follows) | kind u8 | body
//!   1 hello     version u16 | the guest's TCP port u16 (0: it only looks) | its job u32 | rank u16  guest to owner, once
//!   2 view      the node's key u64 | n u16, n x (length u16 | advertisement)                        owner to guest, at every change
//!   3 refused   version u16                                                                         owner to guest, then it closes
//! ```

use crate::discovery::{Advert, AgentAt, MAX_ADVERT, WireError};
use crate::reader::Reader;

/// Version of these frames: processes of one host may run different builds.
pub(super) const VERSION: u16 = 1;
/// Longest frame: a view of as many nodes as discovery remembers.
const MAX_FRAME: usize = 16 + 1024 * (2 + MAX_ADVERT);

const HELLO: u8 = 1;
const VIEW: u8 = 2;
const REFUSED: u8 = 3;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Hello { version: u16, agent: AgentAt },
    View { key: u64, adverts: Vec<Advert> },
    Refused { version: u16 },
}

impl Frame {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        match self {
            Self::Hello { version, agent } => {
                out.push(HELLO);
                out.extend_from_slice(&version.to_le_bytes());
                out.extend_from_slice(&agent.port.to_le_bytes());
                out.extend_from_slice(&agent.job.to_le_bytes());
                out.extend_from_slice(&agent.rank.to_le_bytes());
            }
            Self::View { key, adverts } => return view(*key, adverts.iter()),
            Self::Refused { version } => {
                out.push(REFUSED);
                out.extend_from_slice(&version.to_le_bytes());
            }
        }
        finish(out)
    }
}

/// A view frame from advertisements that belong to somebody else.
pub(super) fn view<'a>(key: u64, adverts: impl Iterator<Item = &'a Advert>) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.push(VIEW);
    out.extend_from_slice(&key.to_le_bytes());
    let count = out.len();
    out.extend_from_slice(&[0, 0]);
    let mut n = 0_u16;
    for advert in adverts.take(1024) {
        let body = advert.encode();
        // The cast is exact: at most MAX_ADVERT.
        out.extend_from_slice(&(body.len() as u16).to_le_bytes());
        out.extend_from_slice(&body);
        n += 1;
    }
    out[count..count + 2].copy_from_slice(&n.to_le_bytes());
    finish(out)
}

fn finish(mut out: Vec<u8>) -> Vec<u8> {
    // The cast is exact: at most MAX_FRAME.
    let len = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&len.to_le_bytes());
    out
}

/// Bytes of a stream on their way to frames.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// The stream is none of ours: nothing more can be read from it.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, WireError> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len == 0 || len > MAX_FRAME {
            return Err(WireError::Bounds { field: "frame", value: len as u64, limit: MAX_FRAME as u64 });
        }
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let frame = decode(body);
        self.bytes.drain(..4 + len);
        frame.map(Some)
    }
}

fn decode(body: &[u8]) -> Result<Frame, WireError> {
    let mut r = Reader { bytes: body };
    let frame = match r.u8()? {
        HELLO => {
            let version = r.u16()?;
            Frame::Hello { version, agent: AgentAt { port: r.u16()?, job: r.u32()?, rank: r.u16()? } }
        }
        REFUSED => Frame::Refused { version: r.u16()? },
        VIEW => {
            let key = r.u64()?;
            let n = r.u16()?;
            let mut adverts = Vec::new();
            for _ in 0..n {
                let len = usize::from(r.u16()?);
                adverts.push(Advert::decode(r.slice(len)?)?);
            }
            Frame::View { key, adverts }
        }
        kind => return Err(WireError::Kind { kind }),
    };
    // A later build may say more in a frame that we know.
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advert(id: &str) -> Advert {
        Advert {
            id: id.into(),
            name: id.into(),
            incarnation: 1,
            seq: 2,
            relay: true,
            conflict: false,
            daemon: true,
            features: 3,
            ports: Vec::new(),
            adjacencies: Vec::new(),
            agents: vec![AgentAt { port: 4, job: 5, rank: 6 }],
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_pieces() {
        // given three frames in one stream
        let frames = [
            Frame::Hello { version: VERSION, agent: AgentAt { port: 47_001, job: 7, rank: 2 } },
            Frame::View { key: 9, adverts: vec![advert("a"), advert("b")] },
            Frame::Refused { version: 3 },
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        // when it comes in pieces of any one size
        for size in 1..bytes.len() {
            let mut inbox = Inbox::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(size) {
                inbox.feed(piece);
                while let Some(frame) = inbox.next().expect("sound") {
                    got.push(frame);
                }
            }
            // then the frames are the same
            assert_eq!(got, frames, "pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut inbox = Inbox::default();
            inbox.feed(bytes);
            inbox.next().is_err()
        };
        // a length of nothing, or beyond the bound; the bound itself waits for more
        assert!(refused(&[0, 0, 0, 0]));
        assert!(refused(&(MAX_FRAME as u32 + 1).to_le_bytes()));
        assert!(!refused(&(MAX_FRAME as u32).to_le_bytes()));
        // an unknown kind, a body that is too short, an advertisement that is none
        assert!(refused(&[1, 0, 0, 0, 77]));
        assert!(refused(&[2, 0, 0, 0, HELLO, 1]));
        assert!(refused(&[14, 0, 0, 0, VIEW, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 9]));
    }
}
