//! Every algorithm on an in-memory fabric: all sizes of communicator, every byte checked, messages delayed at random.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::*;
use crate::harness::content::{Areas, Checked};
use crate::harness::executor::{Executor, ExecutorError, Prepared};
use crate::harness::program::Way;
use crate::harness::transport::{Incoming, Outgoing, SLOTS};

/// A small generator: a failure names the seed, which brings the same run back.
#[derive(Clone, Debug)]
pub(in crate::harness) struct Dice(Rc<RefCell<u64>>);

impl Dice {
    pub(in crate::harness) fn new(seed: u64) -> Self {
        Self(Rc::new(RefCell::new(seed.wrapping_mul(2) + 1)))
    }

    fn one_in(&self, sides: u64) -> bool {
        let mut state = self.0.borrow_mut();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        state.is_multiple_of(sides)
    }
}

/// One connection: a message leaves only when its receive is posted, as in the real thing.
#[derive(Debug, Default)]
struct Pipe {
    posted: VecDeque<usize>,
    arrived: BTreeMap<usize, Vec<u8>>,
    sending: VecDeque<(usize, Vec<u8>)>,
}

impl Pipe {
    fn flow(&mut self) {
        while let (Some(_), Some(&slot)) = (self.sending.front(), self.posted.front()) {
            if let Some((_, message)) = self.sending.pop_front() {
                self.posted.pop_front();
                assert!(self.arrived.insert(slot, message).is_none(), "a slot is posted once");
            }
        }
    }
}

#[derive(Debug)]
struct FakeEnd {
    pipe: Rc<RefCell<Pipe>>,
    dice: Dice,
    slots: Vec<Vec<u8>>,
}

impl FakeEnd {
    fn new(pipe: &Rc<RefCell<Pipe>>, dice: &Dice, slice: usize) -> Self {
        Self { pipe: Rc::clone(pipe), dice: dice.clone(), slots: vec![vec![0; slice]; SLOTS] }
    }
}

impl Outgoing for FakeEnd {
    type Error = String;

    fn slot(&mut self, slot: usize, bytes: usize) -> &mut [u8] {
        assert!(self.pipe.borrow().sending.iter().all(|(busy, _)| *busy != slot), "a slot under way is left alone");
        &mut self.slots[slot][..bytes]
    }

    fn post(&mut self, slot: usize, bytes: usize) -> Result<bool, String> {
        if self.dice.one_in(4) {
            return Ok(false);
        }
        self.pipe.borrow_mut().sending.push_back((slot, self.slots[slot][..bytes].to_vec()));
        Ok(true)
    }

    fn test(&mut self, slot: usize) -> Result<bool, String> {
        let mut pipe = self.pipe.borrow_mut();
        if !self.dice.one_in(3) {
            pipe.flow();
        }
        Ok(pipe.sending.iter().all(|(busy, _)| *busy != slot))
    }
}

impl Incoming for FakeEnd {
    type Error = String;

    fn post(&mut self, slot: usize) -> Result<bool, String> {
        if self.dice.one_in(4) {
            return Ok(false);
        }
        self.pipe.borrow_mut().posted.push_back(slot);
        Ok(true)
    }

    fn test(&mut self, slot: usize) -> Result<Option<usize>, String> {
        if self.dice.one_in(3) {
            return Ok(None);
        }
        let Some(message) = self.pipe.borrow_mut().arrived.remove(&slot) else { return Ok(None) };
        self.slots[slot][..message.len()].copy_from_slice(&message);
        Ok(Some(message.len()))
    }

    fn slot(&self, slot: usize, bytes: usize) -> &[u8] {
        &self.slots[slot][..bytes]
    }
}

type FakeExecutor = Executor<FakeEnd, FakeEnd>;

fn connect(programs: &[Program], dice: &Dice, slice: usize) -> Vec<FakeExecutor> {
    let mut pipes: BTreeMap<(usize, usize, usize), Rc<RefCell<Pipe>>> = BTreeMap::new();
    let mut pipe = |channel, from, to| Rc::clone(pipes.entry((channel, from, to)).or_default());
    let executor = |(rank, program): (usize, &Program)| {
        let out: Vec<(Way, FakeEnd)> = program
            .outgoing()
            .into_iter()
            .map(|way| (way, FakeEnd::new(&pipe(way.channel, rank, way.peer), dice, slice)))
            .collect();
        let into: Vec<(Way, FakeEnd)> = program
            .incoming()
            .into_iter()
            .map(|way| (way, FakeEnd::new(&pipe(way.channel, way.peer, rank), dice, slice)))
            .collect();
        Executor::new(out, into)
    };
    programs.iter().enumerate().map(executor).collect()
}

/// Runs a task twice on the same connections and checks both results; says how many bytes.
fn run(task: &Task, seed: u64) -> u64 {
    let context = format!("{task:?} seed {seed}");
    let dice = Dice::new(seed);
    let programs: Vec<Program> = (0..task.ranks).map(|rank| task.program(rank)).collect();
    let mut executors = connect(&programs, &dice, task.slice);
    let prepared: Vec<Prepared> = programs.into_iter().map(Prepared::new).collect();
    let mut areas: Vec<Areas> = (0..task.ranks).map(|_| Areas::default()).collect();
    let mut bytes = 0;
    for serial in 1..=2 {
        for rank in 0..task.ranks {
            areas[rank].prepare(task, rank, serial);
            executors[rank].start(&prepared[rank]).expect("all connected");
        }
        let mut quiet = 0;
        while !executors.iter().all(FakeExecutor::is_done) {
            let mut moved = false;
            for rank in 0..task.ranks {
                moved |= executors[rank].pass(&prepared[rank], &mut areas[rank]).expect("nothing breaks");
            }
            quiet = if moved { 0 } else { quiet + 1 };
            // The dice hold things up for a few passes, never for so many.
            assert!(quiet < 1000, "stuck: {context}: {}", executors[0].pending(|rank| rank.to_string()));
        }
        for (rank, areas) in areas.iter().enumerate() {
            let checked: Checked = areas.check(task, rank, serial);
            assert_eq!(checked.wrong, 0, "{context}, rank {rank}");
            bytes += checked.bytes;
        }
    }
    bytes
}

fn tasks(ranks: usize) -> Vec<Task> {
    let mut tasks = Vec::new();
    for collective in Collective::ALL {
        for &algo in collective.algos() {
            for (channels, sizes) in [(1, &[4, 1028][..]), (2, &[0, 4 * ranks, 4 << 10]), (3, &[2052])] {
                for &bytes in sizes {
                    let distance = 1 + bytes / 4 % (ranks.max(2) - 1);
                    tasks.push(Task { collective, algo, ranks, channels, distance, bytes, slice: 256 });
                }
            }
        }
    }
    tasks
}

#[test]
fn every_algorithm_is_right_for_every_number_of_ranks() {
    for ranks in 1..=12 {
        for (index, task) in tasks(ranks).iter().enumerate() {
            let bytes = run(task, (ranks * 1000 + index) as u64);
            assert!(task.bytes < 4 * ranks || bytes > 0, "something was checked: {task:?}");
        }
    }
}

#[test]
fn both_ends_of_every_way_have_the_same_messages() {
    // given all programs of a task, when sends and receives between two ranks are compared, then sizes agree one by one
    for ranks in 2..=9 {
        for task in tasks(ranks) {
            let mut sent: BTreeMap<(usize, usize, usize), Vec<usize>> = BTreeMap::new();
            let mut received = sent.clone();
            for rank in 0..ranks {
                for step in task.program(rank).steps {
                    let size = step.span.range.len();
                    match step.action {
                        Action::Send { to } => sent.entry((step.channel, rank, to)).or_default().push(size),
                        Action::Receive { from } | Action::Reduce { from } => {
                            received.entry((step.channel, from, rank)).or_default().push(size);
                        }
                        Action::Copy { .. } => {}
                    }
                }
            }
            assert_eq!(sent, received, "{task:?}");
            assert!(!sent.is_empty(), "even of nothing there are messages: {task:?}");
        }
    }
}

#[test]
fn peers_are_those_that_nccl_has() {
    let task =
        |collective, algo| Task { collective, algo, ranks: 6, channels: 1, distance: 2, bytes: 4096, slice: 512 };
    let peers = |task: Task| task.program(1).outgoing().into_iter().map(|way| way.peer).collect::<Vec<_>>();
    assert_eq!(peers(task(Collective::AllReduce, Algo::Ring)), [2]);
    assert_eq!(peers(task(Collective::AllGather, Algo::Pat)), [0, 3, 5]);
    assert_eq!(peers(task(Collective::ReduceScatter, Algo::Pat)), [2, 3, 5]);
    assert_eq!(peers(task(Collective::SendRecv, Algo::Direct)), [3]);
    assert_eq!(peers(task(Collective::AllToAll, Algo::Direct)), [0, 2, 3, 4, 5]);
}

#[test]
fn a_message_of_another_size_is_an_error() {
    // given two ranks of which one believes in other sizes
    let task = |bytes| Task {
        collective: Collective::SendRecv,
        algo: Algo::Direct,
        ranks: 2,
        channels: 1,
        distance: 1,
        bytes,
        slice: 256,
    };
    let programs = [task(64).program(0), task(60).program(1)];
    let mut executors = connect(&programs, &Dice::new(1), 256);
    let prepared = programs.map(Prepared::new);
    let mut areas = [Areas::default(), Areas::default()];
    for rank in 0..2 {
        areas[rank].prepare(&task(64 - 4 * rank), rank, 1);
        executors[rank].start(&prepared[rank]).expect("connected");
    }
    // when they run, then whoever gets a message first sees that it is not the one expected
    let expected = [
        ExecutorError::Size { channel: 0, peer: 1, found: 60, expected: 64 },
        ExecutorError::Size { channel: 0, peer: 0, found: 64, expected: 60 },
    ];
    let error = (0..1000)
        .flat_map(|_| [0, 1])
        .find_map(|rank| executors[rank].pass(&prepared[rank], &mut areas[rank]).err().map(|error| (rank, error)));
    let (rank, error) = error.expect("a size is wrong");
    assert_eq!(error, expected[rank]);
    // and for people it can name the peer
    let names = ["here".to_owned(), "there".to_owned()];
    assert!(error.named(&names).contains(&format!("from {}:", names[1 - rank])), "{}", error.named(&names));
}

#[test]
fn a_program_without_its_connections_does_not_start() {
    let task = Task {
        collective: Collective::AllReduce,
        algo: Algo::Ring,
        ranks: 3,
        channels: 1,
        distance: 0,
        bytes: 64,
        slice: 64,
    };
    let mut executor: FakeExecutor = Executor::new([], []);
    let error = executor.start(&Prepared::new(task.program(0))).expect_err("nothing is connected");
    assert_eq!(error, ExecutorError::NoConnection { channel: 0, direction: "to", peer: 1 });
}
