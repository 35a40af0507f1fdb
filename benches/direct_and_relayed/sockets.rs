//! One TCP connection over loopback: blocking reads and writes, and the link's endpoints.
//!
//! The endpoints keep some writes open, land them in as many slots, and poll, yielding when there is nothing to do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use mesh_link::memory::Slab;
use mesh_link::tcp::{Limits, TcpEndpoint};
use mesh_link::{Event, Key, Target};

use crate::{DEPTH, Outcome, median};

fn pair() -> Outcome<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// Bytes per second of `write_all` and `read_exact`, over as many buffers as the endpoints use.
pub(crate) fn plain(size: usize, count: usize) -> Outcome<f64> {
    let (mut near, mut far) = pair()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || -> Outcome<()> {
            let buffers = vec![vec![1_u8; size]; DEPTH];
            for k in 0..count {
                near.write_all(&buffers[k % DEPTH])?;
            }
            Ok(())
        });
        let mut buffers = vec![vec![0_u8; size]; DEPTH];
        for k in 0..count {
            far.read_exact(&mut buffers[k % DEPTH])?;
        }
        sender.join().map_err(|_| "sender panicked")?
    })?;
    Ok((size * count) as f64 / begin.elapsed().as_secs_f64())
}

/// The same through a pair of endpoints; with the sender's system calls a write.
pub(crate) fn writes(size: usize, count: usize) -> Outcome<(f64, f64)> {
    let (near, far) = pair()?;
    let (mut near, mut far) = (TcpEndpoint::new(near, Limits::default())?, TcpEndpoint::new(far, Limits::default())?);
    let (from, into) = (Slab::new(DEPTH, size)?, Slab::new(DEPTH, size)?);
    for k in 0..DEPTH {
        from.slot(k).write_from(0, &vec![1; size]);
        into.slot(k).write_from(0, &vec![0; size]);
    }
    let keys: Vec<Key> = (0..DEPTH).map(|k| far.expose(into.slot(k))).collect::<Result<_, _>>()?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let from = &from;
        let sender = scope.spawn(move || -> Outcome<TcpEndpoint> {
            let (mut posted, mut written) = (0, 0);
            while written < count {
                while posted < count && posted - written < DEPTH {
                    let slot = posted % DEPTH;
                    let target = Target { key: keys[slot], offset: 0 };
                    near.post_write(posted as u64, None, from.slot(slot), target, Some(0))?;
                    posted += 1;
                }
                if !near.poll(|event| written += usize::from(matches!(event, Event::Written { .. })))? {
                    std::thread::yield_now();
                }
            }
            // Kept open until the other end has everything.
            Ok(near)
        });
        let mut notified = 0;
        while notified < count {
            if !far.poll(|event| notified += usize::from(matches!(event, Event::Notified { .. })))? {
                std::thread::yield_now();
            }
        }
        let time = begin.elapsed().as_secs_f64();
        let near = sender.join().map_err(|_| "sender panicked")??;
        Ok(((size * count) as f64 / time, near.counters().syscalls_out as f64 / count as f64))
    })
}

/// Half the median time of a message there and back between two threads, in seconds.
pub(crate) fn half_trip(size: usize, trips: usize) -> Outcome<f64> {
    let (mut near, mut far) = pair()?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> Outcome<()> {
            let mut buffer = vec![0; size];
            for _ in 0..trips {
                far.read_exact(&mut buffer)?;
                far.write_all(&buffer)?;
            }
            Ok(())
        });
        let (mut buffer, mut times) = (vec![1; size], Vec::with_capacity(trips));
        for _ in 0..trips {
            let begin = Instant::now();
            near.write_all(&buffer)?;
            near.read_exact(&mut buffer)?;
            times.push(begin.elapsed().as_secs_f64() / 2.0);
        }
        echo.join().map_err(|_| "echo panicked")??;
        Ok(median(&mut times))
    })
}
