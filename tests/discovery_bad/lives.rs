//! Nodes that stop for a while, come back as somebody else, or do not come at all.

use std::time::Duration;

use crate::common::{nccl_mesh_with, plugin_file};
use crate::stage::{Fabric, Folder, all_find, links, warned_only_of, were_late};

const AB: [&str; 2] = ["10.4.0.1", "10.4.0.2"];
const BC: [&str; 2] = ["10.4.1.1", "10.4.1.2"];
const CA: [&str; 2] = ["10.4.2.1", "10.4.2.2"];
const A: &str = "10.4.0.1/30,10.4.2.2/30";
const B: &str = "10.4.0.2/30,10.4.1.1/30";
const C: &str = "10.4.1.2/30,10.4.2.1/30";

#[test]
fn a_node_whose_time_stands_still_is_missed_and_comes_back() {
    // given a ring of three
    let fabric = Fabric::new(&[AB, BC, CA]);
    let [a, b, c] = [("a", A), ("b", B), ("c", C)].map(|(name, ports)| fabric.agent(name, ports));
    let all = links(&[AB, BC, CA]);
    all_find(&[&a, &b, &c], &all);
    // when one of them is stopped, then its neighbours miss it, and go on with each other
    b.signal("-STOP");
    for node in [&a, &c] {
        node.says("neighbour b");
        node.says("mesh[W60]");
    }
    all_find(&[&a, &c], &links(&[CA]));
    // when it goes on, then all is as before
    b.signal("-CONT");
    all_find(&[&a, &b, &c], &all);
    // and each said once what it saw: that b is gone, and that the clock leapt
    for node in [&a, &c] {
        let gone = node.lines("mesh[W60]");
        let silent = gone.iter().filter(|line| line.contains("neighbour b") && line.contains("nothing was heard"));
        assert!(silent.count() > 0 && (gone.len() == 1 || were_late(&[&a, &c])), "{}", node.log());
    }
    // b may have been told by a neighbour that it is none any more before it was heard again
    warned_only_of(&[&a, &b, &c], &["mesh[W60]", "mesh[W70]"]);
    let far = |line: &&String| {
        let ms = line.split_once("leapt by ").and_then(|(_, rest)| rest.split(' ').next()?.parse::<i64>().ok());
        ms.is_some_and(|ms| ms > 1000)
    };
    assert_eq!(b.lines("mesh[W70] node b").iter().filter(far).count(), 1, "{}", b.log());
    for node in [a, b, c] {
        node.ends();
    }
}

#[test]
fn a_node_that_comes_back_under_another_name_takes_the_place_of_the_old_one() {
    for pause in [Duration::ZERO, Duration::from_millis(600)] {
        // given a ring of three
        let fabric = Fabric::new(&[AB, BC, CA]);
        let [a, b, c] = [("a", A), ("b", B), ("c", C)].map(|(name, ports)| fabric.agent(name, ports));
        let all = links(&[AB, BC, CA]);
        all_find(&[&a, &b, &c], &all);
        // when one of them ends, and the same host starts again under another name, at once or after a while
        b.ends();
        std::thread::sleep(pause);
        let renamed = fabric.agent("new-b", B);
        // then the others know the new one, and the old one no more
        for seen in all_find(&[&a, &renamed, &c], &all) {
            assert_eq!(seen.nodes, ["a", "c", "new-b"].map(str::to_owned).into(), "{}", seen.text);
            assert_eq!(seen.status, Some(0), "{}", seen.text);
        }
        // and each neighbour has said once that the old one is gone, and nothing that would frighten people
        for node in [&a, &c] {
            let gone = node.lines("mesh[W60]");
            let old = gone.iter().filter(|line| line.contains("neighbour b at")).count();
            assert!(old > 0 && (gone.len() == 1 || were_late(&[&a, &renamed, &c])), "{}", node.log());
        }
        warned_only_of(&[&a, &c], &["mesh[W60]"]);
        warned_only_of(&[&renamed], &[]);
        for node in [a, c, renamed] {
            node.ends();
        }
    }
}

#[test]
fn a_topology_file_of_a_newer_schema_is_refused_in_one_line() {
    // given a file of which nothing can be known but that it is newer
    let folder = Folder::new();
    let file = folder.path.join("newer.toml");
    std::fs::write(&file, "schema = 2\n[[hosts]]\nname = \"a\"\n").expect("a file");
    let path = file.to_string_lossy().into_owned();
    let fabric = Fabric::new(&[AB]);
    let host = fabric.host("a", "10.4.0.1/30").with("NCCL_MESH_TOPOLOGY", &path);
    let one_line = |text: &str| text.lines().filter(|line| line.contains("mesh[")).count() == 1;
    // when the daemon or a look is to go by it, then it ends at once, with that line alone
    for arguments in [&["agent"][..], &["topology", "discover"]] {
        let output = host.command(arguments).output().expect("starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        let facts = ["mesh[E64]", "schema 2 is newer than 1", &path];
        assert!(one_line(&told) && facts.iter().all(|fact| told.contains(fact)), "{told}");
    }
    // when it is to be a fabric's, then nothing starts
    let ran = nccl_mesh_with(&["sim", "run", "--topology", &path, "--sizes", "4"], &[], Duration::from_secs(60));
    let ran = ran.leaves_nothing().ends(1);
    assert!(one_line(&ran.stderr) && ran.stderr.contains("mesh[E64]"), "{}", ran.told());
    // when the nodes of a job go by it, then each says so once, and the job fails
    let plugin = plugin_file();
    let mut words = vec!["sim", "run", "--plugin", plugin.to_str().expect("plain")];
    let set = format!("NCCL_MESH_TOPOLOGY={path}");
    words.extend(["--nodes", "3", "--sizes", "4", "--discover", "--env", &set]);
    let ran = nccl_mesh_with(&words, &[], Duration::from_secs(60)).leaves_nothing().ends(1);
    for node in ["node0", "node1", "node2"] {
        let lines: Vec<&str> = ran.lines_with("mesh[E64]");
        assert_eq!(lines.iter().filter(|line| line.starts_with(node)).count(), 1, "{}", ran.told());
    }
}
