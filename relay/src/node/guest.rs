//! A guest of the node: a stream from its owner, on which views come.
//!
//! On the thread `mesh-node`.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;

use mesh_link::local;
use tracing::warn;

use super::frame::{Frame, Inbox, VERSION};
use crate::discovery::{AgentAt, View};

/// See the module.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) stream: UnixStream,
    inbox: Inbox,
}

/// What has come of a look at the stream.
#[derive(Debug)]
pub(super) enum Heard {
    /// Nothing more for now; the last view that came, if any did.
    View(Option<View>),
    /// The owner is gone.
    Gone,
    /// It will not have us: it runs another build.
    Refused,
}

impl Guest {
    /// Says who we are. Port 0: we only look.
    pub(super) fn greet(stream: UnixStream, agent: AgentAt) -> std::io::Result<Self> {
        let hello = Frame::Hello { version: VERSION, agent }.encode();
        // A few bytes on a fresh stream always fit.
        local::send(&stream, &hello)?;
        Ok(Self { stream, inbox: Inbox::default() })
    }

    pub(super) fn hear(&mut self, node: &str) -> Heard {
        let mut bytes = [0; 16 << 10];
        let mut view = None;
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Heard::Gone,
                Ok(n) => self.inbox.feed(&bytes[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Heard::View(view),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Heard::Gone,
            }
            loop {
                match self.inbox.next() {
                    Ok(Some(Frame::View { key, adverts })) => {
                        let all = adverts.iter().map(|advert| (crate::discovery::key_of(&advert.id), advert));
                        view = Some(View::of(key, all));
                    }
                    Ok(Some(Frame::Refused { version })) => {
                        warn!(
                            "mesh[W73] node {node}: the process that owns this node speaks version {version} to others of its host, this \
                             one {VERSION}: install the same build for all; this process knows its neighbours only"
                        );
                        return Heard::Refused;
                    }
                    Ok(Some(Frame::Hello { .. })) => {}
                    Ok(None) => break,
                    Err(e) => {
                        warn!("mesh[W73] node {node}: what the owner of this node says cannot be read: {e}");
                        return Heard::Refused;
                    }
                }
            }
        }
    }
}
