//! Ids, names and addresses that two nodes have.

use crate::stage::{Fabric, all_find, links, warned_only_of, were_late};

#[test]
fn two_neighbours_of_a_node_with_one_id_are_both_left_out() {
    // given a and b, cabled to each other and both to x, whom they know
    let direct = ["10.1.0.1", "10.1.0.2"];
    let fabric = Fabric::new(&[
        direct,
        ["10.1.1.1", "10.1.1.2"],
        ["10.1.2.1", "10.1.2.2"],
        ["10.1.3.1", "10.1.3.2"],
        ["10.1.4.1", "10.1.4.2"],
    ]);
    let a = fabric.agent("a", "10.1.0.1/30,10.1.1.1/30,10.1.3.1/30");
    let b = fabric.agent("b", "10.1.0.2/30,10.1.2.1/30,10.1.4.1/30");
    let x = fabric.agent("x", "10.1.1.2/30,10.1.2.2/30");
    all_find(&[&a, &b, &x], &links(&[direct, ["10.1.1.1", "10.1.1.2"], ["10.1.2.1", "10.1.2.2"]]));
    // when another host with x's id comes, cabled to both as well
    let twin = fabric.agent("x", "10.1.3.2/30,10.1.4.2/30");
    // then a and b keep each other and no link to either, and say it once
    all_find(&[&a, &b], &links(&[direct]));
    for node in [&a, &b] {
        let told = node.lines("mesh[W67]");
        let here = told.iter().filter(|line| line.contains("x at 10.1.") && line.contains("has id \"x\"")).count();
        // The twins may have heard of each other, and told all, before a neighbour of both knows them apart.
        let by_all = told.iter().filter(|line| line.contains("two nodes have id \"x\"")).count();
        assert!((here, by_all) == (1, told.len() - 1) && by_all < 2, "{}", node.log());
    }
    warned_only_of(&[&a, &b], &["mesh[W60]", "mesh[W67]"]);
    // and the two find nobody, which the command says by its status
    for node in [&x, &twin] {
        let seen = node.look().over();
        assert!(seen.status == Some(1) && seen.links.is_empty() && seen.text.contains("mesh[E75]"), "{seen:?}");
    }
    // when one of them is gone, then the other is a node like any other
    x.ends();
    all_find(&[&a, &b, &twin], &links(&[direct, ["10.1.3.1", "10.1.3.2"], ["10.1.4.1", "10.1.4.2"]]));
    for node in [a, b, twin] {
        node.ends();
    }
}

#[test]
fn two_nodes_far_apart_with_one_id_are_both_left_out() {
    // given a line a - x - b - c - x - d and a cable from a to d, and one from a to b
    let kept = [["10.2.2.1", "10.2.2.2"], ["10.2.5.1", "10.2.5.2"], ["10.2.6.1", "10.2.6.2"]];
    let lost = [["10.2.0.1", "10.2.0.2"], ["10.2.1.1", "10.2.1.2"], ["10.2.3.1", "10.2.3.2"], ["10.2.4.1", "10.2.4.2"]];
    let fabric = Fabric::new(&[&kept[..], &lost].concat());
    let a = fabric.agent("a", "10.2.0.1/30,10.2.5.1/30,10.2.6.1/30");
    let b = fabric.agent("b", "10.2.1.2/30,10.2.2.1/30,10.2.6.2/30");
    let c = fabric.agent("c", "10.2.2.2/30,10.2.3.1/30");
    let d = fabric.agent("d", "10.2.4.2/30,10.2.5.2/30");
    // when two hosts with one id come, of which none has both for neighbours
    let x = fabric.agent("x", "10.2.0.2/30,10.2.1.1/30");
    let twin = fabric.agent("x", "10.2.3.2/30,10.2.4.1/30");
    // then the four others keep what does not touch either
    let seen = all_find(&[&a, &b, &c, &d], &links(&kept));
    assert!(seen.iter().all(|seen| !seen.nodes.contains("x") && seen.text.contains("left out")), "{seen:?}");
    // and every node says it once: the two that it is about themselves, the others
    for node in [&x, &twin] {
        node.said_once("mesh[W67] node x: another node uses", &["\"x\""]);
    }
    for node in [&a, &b, &c, &d, &x, &twin] {
        node.said_once("two nodes have id", &["mesh[W67]", "\"x\""]);
    }
    warned_only_of(&[&a, &b, &c, &d, &x, &twin], &["mesh[W67]"]);
    for node in [a, b, c, d, x, twin] {
        node.ends();
    }
}

#[test]
fn clusters_that_share_a_machine_and_every_name_do_not_see_each_other() {
    // given two clusters with the same names, addresses and cables, side by side
    let cable = ["10.3.0.1", "10.3.0.2"];
    let both = [Fabric::new(&[cable]), Fabric::new(&[cable])];
    let pairs = both
        .each_ref()
        .map(|fabric| [("a", cable[0]), ("b", cable[1])].map(|(name, port)| fabric.agent(name, &format!("{port}/30"))));
    // then each node finds its neighbour, and nobody has anything to say
    for pair in pairs {
        let [a, b] = &pair;
        all_find(&[a, b], &links(&[cable]));
        warned_only_of(&[a, b], &[]);
        for node in pair {
            assert!(were_late(&[&node]) || node.lines("mesh[I06]").len() == 1, "{}", node.log());
            node.ends();
        }
    }
}
