//! An engine with legs in every role, and peers that say anything at any time: it never panics, never touches what is not its own,
//! and when all legs are gone nothing is left.

#[path = "../common/mod.rs"]
mod common;
mod hostile;

use common::each_seed;
use hostile::Hostile;

#[test]
fn nothing_that_peers_say_breaks_an_engine() {
    let mut reached = [0; 4];
    each_seed("fuzz::nothing_that_peers_say_breaks_an_engine", 2000, |seed| {
        let mut world = Hostile::new(seed);
        for round in 0..600 {
            if round % 50 == 0 {
                world.path();
            }
            world.step();
        }
        world.end().iter().zip(&mut reached).for_each(|(now, all)| *all += now);
        Ok(())
    });
    println!("handed over, chunks sent on, refusals, failed requests: {reached:?}");
    assert!(
        reached.iter().all(|n| *n > 100) || common::seeds(2000).len() < 2000,
        "too little was reached: {reached:?}"
    );
}
