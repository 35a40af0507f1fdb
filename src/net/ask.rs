//! Asking the processes of this host's node what they see, all at once and for a bounded time.
//!
//! For the command `nccl-mesh`. Waits; never called by NCCL's threads. Believes nothing that it reads: lengths are bounded, and who is
//! at the other end the kernel says.

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mesh_link::local;

use super::{node, status};
use crate::settings;

/// Longest answer that is taken.
const LONGEST: usize = 16 << 20;

/// What came of asking one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its number.
    pub process: u32,
    /// Its user; `None` if nobody says.
    pub user: Option<u32>,
    /// What it sees, a JSON object a line; or why it does not say.
    pub answer: Result<String, String>,
}

/// The processes of this node, by number, and the name that they share. None if there are none.
///
/// # Errors
/// The operating system does not list the names of its sockets.
pub fn ask(limit: Duration) -> std::io::Result<(String, Vec<Asked>)> {
    let scope = node::scope(settings::get());
    let list = std::fs::read_to_string("/proc/net/unix")?;
    let processes = listed(&list, &status::name(&scope, 0));
    let until = Instant::now() + limit;
    let mut asking: Vec<_> = processes.iter().map(|process| Asking::begin(&status::name(&scope, *process))).collect();
    while asking.iter_mut().any(|one| !one.is_over()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = processes.into_iter().zip(asking);
    let all = ended.filter_map(|(process, one)| one.end(process, limit)).collect();
    Ok((scope.name().to_owned(), all))
}

/// The names of other nodes that processes of this host have, as their settings make them. For who finds nobody.
pub fn others() -> Vec<String> {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = names(&list).filter(|name| name.starts_with("nccl-mesh-"));
    let mut nodes: Vec<_> = names.filter_map(|name| Some(name.rsplit_once(',')?.0.to_owned())).collect();
    nodes.sort();
    nodes.dedup();
    nodes
}

/// Names in the abstract namespace that somebody listens by.
fn names(list: &str) -> impl Iterator<Item = &str> {
    // Streams to who listens have the name as well, without this flag.
    list.lines()
        .filter(|line| line.split(' ').nth(3) == Some("00010000"))
        .filter_map(|line| Some(line.split_once(" @")?.1))
}

/// Numbers of the processes whose names are as this one, which ends with a number.
fn listed(list: &str, like: &str) -> Vec<u32> {
    let stem = like.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut all: Vec<u32> = names(list).filter_map(|name| name.strip_prefix(stem)?.parse().ok()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// One process being asked.
#[derive(Debug)]
enum Asking {
    /// Its answer so far.
    Reads {
        stream: UnixStream,
        user: Option<u32>,
        process: u32,
        bytes: Vec<u8>,
    },
    Over {
        user: Option<u32>,
        answer: Result<String, String>,
    },
    /// It ended before it was asked.
    Gone,
}

impl Asking {
    fn begin(name: &str) -> Self {
        let stream = match local::connect(name) {
            Ok(stream) => stream,
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => return Self::Gone,
            Err(e) => return Self::Over { user: None, answer: Err(format!("cannot be asked: {e}")) },
        };
        let user = local::peer_user(&stream).ok();
        let own = local::own_user();
        match user {
            Some(user) if own != 0 && user != own && user != 0 => Self::Over {
                user: Some(user),
                answer: Err(format!("belongs to user {user}: ask as that user or as root")),
            },
            _ => {
                let process = local::peer_process(&stream).unwrap_or(0);
                Self::Reads { stream, user, process, bytes: Vec::new() }
            }
        }
    }

    /// Takes what has come; whether that is all.
    fn is_over(&mut self) -> bool {
        let Self::Reads { stream, user, bytes, .. } = self else { return true };
        let mut piece = [0; 64 << 10];
        let ended = loop {
            match stream.read(&mut piece) {
                Ok(0) => break true,
                Ok(n) => bytes.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break true,
            }
            if bytes.len() > LONGEST {
                break true;
            }
        };
        if let Some(answer) = whole(bytes, ended, *user) {
            *self = Self::Over { user: *user, answer };
            return true;
        }
        false
    }

    /// What came of it; `None` if the process was gone.
    fn end(self, process: u32, limit: Duration) -> Option<Asked> {
        let (user, answer) = match self {
            Self::Gone => return None,
            Self::Over { user, answer } => (user, answer),
            Self::Reads { user, process, .. } => (user, Err(silence(process, limit))),
        };
        Some(Asked { process, user, answer })
    }
}

/// The answer, if it is all there or nothing more comes.
fn whole(bytes: &[u8], ended: bool, user: Option<u32>) -> Option<Result<String, String>> {
    let Some((head, text)) = bytes.split_at_checked(8) else {
        let why = match user {
            Some(user) if bytes.is_empty() && user != local::own_user() && local::own_user() != 0 => {
                format!("belongs to user {user}: ask as that user or as root")
            }
            _ => "ended while it was asked".to_owned(),
        };
        return ended.then_some(Err(why));
    };
    let (magic, len) = head.split_at(4);
    let len = u32::from_le_bytes(len.try_into().unwrap_or_default()) as usize;
    if magic != status::MAGIC || len > LONGEST || text.len() > len {
        return Some(Err("answers something else: it is another program, or another build".to_owned()));
    }
    if text.len() < len {
        return ended.then(|| Err("broke off".to_owned()));
    }
    Some(std::str::from_utf8(text).map(str::to_owned).map_err(|_| "answers something else".to_owned()))
}

/// Why a process may be silent, by what the kernel says of it.
fn silence(process: u32, limit: Duration) -> String {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let state = text.lines().find_map(|line| line.strip_prefix("State:")).map(str::trim);
    let seconds = limit.as_secs_f64();
    match state {
        Some(state) => format!("does not answer within {seconds} s: its state is {state}"),
        None => format!("does not answer within {seconds} s: it is gone, and a child of it still has its sockets"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 20422 @nccl-mesh-17917-a
0000000000000000: 00000002 00000000 00010000 0001 01 20423 @nccl-mesh-17917-a,42
0000000000000000: 00000003 00000000 00000000 0001 03 20424 @nccl-mesh-17917-a,42
0000000000000000: 00000002 00000000 00010000 0001 01 20425 @nccl-mesh-17917-a,7
0000000000000000: 00000002 00000000 00010000 0001 01 20426 @nccl-mesh-17917-a-b,43
0000000000000000: 00000002 00000000 00010000 0001 01    27 @nccl-mesh-17917,44
0000000000000000: 00000002 00000000 00010000 0001 01 20428 /run/nccl-mesh-17917-a,45
0000000000000000: 00000002 00000000 00010000 0001 01 20429 @nccl-mesh-17917-a,4x
";

    #[test]
    fn the_processes_of_one_node_are_told_from_those_of_others() {
        assert_eq!(listed(LIST, "nccl-mesh-17917-a,0"), [7, 42]);
        assert_eq!(listed(LIST, "nccl-mesh-17917,0"), [44]);
        assert_eq!(listed(LIST, "nccl-mesh-17918,0"), [0; 0]);
    }

    #[test]
    fn an_answer_is_taken_when_it_is_whole_and_refused_when_it_is_none() {
        let said = |bytes: &[u8], ended| whole(bytes, ended, None);
        // given an answer in pieces, then it is waited for, and one that breaks off is none
        let sound = b"MSHS\x02\0\0\0{}";
        assert_eq!(said(&sound[..3], false), None);
        assert_eq!(said(&sound[..9], false), None);
        assert!(said(&sound[..9], true).is_some_and(|answer| answer.is_err()));
        assert!(said(b"", true).is_some_and(|answer| answer.is_err()));
        assert_eq!(said(sound, false), Some(Ok("{}".to_owned())));
        // given what says to be longer than anything may be, goes on beyond its length, or is something else, then it is refused at once
        for bytes in [&b"MSHS\xff\xff\xff\xff"[..], b"MSHS\x02\0\0\0{}}", b"HTTP/1.1 400", b"MSHS\x01\0\0\0\xff"] {
            assert!(said(bytes, false).is_some_and(|answer| answer.is_err()), "{bytes:?}");
        }
    }

    #[test]
    fn who_has_a_name_and_says_nothing_is_not_waited_for_for_ever() {
        // given somebody who listens and takes nobody
        let name = format!("nccl-mesh-test-silent-{}", std::process::id());
        let listener = local::listen(&name).expect("free");
        let mut asking = Asking::begin(&name);
        assert!(!asking.is_over());
        // then it is said of that process that it does not answer, and as what the kernel has it
        let asked = asking.end(3, Duration::from_millis(1500)).expect("it is there");
        let why = asked.answer.expect_err("nothing was said");
        assert!(why.starts_with("does not answer within 1.5 s: its state is "), "{why}");
        assert_eq!((asked.process, asked.user), (3, Some(local::own_user())));
        // given one that is gone, then it is not among them
        drop(listener);
        assert_eq!(Asking::begin(&name).end(3, Duration::ZERO), None);
    }
}
