//! The operations whose instructions are counted do what their names say, and the comparison with the baseline compares. Nothing is counted
//! here: `cargo bench --bench instructions` does.

#[path = "../benches/instructions/baseline.rs"]
mod baseline;
#[path = "../benches/instructions/callgrind.rs"]
#[allow(dead_code, reason = "only its reading of texts is tested")]
mod callgrind;
#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../benches/instructions/operations.rs"]
mod operations;
#[path = "../benches/instructions/turns.rs"]
mod turns;

use baseline::Counts;

const BASELINE: &str = include_str!("../benches/instructions/baseline.txt");

fn counts(rows: &[(&str, f64)]) -> Counts {
    let rows = rows.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    Counts { made_by: "a compiler".into(), rows }
}

#[test]
fn every_operation_does_what_it_says_again_and_again() {
    for operation in &mut operations::all().expect("all can be made ready") {
        // A round looks itself whether all has happened.
        for n in 0..300 {
            (operation.round)().unwrap_or_else(|why| panic!("{}, round {n}: {why}", operation.name));
        }
        assert!(operation.times > 0, "{}", operation.name);
        assert!(!operation.name.contains(['"', '\\']), "{} needs no escapes in JSON", operation.name);
    }
}

#[test]
fn the_baseline_has_every_operation_in_order() {
    // given the file, then it names what is counted, and each takes something
    let before = Counts::parse(BASELINE).expect("a baseline");
    let names: Vec<_> = before.rows.iter().map(|(name, _)| name.as_str()).collect();
    let all = operations::all().expect("all can be made ready");
    assert_eq!(names, all.iter().map(|operation| operation.name).collect::<Vec<_>>());
    assert!(before.rows.iter().all(|(_, count)| *count >= 1.0), "{before:?}");
    // and it is as it would be written
    assert_eq!(before.text(), BASELINE);
}

#[test]
fn a_tenth_more_than_the_baseline_is_allowed_and_no_more() {
    // given a baseline
    let before = counts(&[("a", 100.0), ("b", 10.0)]);
    // when a takes a tenth more and b much less, then all is well
    assert_eq!(before.complaints(&counts(&[("a", 110.0), ("b", 1.0)])), [""; 0]);
    // when a takes a little more than that, then it is named, and b is not
    let complaints = before.complaints(&counts(&[("a", 110.1), ("b", 11.0)]));
    assert_eq!(complaints, ["a: 110.1 instructions, 100.0 before (+10 %)"]);
    // when b is called c, then both names are told
    let complaints = before.complaints(&counts(&[("a", 100.0), ("c", 10.0)]));
    assert_eq!(complaints, ["not in the baseline: c", "only in the baseline: b"]);
}

#[test]
fn the_count_is_found_in_what_callgrind_says() {
    let said =
        "==7== Callgrind, a call-graph generating cache profiler\n==7== Events    : Ir\n==7== Collected : 1234567\n";
    assert_eq!(callgrind::collected(said), Some(1_234_567));
    assert_eq!(callgrind::collected("==7== Events    : Ir\n"), None);
    assert_eq!(callgrind::collected("==7== Collected : many\n"), None);
}
