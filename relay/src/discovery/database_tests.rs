//! Which advertisement holds, when one dies, and what a neighbour is sent.

use super::*;
use crate::discovery::advert::key_of;

const AGE: Time = 10_000 * MS;

fn advert(id: &str, incarnation: u64, seq: u32) -> Advert {
    Advert {
        id: id.into(),
        name: id.into(),
        incarnation,
        seq,
        relay: true,
        conflict: false,
        daemon: false,
        features: 0,
        ports: Vec::new(),
        adjacencies: Vec::new(),
        agents: Vec::new(),
    }
}

fn offer(database: &mut Database, now: Time, advert: &Advert, age_ms: u16) -> Offer {
    database.offer(now, Carried { age_ms, body: &advert.encode() }).expect("a sound advertisement")
}

fn taken(id: &str, changed: bool) -> Offer {
    Offer::Taken { origin: key_of(id), changed }
}

/// The database of node `me`, which holds its own advertisement.
fn database(max_nodes: usize) -> Database {
    let mut database = Database::new(key_of("me"), max_nodes, AGE);
    database.put_own(0, advert("me", 1, 1));
    database
}

#[test]
fn the_newer_of_two_holds_also_where_numbers_wrap() {
    let mut held = database(8);
    assert_eq!(offer(&mut held, 0, &advert("b", 5, u32::MAX), 0), taken("b", true));
    // a refresh says nothing new; what was held before does not come back
    assert_eq!(offer(&mut held, 0, &advert("b", 5, 0), 0), taken("b", false));
    assert_eq!(offer(&mut held, 0, &advert("b", 5, u32::MAX), 0), Offer::Known);
    // a new life comes before any number of an older one
    assert_eq!(offer(&mut held, 0, &advert("b", 6, 0), 0), taken("b", false));
    assert_eq!(offer(&mut held, 0, &advert("b", 5, 100), 0), Offer::Known);
}

#[test]
fn two_that_say_different_things_under_equal_numbers_end_alike_everywhere() {
    // given two nodes that heard them in different order
    let (one, two) = (advert("b", 1, 1), Advert { relay: false, ..advert("b", 1, 1) });
    let summary = |first: &Advert, second: &Advert| {
        let mut held = database(8);
        offer(&mut held, 0, first, 0);
        offer(&mut held, 0, second, 0);
        held.summary()
    };
    // then both hold the same one
    assert_eq!(summary(&one, &two), summary(&two, &one));
}

#[test]
fn an_advertisement_dies_of_age_wherever_it_has_been() {
    // given one that is 4 s old on arrival
    let (mut held, start) = (database(8), 60_000 * MS);
    offer(&mut held, start, &advert("b", 1, 1), 4000);
    // when it is passed on 5 s later, then it says that it is older than 9 s
    let body = advert("b", 1, 1).encode();
    assert_eq!(held.carried(start + 5000 * MS, key_of("b")), Some(Carried { age_ms: 9001, body: &body }));
    // then it is there until it is 10 s old, and not after
    assert!(!held.expire(start + 5999 * MS) && held.adverts().count() == 2);
    assert!(held.expire(start + 6000 * MS) && held.adverts().count() == 1);
    // and is not taken back from somebody who has kept it longer
    assert_eq!(offer(&mut held, start + 6000 * MS, &advert("b", 1, 1), 10_000), Offer::Known);
    // and our own is still there, and the summary is as if the other had never been
    assert_eq!(held.summary(), database(8).summary());
}

#[test]
fn our_own_advertisement_is_changed_by_nobody_else() {
    let mut held = database(8);
    let before = held.summary();
    let stranger = Advert { conflict: true, ..advert("me", 9, 1) };
    assert!(matches!(offer(&mut held, 0, &stranger, 0), Offer::Own { conflict: true, .. }));
    assert_eq!(held.summary(), before);
    assert!(!held.expire(Time::MAX));
}

#[test]
fn more_nodes_than_allowed_are_refused_and_known_ones_still_renewed() {
    let mut held = database(3);
    offer(&mut held, 0, &advert("b", 1, 1), 0);
    offer(&mut held, 0, &advert("c", 1, 1), 0);
    assert_eq!(offer(&mut held, 0, &advert("d", 1, 1), 0), Offer::Full { origin: key_of("d") });
    assert_eq!(offer(&mut held, 0, &advert("c", 1, 2), 0), taken("c", false));
    assert_eq!(held.adverts().count(), 3);
}

#[test]
fn a_digest_tells_exactly_what_is_lacking() {
    // given two databases of 200 nodes each, of which 100 are the same, some newer here, some newer there
    let (mut here, mut there) = (database(1000), database(1000));
    for node in 0..300 {
        let id = format!("n{node}");
        if node < 200 {
            offer(&mut here, 0, &advert(&id, 1, 5 + node % 3), 0);
        }
        if node >= 100 {
            offer(&mut there, 0, &advert(&id, 1, 6), 0);
        }
    }
    // when each sends the other what its digests lack
    let digests = (here.digests(), there.digests());
    assert!(digests.1.iter().any(|digest| here.is_behind(digest)));
    assert!(digests.0.len() > 1, "more than one datagram");
    let lacking =
        |held: &Database, digests: &[Digest]| digests.iter().flat_map(|d| held.lacking(d)).collect::<Vec<_>>();
    let (give, get) = (lacking(&here, &digests.1), lacking(&there, &digests.0));
    for origin in give {
        let carried = here.carried(0, origin).expect("it is held");
        assert!(matches!(there.offer(0, carried), Ok(Offer::Taken { .. })), "nothing is sent in vain");
    }
    for origin in get {
        let carried = there.carried(0, origin).expect("it is held");
        assert!(matches!(here.offer(0, carried), Ok(Offer::Taken { .. })), "nothing is sent in vain");
    }
    // then both hold the same
    assert_eq!(here.summary(), there.summary());
    assert_eq!(here.adverts().count(), 301);
    assert!(here.digests().iter().all(|digest| there.lacking(digest).is_empty() && !there.is_behind(digest)));
}

#[test]
fn an_empty_range_asks_for_nothing() {
    let digest = Digest { first: 9, last: 3, entries: Vec::new() };
    assert!(database(8).lacking(&digest).is_empty());
}
