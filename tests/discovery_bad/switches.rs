//! Switched segments with something wrong: one that not all declare, a port that is off the switch, and a setting that names none.

use std::fmt::Write as _;

use crate::stage::{Agent, Fabric, warned_only_of};

/// Four ports on a switch, and a ring of cables between their nodes.
const NODES: [(&str, [&str; 3]); 4] = [
    ("a", ["10.8.9.1/24", "10.8.0.1/30", "10.8.3.2/30"]),
    ("b", ["10.8.9.2/24", "10.8.0.2/30", "10.8.1.1/30"]),
    ("c", ["10.8.9.3/24", "10.8.1.2/30", "10.8.2.1/30"]),
    ("d", ["10.8.9.4/24", "10.8.2.2/30", "10.8.3.1/30"]),
];

/// Their fabric, with this many of the ports on the switch; the rest are plugged in nowhere where anybody is.
fn fabric(on_switch: usize) -> Fabric {
    let mut cables =
        vec![["10.8.0.1", "10.8.0.2"], ["10.8.1.1", "10.8.1.2"], ["10.8.2.1", "10.8.2.2"], ["10.8.3.1", "10.8.3.2"]];
    let ports = ["10.8.9.1", "10.8.9.2", "10.8.9.3", "10.8.9.4"];
    for (at, a) in ports.iter().enumerate() {
        // What is off the switch is at something that does not answer.
        let others = &ports[at + 1..on_switch.max(at + 1)];
        cables.extend(others.iter().map(|b| [*a, *b]));
        if at >= on_switch {
            cables.push([*a, "10.8.9.99"]);
        }
    }
    Fabric::new(&cables)
}

/// The topology file of the four.
fn file() -> String {
    let mut text = "schema = 1\n\n[[switch]]\nsubnet = \"10.8.9.0/24\"\n".to_owned();
    for (name, ports) in NODES {
        let _ = write!(text, "\n[[node]]\nname = \"{name}\"\n");
        for port in ports {
            let _ = write!(text, "\n[[node.port]]\ndevice = \"f\"\naddress = \"{port}\"\n");
        }
    }
    text
}

/// What a daemon's host finds.
fn found(agent: &Agent) -> String {
    agent.look().over().text
}

#[test]
fn a_switch_that_is_as_declared_is_no_word_and_a_port_that_is_off_it_is_one_line() {
    for on_switch in [4, 3] {
        let fabric = fabric(on_switch);
        let path = std::env::temp_dir().join(format!("nccl-mesh-switch-{}-{on_switch}.toml", std::process::id()));
        std::fs::write(&path, file()).expect("a file");
        // given daemons on nodes that have a topology file with the switch
        let told = |(name, ports): (&str, [&str; 3])| {
            fabric.host(name, &ports.join(",")).with("NCCL_MESH_TOPOLOGY", &path.to_string_lossy()).agent()
        };
        let agents = NODES.map(told);
        let each = agents.iter().collect::<Vec<_>>();
        if on_switch == 4 {
            // when all is there, then every one says that it is as declared
            each.iter().for_each(|agent| agent.says("mesh[I11]"));
            warned_only_of(&each, &[]);
        } else {
            // when a port reaches no other, then every one says that, and nothing else
            for agent in &each {
                agent.says("mesh[W76]");
                agent.said_once(
                    "mesh[W76]",
                    &["node \"d\"", "10.8.9.4", "no other port of the switched segment 10.8.9.0/24"],
                );
            }
            warned_only_of(&each, &["mesh[W76]"]);
            assert!(!found(&agents[0]).contains("address = \"10.8.9.4"), "it is no port of what is found");
        }
        assert!(found(&agents[0]).contains("[[switch]]\nsubnet = \"10.8.9.0/24\""), "{}", found(&agents[0]));
        agents.into_iter().for_each(|agent| drop(agent.ends()));
        std::fs::remove_file(path).expect("it was there");
    }
}

#[test]
fn a_switch_that_one_node_does_not_declare_makes_no_link_and_all_say_so_once() {
    // given the same without a file, where d is not told of the switch
    let fabric = fabric(4);
    let told = |(name, ports): (&str, [&str; 3])| {
        let host = fabric.host(name, &ports.join(","));
        if name == "d" { host.agent() } else { host.with("NCCL_MESH_SWITCHES", "10.8.9.0/24").agent() }
    };
    let agents = NODES.map(told);
    for agent in &agents {
        agent.says("10.8.9.0/24 is declared to be switched at 10.8.9.1 of a, and not at 10.8.9.4 of d");
    }
    // then d also says whom it hears, and no port of the segment is in what is found
    agents[3].says("mesh[W68] node d: 10.8.9.4: both");
    for agent in &agents {
        assert!(!found(agent).contains("address = \"10.8.9."), "{}", found(agent));
        let limit = if agent.host.name == "d" { 2 } else { 1 };
        assert_eq!(agent.lines("mesh[W68]").len(), limit, "{}", agent.log());
    }
    warned_only_of(&agents.iter().collect::<Vec<_>>(), &["mesh[W68]", "mesh[W60]"]);
    agents.into_iter().for_each(|agent| drop(agent.ends()));
}

#[test]
fn a_setting_that_names_no_subnet_is_refused_with_the_word() {
    let fabric = Fabric::new(&[["10.8.0.1", "10.8.0.2"]]);
    let host = fabric.host("a", "10.8.0.1/30").with("NCCL_MESH_SWITCHES", "10.8.9.0/24,10.8.7.1/24");
    for arguments in [&["agent"][..], &["topology", "discover"]] {
        let output = host.command(arguments).output().expect("starts");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        let facts = ["mesh[E91] NCCL_MESH_SWITCHES", "\"10.8.7.1/24\"", "within 10.8.7.0/24"];
        assert!(facts.iter().all(|fact| told.contains(fact)), "{told}");
    }
}
