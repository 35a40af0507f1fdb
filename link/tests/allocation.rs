//! Posting and polling allocate nothing.
#![allow(unsafe_code, reason = "a counting global allocator")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{pair, tiny, until};
use mesh_link::memory::Slab;
use mesh_link::tcp::Limits;
use mesh_link::{Event, Target};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // A thread that is being torn down has no counter any more, and is none of the measured.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `at` came from `System` with this layout.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Fills both queues to their limits again and again; returns the allocations made meanwhile.
fn allocations(limits: Limits, rounds: u32) -> u64 {
    let (mut near, mut far) = pair(limits);
    let (from, into) = (Slab::new(1, 64 << 10).unwrap(), Slab::new(2, 64 << 10).unwrap());
    let (direct, ordered) = (far.expose(into.slot(0)).unwrap(), far.expose_ordered(into.slot(1)).unwrap());
    let (mut notified, mut written, mut messages) = (0, 0, 0);
    let before = ALLOCATIONS.get();
    for round in 0..rounds {
        let (mut posted, mut told) = (0, 0);
        let key = if round % 2 == 0 { direct } else { ordered };
        let body = from.slot(0).sub(0, (round as usize * 997) % (64 << 10)).unwrap();
        while near
            .post_write(
                posted,
                Some(&[0; 32]).filter(|_| body.len() < 65_504),
                body,
                Target { key, offset: 0 },
                Some(round),
            )
            .is_ok()
        {
            posted += 1;
        }
        while near.post_message(b"a message").is_ok() {
            told += 1;
        }
        // Windows come and go as well.
        let spare = far.expose(into.slot(0)).unwrap();
        assert!(far.withdraw(spare));
        let goal = (notified + posted, written + posted, messages + told);
        until("a full queue", || {
            near.poll(|event| written += u64::from(matches!(event, Event::Written { .. }))).unwrap();
            far.poll(|event| match event {
                Event::Notified { .. } => notified += 1,
                Event::Message(_) => messages += 1,
                Event::Written { .. } => {}
            })
            .unwrap();
            (notified, written, messages) == goal
        });
    }
    assert!(messages > 0 && written > 0);
    ALLOCATIONS.get() - before
}

#[test]
fn nothing_is_allocated_after_construction() {
    // given an allocator that counts, and does count
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1_u64)));
    assert_eq!(ALLOCATIONS.get() - before, 1);
    // when queues are filled and emptied, in large and in tiny pieces, then nothing is allocated
    assert_eq!(allocations(Limits::default(), 20), 0);
    assert_eq!(allocations(Limits { writes: 3, messages: 2, ..tiny() }, 40), 0);
}
