use std::sync::atomic::AtomicBool;

use super::*;

#[test]
fn sub_windows_stay_inside() {
    // given a window of 256 bytes
    let slab = Slab::new(1, 256).unwrap();
    let window = slab.slot(0);
    // when and then: both sides of every limit, and sums that overflow
    assert_eq!(window.sub(0, 256).map(|w| w.len()), Some(256));
    assert_eq!(window.sub(256, 0).map(|w| w.len()), Some(0));
    assert_eq!(window.sub(255, 1).map(|w| w.addr()), Some(window.addr() + 255));
    for (offset, len) in [(0, 257), (256, 1), (257, 0), (1, usize::MAX), (usize::MAX, 1), (usize::MAX, usize::MAX)] {
        assert!(window.sub(offset, len).is_none(), "{offset} {len}");
    }
    assert!(Window::empty().sub(0, 1).is_none());
    assert!(Window::empty().sub(0, 0).is_some());
}

#[test]
fn copies_are_exact_and_bounded() {
    // given two slots and lengths on both sides of the volatile limit
    let slab = Slab::new(2, 1000).unwrap();
    for len in [0, 1, 63, 64, 65, 999, 1000] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        // when written, copied and read back
        assert!(slab.slot(0).write_from(1000 - len, &bytes));
        assert!(slab.slot(0).sub(1000 - len, len).unwrap().copy_to(slab.slot(1)));
        let mut back = vec![0; len];
        assert!(slab.slot(1).read_into(0, &mut back));
        // then the bytes are the same, and one byte further is refused
        assert_eq!(back, bytes);
        assert!(!slab.slot(0).write_from(1001 - len, &bytes));
        assert!(!slab.slot(0).read_into(1001 - len, &mut back));
    }
    assert!(!slab.slot(0).copy_to(slab.slot(1).sub(0, 999).unwrap()));
}

#[test]
fn slots_are_zeroed_aligned_and_apart() {
    // given slots whose size is no multiple of a line
    let slab = Slab::new(5, 130).unwrap();
    assert_eq!((slab.slots(), slab.slot_size(), slab.stride()), (5, 130, 256));
    assert_eq!(slab.whole().len(), 5 * 256);
    assert_eq!(slab.whole().addr() % 4096, 0);
    // when every slot is filled with its index
    for i in 0..5 {
        let mut bytes = [1; 130];
        assert!(slab.slot(i).read_into(0, &mut bytes));
        assert_eq!(bytes, [0; 130]);
        assert_eq!(slab.slot(i).addr() % LINE, 0);
        assert!(slab.slot(i).write_from(0, &[i as u8; 130]));
    }
    // then each holds its own
    for i in 0..5 {
        let mut bytes = [0; 130];
        assert!(slab.slot(i).read_into(0, &mut bytes));
        assert_eq!(bytes, [i as u8; 130]);
    }
}

#[test]
fn slabs_of_no_bytes_and_of_too_many() {
    assert_eq!(Slab::new(0, 100).unwrap().whole().len(), 0);
    assert!(Slab::new(3, 0).unwrap().slot(2).is_empty());
    assert!(Slab::new(2, usize::MAX).is_err());
    assert!(Slab::new(usize::MAX / 256, 257).is_err());
}

#[test]
fn ordered_landing_copies_every_alignment_and_length() {
    // given a slot with canaries around the target
    let slab = Slab::new(1, 1024).unwrap();
    let source: Vec<u8> = (0..700).map(|i| (i % 251) as u8).collect();
    for start in 128..=144 {
        for len in (0..40).chain(110..140).chain([255, 256, 257, 600]) {
            assert!(slab.slot(0).write_from(0, &[0xee; 1024]));
            // when landed
            assert!(land_ordered(slab.slot(0).sub(start, len).unwrap(), &source[..len]));
            // then the target has the bytes and the canaries live
            let mut all = [0; 1024];
            assert!(slab.slot(0).read_into(0, &mut all));
            assert_eq!(all[start..start + len], source[..len], "{start} {len}");
            assert!(all[..start].iter().chain(&all[start + len..]).all(|&b| b == 0xee), "{start} {len}");
        }
    }
    assert!(!land_ordered(slab.slot(0).sub(0, 7).unwrap(), &source[..8]));
}

#[test]
fn a_polling_reader_never_sees_a_flag_before_its_line() {
    // given a reader that polls the flags at the end of each line, as an LL128 receiver does
    const LINES: usize = 64;
    const ROUNDS: u64 = 20_000;
    let slab = Slab::new(1, LINES * LINE).unwrap();
    let window = slab.slot(0);
    let word = |window: Window, index: usize| {
        assert!(index * 8 + 8 <= window.len());
        // SAFETY: inside the slab, which outlives both threads, and aligned; the writer stores whole words atomically.
        unsafe { AtomicU64::from_ptr(window.as_ptr().add(index * 8).cast()) }
    };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut seen, mut last) = (0_u64, 0);
            loop {
                let ending = stop.load(Ordering::Acquire);
                for line in 0..LINES {
                    let flag = word(window, line * 16 + 15).load(Ordering::Acquire);
                    for i in 0..15 {
                        let data = word(window, line * 16 + i).load(Ordering::Relaxed);
                        // then the data is at least as new as the flag, and never torn
                        assert!(data >> 8 >= flag >> 8, "line {line} word {i}: data {data:#x} flag {flag:#x}");
                        assert!(data == 0 || data & 0xff == i as u64, "torn word {data:#x}");
                    }
                    seen += u64::from(flag != last);
                    last = flag;
                }
                if ending {
                    return seen;
                }
                std::thread::yield_now();
            }
        });
        // when the writer lands round after round over the same lines
        let mut bytes = vec![0; LINES * LINE];
        for round in 1..=ROUNDS {
            for (i, chunk) in bytes.chunks_exact_mut(8).enumerate() {
                chunk.copy_from_slice(&(round << 8 | (i % 16) as u64).to_ne_bytes());
            }
            assert!(land_ordered(window, &bytes));
            if round % 64 == 0 {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Release);
        assert!(reader.join().unwrap() > 0, "the reader saw the writer");
    });
}
