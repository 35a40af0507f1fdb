//! Copies between the memory of this process and another's, without the other's help.
//!
//! Also within one process: the kernel then refuses bad addresses where a plain copy would crash. Any thread.

use std::io;

/// A stretch of memory: address and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// Which way to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From here to there.
    Out,
    /// From there to here.
    In,
}

/// Longest copy whose words of eight bytes arrive whole and in rising order.
const WORDWISE: u64 = 128;
/// Most stretches of one system call.
const BATCH: usize = 512;

/// Copies as many bytes as `here` and `there` hold (both the same) between this process and the process `pid`.
///
/// Copies of up to 128 bytes write whole aligned words of eight bytes in rising order, since programs poll memory that peers
/// write: they may see some words new and some old, but the new ones first.
///
/// # Errors
/// What the system call said: `ESRCH` if the process is gone, `EFAULT` if an address on either side cannot be reached (part of
/// the data may have been copied), `EPERM` if the kernel forbids it.
pub fn copy(pid: i32, way: Way, here: &[Span], there: &[Span]) -> io::Result<()> {
    let total: u64 = here.iter().map(|span| span.length).sum();
    debug_assert_eq!(total, there.iter().map(|span| span.length).sum::<u64>(), "both sides hold the same");
    // Only the vector of the own side is cut: each stretch of the other costs the kernel a look-up of its page.
    let mut here = if total <= WORDWISE && way == Way::Out { words(here, there) } else { vectors(here) };
    let mut there = vectors(there);
    let (mut here, mut there) = (&mut here[..], &mut there[..]);
    let mut left = total;
    while left > 0 {
        let done = call(pid, way, &here[..here.len().min(BATCH)], &there[..there.len().min(BATCH)])?;
        if done == 0 {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        }
        left -= done;
        here = advance(here, done);
        there = advance(there, done);
    }
    Ok(())
}

/// Whether the process can be reached: reads one byte at `address` of it.
///
/// # Errors
/// As [`copy`].
pub fn probe(pid: i32, address: u64) -> io::Result<()> {
    let mut byte = 0u8;
    let here = [Span { address: (&raw mut byte).addr() as u64, length: 1 }];
    copy(pid, Way::In, &here, &[Span { address, length: 1 }])
}

fn call(pid: i32, way: Way, here: &[libc::iovec], there: &[libc::iovec]) -> io::Result<u64> {
    loop {
        let (own, own_count) = (here.as_ptr(), here.len() as libc::c_ulong);
        let (other, other_count) = (there.as_ptr(), there.len() as libc::c_ulong);
        // SAFETY: both vectors are valid for the call. Memory that it writes in this process is what the program registered or
        // posted for that purpose, or a local of `probe`; addresses that are not mapped make it fail, not crash.
        let done = unsafe {
            match way {
                Way::Out => libc::process_vm_writev(pid, own, own_count, other, other_count, 0),
                Way::In => libc::process_vm_readv(pid, own, own_count, other, other_count, 0),
            }
        };
        if done >= 0 {
            return Ok(done as u64);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn vectors(spans: &[Span]) -> Vec<libc::iovec> {
    spans.iter().filter(|span| span.length > 0).map(vector).collect()
}

fn vector(span: &Span) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(span.address as usize),
        iov_len: span.length as usize,
    }
}

/// The own side cut where the other side's words of eight bytes begin.
fn words(here: &[Span], there: &[Span]) -> Vec<libc::iovec> {
    let mut cuts = Vec::with_capacity(here.len() + there.len() + (WORDWISE / 8) as usize);
    let (mut target, mut passed) = (0, 0);
    for span in here {
        let (mut address, mut left) = (span.address, span.length);
        while left > 0 {
            while target < there.len() && passed == there[target].length {
                (target, passed) = (target + 1, 0);
            }
            let Some(other) = there.get(target) else { break };
            let to_word = 8 - (other.address + passed) % 8;
            let piece = left.min(to_word).min(other.length - passed);
            cuts.push(vector(&Span { address, length: piece }));
            (address, left, passed) = (address + piece, left - piece, passed + piece);
        }
    }
    cuts
}

/// What is left of the vectors behind their first `done` bytes.
fn advance(mut vectors: &mut [libc::iovec], mut done: u64) -> &mut [libc::iovec] {
    while let Some(first) = vectors.first_mut() {
        let length = first.iov_len as u64;
        if done < length {
            first.iov_base = first.iov_base.wrapping_byte_add(done as usize);
            first.iov_len -= done as usize;
            break;
        }
        done -= length;
        vectors = &mut vectors[1..];
    }
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(bytes: &mut [u8]) -> Span {
        Span { address: bytes.as_mut_ptr().expose_provenance() as u64, length: bytes.len() as u64 }
    }

    fn own_pid() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn copies_scattered_to_scattered_of_any_length() {
        // given stretches cut differently on both sides, shorter and longer than what is copied word by word
        for total in [0usize, 1, 7, 8, 9, 127, 128, 129, 1000, 100_000] {
            let mut from: Vec<u8> = (0..total).map(|at| (at * 7 + 1) as u8).collect();
            let mut to = vec![0u8; total];
            let (cut_from, cut_to) = (total / 3, total / 2);
            let here = [span(&mut from[..cut_from]), span(&mut from[cut_from..])];
            let there = [span(&mut to[..cut_to]), span(&mut to[cut_to..])];
            // when they are copied out, then all bytes are there
            copy(own_pid(), Way::Out, &here, &there).expect("own memory");
            assert_eq!(from, to, "{total} bytes");
            // and when zeros are copied back in, then the source is zero
            to.fill(0);
            let (here, there) = (
                [span(&mut from[..cut_from]), span(&mut from[cut_from..])],
                [span(&mut to[..cut_to]), span(&mut to[cut_to..])],
            );
            copy(own_pid(), Way::In, &here, &there).expect("own memory");
            assert!(from.iter().all(|&byte| byte == 0), "{total} bytes");
        }
    }

    #[test]
    fn more_stretches_than_one_call_takes() {
        // given more stretches than a system call takes, and one on the other side
        let mut from: Vec<u8> = (0..4000).map(|at| at as u8).collect();
        let mut to = vec![0u8; 4000];
        let here: Vec<Span> = from.chunks_mut(3).map(span).collect();
        assert!(here.len() > 2 * BATCH);
        // when copied, then all arrives
        copy(own_pid(), Way::Out, &here, &[span(&mut to)]).expect("own memory");
        assert_eq!(from, to);
    }

    #[test]
    fn small_copies_are_cut_at_the_targets_words() {
        // given a target that begins three bytes before a word
        let here = [Span { address: 1000, length: 20 }];
        let there = [Span { address: 4096 + 5, length: 20 }];
        // when the own side is cut, then pieces end where words of the target begin
        let lengths: Vec<usize> = words(&here, &there).iter().map(|cut| cut.iov_len).collect();
        assert_eq!(lengths, [3, 8, 8, 1]);
    }

    #[test]
    fn bad_addresses_and_dead_processes_are_errors() {
        // given an address that is never mapped, and a process that cannot exist
        let mut bytes = [0u8; 16];
        let there = [Span { address: 16, length: 16 }];
        let error = copy(own_pid(), Way::Out, &[span(&mut bytes)], &there).expect_err("unmapped");
        assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
        let error = probe(0x7fff_ffff, 4096).expect_err("no process");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    }
}
