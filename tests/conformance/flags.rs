//! Receivers that look for flags in the buffer while it is written, as GPUs do with LL and LL128; and buffers that are written by
//! somebody else once their receive is done.

use std::sync::atomic::{AtomicU64, Ordering};

use mesh_abi::caller::{RecvComm, SendComm};

use crate::memory::{Area, differs, fill, mix, not_all};
use crate::node::{Node, Pause};
use crate::scenario::{LINE, scenario};

/// Slots, as NCCL has steps.
const SLOTS: usize = 8;
const STEPS: u64 = 240;

/// How lines look.
#[derive(Clone, Copy)]
struct Protocol {
    /// Bytes of a line, the last 8 of which hold the flag.
    line: usize,
    /// Largest message.
    slot: usize,
}

const LL: Protocol = Protocol { line: 8, slot: 64 << 10 };
const LL128: Protocol = Protocol { line: 128, slot: 75 * 1024 };

impl Protocol {
    /// Lines of a step's message; some are empty.
    fn lines(&self, step: u64) -> usize {
        // LL's unit is two of our lines.
        (mix(step) % (self.slot / self.line / 2 + 1) as u64) as usize * 2 * usize::from(!step.is_multiple_of(11))
    }

    /// The word at this place of a step's message. LL: 4 bytes of data under 4 of flag. LL128: data, the last word of a line the
    /// flag.
    fn word(&self, step: u64, index: usize) -> u64 {
        let data = mix(step << 32 | index as u64);
        if self.line == 8 {
            (step + 1) << 32 | (data & 0xFFFF_FFFF)
        } else if index % 16 == 15 {
            step + 1
        } else {
            data
        }
    }

    fn flag_of(&self, word: u64) -> u64 {
        if self.line == 8 { word >> 32 } else { word }
    }
}

fn send(node: &Node, comm: SendComm, protocol: Protocol) {
    let mut area = Area::new(SLOTS * protocol.slot);
    let registration = node.register(comm, &area);
    let mut requests = Vec::new();
    for step in 0..STEPS {
        if requests.len() == SLOTS {
            node.wait(requests.remove(0));
        }
        let (start, len) = (step as usize % SLOTS * protocol.slot, protocol.lines(step) * protocol.line);
        for (index, word) in area.bytes_mut(start..start + len).chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&protocol.word(step, index).to_le_bytes());
        }
        requests.push(node.send(comm, &area, start, len, registration));
    }
    node.wait_all(requests);
    node.deregister(comm, registration);
}

/// Posts marked receives; another thread consumes the slots by their flags, and a slot is posted again when that thread is through
/// with it and the request is done.
fn receive(node: &Node, comm: RecvComm, protocol: Protocol) {
    let mut area = Area::new(SLOTS * protocol.slot);
    // No flag looks like this one, and the memory is never cleared again.
    area.bytes_mut(0..SLOTS * protocol.slot).fill(0);
    let registration = node.register(comm, &area);
    let words: usize = area.at(0).expose_provenance();
    let consumed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..STEPS {
                let start = words + step as usize % SLOTS * protocol.slot;
                consume(protocol, step, start);
                consumed.store(step + 1, Ordering::Release);
            }
        });
        let mut requests = Vec::new();
        let mut pause = Pause::default();
        let (mut posted, mut done) = (0, 0);
        while done < STEPS {
            let mut moved = false;
            while posted < STEPS && posted < consumed.load(Ordering::Acquire).min(done) + SLOTS as u64 {
                let start = posted as usize % SLOTS * protocol.slot;
                let request = node.try_receive(comm, &area, start, protocol.slot, registration, true).expect("irecv");
                let Some(request) = request else { break };
                requests.push(request);
                posted += 1;
                moved = true;
            }
            if let Some(request) = requests.first()
                && node.plugin.test(*request).expect("test").is_some()
            {
                requests.remove(0);
                done += 1;
                moved = true;
            }
            pause.moved(moved);
        }
    });
    node.deregister(comm, registration);
    area.check_guards();
}

/// Waits for the flag of every line of a step's message, in order, and checks the line the moment the flag is there.
fn consume(protocol: Protocol, step: u64, start: usize) {
    let load = |index: usize, order| {
        // SAFETY: an aligned word of the area, which outlives this thread; whoever writes there meanwhile writes words whole.
        unsafe { (*std::ptr::with_exposed_provenance::<AtomicU64>(start + index * 8)).load(order) }
    };
    let words = protocol.line / 8;
    let mut pause = Pause::default();
    for line in 0..protocol.lines(step) {
        let flag = line * words + words - 1;
        loop {
            let word = load(flag, Ordering::Acquire);
            if protocol.flag_of(word) == step + 1 {
                assert_eq!(word, protocol.word(step, flag), "torn word {flag} of step {step}");
                pause.moved(true);
                break;
            }
            pause.wait();
        }
        for index in line * words..flag {
            let word = load(index, Ordering::Relaxed);
            assert_eq!(word, protocol.word(step, index), "word {index} of step {step} came after the flag of its line");
        }
    }
}

scenario! {
    flags_of_ll_come_with_their_data on LINE, |node| {
        node.each_way(|comm, _| send(node, comm, LL), |comm, _| receive(node, comm, LL));
    }
}

scenario! {
    flags_of_ll128_come_after_their_line on LINE, |node| {
        node.each_way(|comm, _| send(node, comm, LL128), |comm, _| receive(node, comm, LL128));
    }
}

scenario! {
    nothing_is_written_once_a_receive_is_done_or_closed on LINE, |node| {
        const PART: usize = 40_000;
        const PARTS: usize = 96;
        for peer in 1..node.world {
            let name = format!("way{peer}");
            let closed = format!("closed{peer}");
            if node.rank == 0 {
                let comm = node.sender(&name);
                let mut area = Area::new(PARTS * PART);
                let registration = node.register(comm, &area);
                fill(area.bytes_mut(0..PARTS * PART), 21);
                let mut requests = Vec::new();
                for part in 0..PARTS {
                    if requests.len() == SLOTS {
                        node.wait(requests.remove(0));
                    }
                    requests.push(node.send(comm, &area, part * PART, PART, registration));
                }
                node.wait_all(requests);
                // and sends that meet a receiver which is closing; what becomes of them does not matter here
                let posted = (0..SLOTS).filter_map(|part| node.try_send(comm, &area, part * PART, PART, registration).ok()?);
                let posted: Vec<_> = posted.collect();
                for _ in 0..2000 {
                    if posted.first().is_some_and(|request| node.plugin.test(*request) != Ok(None)) {
                        break;
                    }
                    std::thread::yield_now();
                }
                node.hub.get(&closed);
                // Closed with requests open: that is how NCCL aborts.
                node.deregister(comm, registration);
                node.close_sender(comm);
                node.hub.put(&format!("over{peer}"), &[]);
            } else if node.rank == peer {
                let comm = node.receiver(&name);
                let mut area = Area::new((PARTS + SLOTS) * PART);
                let registration = node.register(comm, &area);
                // given receives of many messages, each done buffer used for something else at once
                let mut requests = std::collections::VecDeque::new();
                let mut expected = Area::new(PARTS * PART);
                fill(expected.bytes_mut(0..PARTS * PART), 21);
                for part in 0..PARTS + SLOTS {
                    if part < PARTS {
                        requests.push_back((part, node.receive(comm, &area, part * PART, PART, registration)));
                    }
                    if requests.len() == SLOTS || part >= PARTS {
                        let Some((part, request)) = requests.pop_front() else { continue };
                        assert_eq!(node.wait(request), PART);
                        let range = part * PART..(part + 1) * PART;
                        assert!(area.bytes(range.clone()) == expected.bytes(range.clone()), "part {part}");
                        area.bytes_mut(range).fill(0x3C);
                    }
                }
                // and more receives, closed while they are open
                for part in PARTS..PARTS + SLOTS {
                    node.receive(comm, &area, part * PART, PART, registration);
                }
                node.deregister(comm, registration);
                node.close_receiver(comm);
                area.bytes_mut(PARTS * PART..(PARTS + SLOTS) * PART).fill(0x3C);
                node.hub.put(&closed, &[]);
                node.hub.get(&format!("over{peer}"));
                // then what was put there stays
                assert_eq!(not_all(area.bytes(0..area.len()), 0x3C), None, "first byte that was overwritten");
                let all = differs(expected.bytes(0..expected.len()), 21);
                assert_eq!(all, None);
            }
        }
    }
}
