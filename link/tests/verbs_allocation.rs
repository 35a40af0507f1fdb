//! Posting and polling over verbs allocate nothing. Skipped without a device; see `fixture`.
#![allow(unsafe_code, reason = "a counting global allocator")]

mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use fixture::{Fixture, settle, strict, until};
use mesh_link::tcp::Limits;
use mesh_link::verbs::VerbsLimits;
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

/// Fills both queues again and again; returns the allocations made meanwhile.
fn allocations(fixture: &Fixture, limits: Limits, verbs: VerbsLimits, rounds: u32) -> u64 {
    let (mut near, mut far) = fixture.pair_with(limits, verbs);
    let (from, into) = (fixture.slab(1, 64 << 10), fixture.slab(1, 64 << 10));
    let (key, base) = far.expose(into.slot(0)).unwrap();
    let body = from.slot(0);
    settle(&mut near, &mut far);
    let (mut notified, mut written, mut messages) = (0, 0, 0);
    let mut before = 0;
    for round in 0..rounds {
        if round == 1 {
            // The first round makes the endpoint remember the memory.
            before = ALLOCATIONS.get();
        }
        let body = body.sub(0, (round as usize * 997) % (32 << 10)).unwrap();
        let (mut posted, mut told) = (0, 0);
        while near.post_write(posted, Some(&[0; 32]), body, Target { key, offset: base }, Some(round)).is_ok() {
            posted += 1;
        }
        while near.post_message(b"a message").is_ok() {
            told += 1;
        }
        // Windows come and go as well.
        let (spare, _) = far.expose(into.slot(0)).unwrap();
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
    let Some(fixture) = Fixture::verbs() else { return };
    // when queues are filled and emptied, with many receives and with few, then nothing is allocated
    let limits = Limits { writes: 32, ..Limits::default() };
    assert_eq!(allocations(&fixture, limits, strict(), 6), 0);
    let limits = Limits { writes: 3, messages: 2, ..Limits::default() };
    assert_eq!(allocations(&fixture, limits, VerbsLimits { receives: 8, longest: 4096, ..strict() }, 10), 0);
}
