//! Rules of a small fabric, each asked for by itself.

use super::*;
use std::sync::atomic::{AtomicU8, Ordering};

const A0: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const B0: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const A1: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 1);
const C0: Ipv4Addr = Ipv4Addr::new(10, 9, 1, 2);
const D0: Ipv4Addr = Ipv4Addr::new(10, 9, 2, 1);
const PLACE_OF_B0: Ipv4Addr = Ipv4Addr::new(127, 9, 0, 2);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);

const FILE: &str = "# a has two cables\nport 10.9.0.1 127.9.0.1\nport 10.9.0.2 127.9.0.2\ncable 10.9.0.1 10.9.0.2\n\n\
    port 10.9.1.1 127.9.0.3 # to c\nport 10.9.1.2 127.9.0.4\n cable\t10.9.1.1 10.9.1.2\nport 10.9.2.1 10.9.2.1\n";

fn node_a() -> Fabric {
    Fabric::parse(FILE, "10.9.0.1, 10.9.1.1").expect("well formed")
}

#[test]
fn a_port_reaches_only_what_it_is_cabled_to() {
    // given a node with a cable to b and one to c, and a port d that nobody is cabled to
    let fabric = node_a();
    // when it connects from a port, then only that port's own cable counts
    assert_eq!(fabric.reach(Some(A0), B0), Verdict::Cabled);
    assert_eq!(fabric.reach(Some(A0), C0), Verdict::NotCabled);
    assert_eq!(fabric.reach(Some(A1), C0), Verdict::Cabled);
    assert_eq!(fabric.reach(Some(A1), D0), Verdict::NotCabled);
    // and a source that is no port of this node reaches no port
    assert_eq!(fabric.reach(Some(OUTSIDE), B0), Verdict::NotCabled);
    assert_eq!(fabric.reach(Some(B0), A0), Verdict::NotCabled);
}

#[test]
fn what_is_sent_to_everyone_goes_to_the_ports_on_the_cable() {
    // given a port with a cable, and one without
    let fabric = node_a();
    assert_eq!(fabric.cabled_to(A0), [B0]);
    assert!(fabric.cabled_to(D0).is_empty());
    // and only the node's own ports are its own, in the order given
    assert_eq!([A0, A1, B0, OUTSIDE].map(|address| fabric.own_number(address)), [Some(0), Some(1), None, None]);
    assert!(fabric.is_own(A0) && fabric.is_own(A1) && !fabric.is_own(B0) && !fabric.is_own(OUTSIDE));
}

#[test]
fn a_cable_that_is_cut_leads_nowhere_until_it_is_mended() {
    // given a's cables to b and c, of which the first is cut
    static BYTES: [AtomicU8; 2] = [AtomicU8::new(1), AtomicU8::new(0)];
    let fabric = node_a().with_cuts(Cuts::new(&BYTES));
    assert_eq!(fabric.cables(), 2);
    // then nothing gets to b, wherever it comes from, and c is as near as ever
    assert_eq!((fabric.reach(Some(A0), B0), fabric.reach(None, B0)), (Verdict::Cut, Verdict::Cut));
    assert_eq!((fabric.reach(Some(A1), B0), fabric.reach(None, C0)), (Verdict::NotCabled, Verdict::From(A1)));
    assert!(fabric.cabled_to(A0).is_empty());
    assert_eq!(fabric.cabled_to(A1), [C0]);
    // when it is mended, then all is as before
    BYTES[0].store(0, Ordering::Relaxed);
    assert_eq!((fabric.reach(Some(A0), B0), fabric.reach(None, B0)), (Verdict::Cabled, Verdict::From(A0)));
    assert_eq!(fabric.cabled_to(A0), [B0]);
}

#[test]
fn an_unbound_source_goes_by_the_cable_that_is_whole() {
    // given a node with two ports on one switch, one of them cut off from it
    static BYTES: [AtomicU8; 2] = [AtomicU8::new(1), AtomicU8::new(0)];
    let ports = "port 10.9.0.1 127.9.0.1\nport 10.9.0.2 127.9.0.2\nport 10.9.0.3 127.9.0.3\n";
    let file = format!("{ports}cable 10.9.0.1 10.9.0.3\ncable 10.9.0.2 10.9.0.3\n");
    let fabric = Fabric::parse(&file, "10.9.0.1,10.9.0.2").expect("well formed").with_cuts(Cuts::new(&BYTES));
    // then the other is the source
    assert_eq!(fabric.reach(None, Ipv4Addr::new(10, 9, 0, 3)), Verdict::From(B0));
}

#[test]
fn an_unbound_source_gets_the_right_port() {
    let fabric = node_a();
    assert_eq!(fabric.reach(None, B0), Verdict::From(A0));
    assert_eq!(fabric.reach(None, C0), Verdict::From(A1));
    assert_eq!(fabric.reach(None, D0), Verdict::Unreachable);
    assert_eq!(fabric.reach(None, A1), Verdict::From(A1));
}

#[test]
fn a_node_reaches_its_own_ports_and_everything_outside_but_no_place() {
    let fabric = node_a();
    assert_eq!(fabric.reach(Some(A0), A1), Verdict::Cabled);
    assert_eq!(fabric.reach(Some(A0), OUTSIDE), Verdict::Outside);
    assert_eq!(fabric.reach(None, OUTSIDE), Verdict::Outside);
    assert_eq!(fabric.reach(None, PLACE_OF_B0), Verdict::Unreachable);
}

#[test]
fn other_nodes_ports_and_places_cannot_be_bound() {
    let fabric = node_a();
    assert!(fabric.may_bind(A0) && fabric.may_bind(OUTSIDE) && fabric.may_bind(Ipv4Addr::UNSPECIFIED));
    assert!(!fabric.may_bind(B0) && !fabric.may_bind(D0) && !fabric.may_bind(PLACE_OF_B0));
}

#[test]
fn addresses_and_places_lead_to_each_other() {
    let fabric = node_a();
    assert_eq!((fabric.place(B0), fabric.address(PLACE_OF_B0)), (PLACE_OF_B0, B0));
    assert_eq!((fabric.place(D0), fabric.address(D0)), (D0, D0));
    assert_eq!((fabric.place(OUTSIDE), fabric.address(OUTSIDE)), (OUTSIDE, OUTSIDE));
}

#[test]
fn whatever_is_malformed_is_refused() {
    // given lines with a fault each behind two sound ports, then the line is named
    let ports = "port 10.9.0.1 127.9.0.1\nport 10.9.0.2 127.9.0.2\n";
    let faults = [
        "10.9.0.1 10.9.0.2",
        "port 10.9.0.3",
        "port 10.9.0.x 127.9.0.3",
        "port 10.9.0.1 127.9.0.3",
        "port 10.9.0.3 127.9.0.1",
        "cable 10.9.0.1 10.9.0.1",
        "cable 10.9.0.1 10.9.0.3",
        "cable 10.9.0.1 10.9.0.2 10.9.0.1",
    ];
    for fault in faults {
        let error = Fabric::parse(&format!("{ports}{fault}"), "").expect_err(fault);
        assert_eq!(error, FabricError::Line { number: 3, text: fault.to_owned() });
    }
    let twice = format!("{ports}cable 10.9.0.1 10.9.0.2\ncable 10.9.0.2 10.9.0.1\n");
    let error = Fabric::parse(&twice, "").expect_err("said twice");
    assert_eq!(error, FabricError::Line { number: 4, text: "cable 10.9.0.2 10.9.0.1".to_owned() });
    assert_eq!(Fabric::parse("# nothing\n", "").expect_err("no port"), FabricError::Empty);
    let own = Fabric::parse(ports, "10.9.0").expect_err("no address");
    assert_eq!(own, FabricError::Own { text: "10.9.0".to_owned() });
    let foreign = Fabric::parse(ports, "127.9.0.1").expect_err("a place is not an address");
    assert_eq!(foreign, FabricError::Foreign { address: Ipv4Addr::new(127, 9, 0, 1) });
}
