//! The bootstrap of the test's nodes: a store of named byte strings on rank 0, over TCP on 127.0.0.1.
//!
//! Knows nothing of plugins. A node's end belongs to its test thread; the hub has a thread a node.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const PUT: u8 = b'P';
/// Waits until somebody has put it.
const GET: u8 = b'G';
/// Longest name or value.
const LIMIT: u32 = 1 << 16;

const GONE: &str = "the hub is gone";

type Store = Arc<(Mutex<HashMap<String, Vec<u8>>>, Condvar)>;

/// A node's end.
#[derive(Debug)]
pub(crate) struct Hub {
    stream: Mutex<TcpStream>,
    rank: usize,
    world: usize,
}

impl Hub {
    /// Joins; rank 0 opens it.
    pub(crate) fn join(rank: usize, world: usize, port: u16) -> Self {
        if rank == 0 {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port was free a moment ago");
            let store = Store::default();
            for _ in 0..world {
                // The queue of the listener holds them until the thread gets to them.
                let (listener, store) = (listener.try_clone().unwrap(), Arc::clone(&store));
                std::thread::spawn(move || {
                    let (stream, _) = listener.accept().expect("a listening socket");
                    drop(listener);
                    // An end that closes is a node that ended.
                    let _ = serve(stream, &store);
                });
            }
        }
        let stream = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                // Before the hub listens, a connection to a port of this range may by chance be one to itself.
                Ok(stream) if stream.local_addr().unwrap() != stream.peer_addr().unwrap() => break stream,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        stream.set_nodelay(true).unwrap();
        Self { stream: Mutex::new(stream), rank, world }
    }

    /// Stores a value.
    pub(crate) fn put(&self, name: &str, value: &[u8]) {
        self.ask(PUT, name, value);
    }

    /// The value of that name, as soon as there is one.
    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        self.ask(GET, name, &[])
    }

    /// Returns when all ranks have called it with this name.
    pub(crate) fn barrier(&self, name: &str) {
        self.barrier_of(name, &(0..self.world).collect::<Vec<_>>());
    }

    /// Returns when all of these ranks have called it with this name.
    pub(crate) fn barrier_of(&self, name: &str, ranks: &[usize]) {
        self.put(&format!("{name}/{}", self.rank), &[]);
        for rank in ranks {
            self.get(&format!("{name}/{rank}"));
        }
    }

    /// The last word of this rank. The hub ends when all of `ranks` have said it, so nobody waits for an answer.
    pub(crate) fn leave(&self, ranks: &[usize]) {
        let mut stream = self.stream.lock().unwrap();
        tell(&mut stream, PUT, &format!("gone/{}", self.rank), &[]).unwrap_or_else(|error| panic!("{GONE}: {error}"));
        if self.rank == 0 {
            read_part(&mut stream).unwrap();
            drop(stream);
            for rank in ranks {
                self.get(&format!("gone/{rank}"));
            }
        }
    }

    fn ask(&self, what: u8, name: &str, value: &[u8]) -> Vec<u8> {
        let mut stream = self.stream.lock().unwrap();
        let answer = tell(&mut stream, what, name, value).and_then(|()| read_part(&mut stream));
        answer.unwrap_or_else(|error| panic!("{GONE}: {error}"))
    }
}

fn tell(stream: &mut TcpStream, what: u8, name: &str, value: &[u8]) -> io::Result<()> {
    let mut bytes = vec![what];
    for part in [name.as_bytes(), value] {
        bytes.extend((part.len() as u32).to_le_bytes());
        bytes.extend(part);
    }
    stream.write_all(&bytes)
}

fn serve(mut stream: TcpStream, store: &Store) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (values, changed) = &**store;
    loop {
        let mut what = [0];
        stream.read_exact(&mut what)?;
        let name = String::from_utf8_lossy(&read_part(&mut stream)?).into_owned();
        let value = read_part(&mut stream)?;
        let answer = if what[0] == PUT {
            values.lock().unwrap().insert(name, value);
            changed.notify_all();
            Vec::new()
        } else {
            let held = changed.wait_while(values.lock().unwrap(), |values| !values.contains_key(&name)).unwrap();
            held[&name].clone()
        };
        let mut bytes = (answer.len() as u32).to_le_bytes().to_vec();
        bytes.extend(answer);
        stream.write_all(&bytes)?;
    }
}

fn read_part(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > LIMIT {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a part that nobody sends"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
