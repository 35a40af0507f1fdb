//! Waiting for descriptors, and waking a thread that does.
//!
//! A thin, level-triggered layer over epoll and eventfd. Knows nothing of links. A [`Poller`] is waited on by one thread; descriptors
//! may be added from any; a [`Waker`] may be used from any.
#![allow(unsafe_code, reason = "epoll and eventfd system calls")]

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most events that one wait returns.
const BATCH: usize = 64;

/// What to wait for. Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Bytes, a connection, or the end of the stream have arrived.
    pub read: bool,
    /// There is room to write, or a connection has been made.
    pub write: bool,
}

impl Interest {
    /// Reading only.
    pub const READ: Self = Self { read: true, write: false };
    /// Writing only.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const BOTH: Self = Self { read: true, write: true };
}

/// A descriptor that is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// As given when it was added.
    pub token: u64,
    /// Reading will not block.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
    /// The other side is gone, or there is an error: reading tells which.
    pub closed: bool,
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        Ok(Self { epoll: owned(fd)? })
    }

    /// Adds a descriptor, which must be removed before it is closed.
    pub fn add(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    /// Changes a descriptor's token and interest.
    pub fn modify(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    /// Removes a descriptor.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest { read: false, write: false })
    }

    fn control(&self, operation: libc::c_int, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let read = if interest.read { libc::EPOLLIN | libc::EPOLLRDHUP } else { 0 };
        let write = if interest.write { libc::EPOLLOUT } else { 0 };
        // The cast keeps the bits: the constants are the kernel's flag bits in a signed type.
        let mut event = libc::epoll_event { events: (read | write) as u32, u64: token };
        // SAFETY: the event lives during the call.
        check(unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), operation, fd, &raw mut event) })?;
        Ok(())
    }

    /// Waits until something is ready or the time is over, and fills `ready` from the start; returns how many, at most 64 a call. No
    /// time limit waits for ever; a limit of zero only looks; others are rounded up to milliseconds. An interruption by a signal
    /// counts as nothing ready.
    pub fn wait(&self, ready: &mut [Ready], timeout: Option<Duration>) -> io::Result<usize> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        let room = ready.len().min(BATCH);
        if room == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let ms = timeout.map_or(-1, |time| i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
        // SAFETY: there are at least `room` events, which is between 1 and 64, in the array.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), room as i32, ms) };
        let count = match check(count) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
            other => other?,
        };
        for (slot, event) in ready.iter_mut().zip(&events[..count]) {
            let has = |bits: i32| event.events & bits as u32 != 0;
            *slot = Ready {
                token: event.u64,
                readable: has(libc::EPOLLIN),
                writable: has(libc::EPOLLOUT),
                closed: has(libc::EPOLLHUP | libc::EPOLLRDHUP | libc::EPOLLERR),
            };
        }
        Ok(count)
    }
}

/// Wakes the thread that waits on a [`Poller`].
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    eventfd: File,
    /// The waiting thread was woken and has not cleared that yet, so that further wakes need no system call.
    woken: AtomicBool,
}

impl Waker {
    /// A waker for that poller, which reports it as readable under `token`.
    pub fn new(poller: &Poller, token: u64) -> io::Result<Self> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let eventfd = File::from(owned(fd)?);
        poller.add(eventfd.as_raw_fd(), token, Interest::READ)?;
        Ok(Self { shared: Arc::new(Shared { eventfd, woken: AtomicBool::new(false) }) })
    }

    /// Makes the current or the next wait return. What was stored before is visible to the thread after its
    /// [`clear`](Self::clear). Never blocks.
    pub fn wake(&self) {
        if !self.shared.woken.swap(true, Ordering::AcqRel) {
            // A full counter is the only way to fail, and then the descriptor is readable as it should be.
            let _ = (&self.shared.eventfd).write(&1_u64.to_ne_bytes());
        }
    }

    /// For the waiting thread, when the waker's token is ready: call it, then look for work.
    pub fn clear(&self) {
        // Nothing to read means that it is clear already. Reading comes first: a wake in between must find the mark still set, as its
        // work is seen by the look that follows, or unset, and then writes again.
        let _ = (&self.shared.eventfd).read(&mut [0; 8]);
        self.shared.woken.swap(false, Ordering::AcqRel);
    }
}

fn check(result: libc::c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY: the descriptor was made just now by the caller in this module, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    const LONG: Option<Duration> = Some(Duration::from_secs(30));

    #[test]
    fn readiness_follows_the_descriptor() {
        // given a connection, of which one end is watched
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut near, _) = listener.accept().unwrap();
        let poller = Poller::new().unwrap();
        let mut ready = [Ready::default(); 4];
        poller.add(near.as_raw_fd(), 7, Interest::READ).unwrap();
        assert_eq!(poller.wait(&mut ready, Some(Duration::ZERO)).unwrap(), 0);
        // when bytes arrive, then it is readable until they are taken
        far.write_all(b"x").unwrap();
        assert_eq!(poller.wait(&mut ready, LONG).unwrap(), 1);
        assert_eq!(ready[0], Ready { token: 7, readable: true, writable: false, closed: false });
        near.read_exact(&mut [0]).unwrap();
        assert_eq!(poller.wait(&mut ready, Some(Duration::ZERO)).unwrap(), 0);
        // when writing is asked for, then it is ready at once under the new token
        poller.modify(near.as_raw_fd(), 8, Interest::BOTH).unwrap();
        assert_eq!(poller.wait(&mut ready, LONG).unwrap(), 1);
        assert_eq!(ready[0], Ready { token: 8, readable: false, writable: true, closed: false });
        // when the far end closes, then that is told
        poller.modify(near.as_raw_fd(), 9, Interest::READ).unwrap();
        drop(far);
        assert_eq!(poller.wait(&mut ready, LONG).unwrap(), 1);
        assert!(ready[0].token == 9 && ready[0].closed && ready[0].readable);
        // when it is removed, then nothing is told
        poller.remove(near.as_raw_fd()).unwrap();
        assert_eq!(poller.wait(&mut ready, Some(Duration::ZERO)).unwrap(), 0);
    }

    #[test]
    fn many_wakes_are_one_and_none_is_lost() {
        // given a thread that sleeps until woken, and two that hand it work
        const WORK: usize = 20_000;
        let poller = Poller::new().unwrap();
        let waker = Waker::new(&poller, 1).unwrap();
        let posted = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let waker = waker.clone();
                    for _ in 0..WORK {
                        posted.fetch_add(1, Ordering::Relaxed);
                        waker.wake();
                    }
                });
            }
            // when it waits, clears and looks, then it sees all work and never sleeps through some
            let mut ready = [Ready::default(); 4];
            while posted.load(Ordering::Relaxed) < 2 * WORK {
                assert_eq!(poller.wait(&mut ready, LONG).unwrap(), 1, "a wake was lost");
                waker.clear();
            }
        });
        // then a clear without a wake does not block, and a later wake still works
        waker.clear();
        waker.clear();
        let mut ready = [Ready::default(); 1];
        assert_eq!(poller.wait(&mut ready, Some(Duration::ZERO)).unwrap(), 0);
        waker.wake();
        assert_eq!(poller.wait(&mut ready, LONG).unwrap(), 1);
    }

    #[test]
    fn a_wait_without_room_is_refused() {
        assert!(Poller::new().unwrap().wait(&mut [], None).is_err());
    }

    #[test]
    fn a_descriptor_that_is_not_open_is_refused() {
        let error = Poller::new().unwrap().add(-1, 0, Interest::READ).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}
