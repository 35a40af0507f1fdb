//! Who owns the node: takes its name on this host, or connects to the process that has it.
//!
//! At the start of a process, on its own thread, and again when an owner is gone. Waits for a moment at most.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use mesh_link::local;

use crate::agent::{AgentError, Listeners};

/// The name of a node on its host: processes with one scope are of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope(String);

impl Scope {
    /// Of the node on this TCP port. `node` is its name where it was set, so that one host may play several nodes, and `cluster` tells those
    /// of several make-believe clusters apart.
    pub fn new(port: u16, node: Option<&str>, cluster: Option<&str>) -> Self {
        let mut name = format!("nccl-mesh-{port}");
        for part in [cluster, node].into_iter().flatten() {
            name.push('-');
            name.push_str(part);
        }
        Self(name)
    }

    /// The name itself, in the abstract namespace.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// What this process is on its node.
#[derive(Debug)]
pub enum Claim {
    /// The owner: nobody else has the name while this lives.
    Owner(UnixListener, Scope),
    /// A guest of the process at the other end.
    Guest(UnixStream, Scope),
}

/// Why a process is neither owner nor guest yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum Missed {
    /// A process of this user has the name, and is not believed.
    #[error("the process that has its name belongs to user {0}")]
    Foreign(u32),
    /// The name is neither free nor answers, or the operating system refuses something.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// How often, and with which pause, somebody is looked for whose name is neither free nor answers: it is just going, or just coming.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(2);

impl Claim {
    /// Takes the name, or connects to who has it. Waits up to a tenth of a second where both fail.
    ///
    /// # Errors
    /// The name belongs to a process of another user that is not root, or the operating system refuses something.
    pub fn take(node: &str, scope: &Scope) -> Result<Self, AgentError> {
        let failed = |what, source| AgentError::System { node: node.to_owned(), what, source };
        let mut last = None;
        for _ in 0..TRIES {
            match Self::attempt(scope) {
                Ok(claim) => return Ok(claim),
                Err(Missed::Foreign(user)) => {
                    return Err(AgentError::OtherUser { node: node.to_owned(), user, name: scope.0.clone() });
                }
                Err(Missed::System(e)) => last = Some(e),
            }
            std::thread::sleep(PAUSE);
        }
        Err(failed("the name of the node on this host", last.unwrap_or_else(|| ErrorKind::TimedOut.into())))
    }

    /// Once, without waiting. An owner is believed only if it is of the same user, or root's.
    pub(super) fn attempt(scope: &Scope) -> Result<Self, Missed> {
        match local::listen(&scope.0) {
            Ok(listener) => return Ok(Self::Owner(listener, scope.clone())),
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            Err(e) => return Err(e.into()),
        }
        let stream = local::connect(&scope.0)?;
        let user = local::peer_user(&stream)?;
        if user != 0 && user != local::own_user() {
            return Err(Missed::Foreign(user));
        }
        Ok(Self::Guest(stream, scope.clone()))
    }

    /// The sockets of this process's agent: on the shared port for an owner, on any for a guest.
    ///
    /// # Errors
    /// Those of [`Listeners::open`].
    pub fn listeners(&self, node: &str, ports: &[(Ipv4Addr, u8)], shared: u16) -> Result<Listeners, AgentError> {
        Listeners::open(node, ports, if matches!(self, Self::Owner(..)) { shared } else { 0 })
    }

    /// Whether it is the owner.
    pub const fn owns(&self) -> bool {
        matches!(self, Self::Owner(..))
    }
}
