//! Writes a topology as a file that reads back to an equal one.

use super::SCHEMA;
use crate::{Differences, Policy, Topology};
use std::fmt::Write as _;

/// The text of the file.
pub(crate) fn write(topology: &Topology) -> String {
    let mut text = format!("schema = {SCHEMA}\n");
    for node in topology.nodes() {
        let mut line = |key: &str, value: String| put(&mut text, key, &value);
        line("\n[[node]]", String::new());
        line("name", quoted(&node.name));
        if node.stable_id != node.name {
            line("id", quoted(&node.stable_id));
        }
        if let Some(control) = node.control {
            line("control", quoted(&control.to_string()));
        }
        if !node.relay {
            line("relay", "false".to_owned());
        }
        for port in &node.ports {
            line("\n[[node.port]]", String::new());
            line("device", quoted(&port.device));
            line("address", quoted(&format!("{}/{}", port.address, port.prefix)));
            if let Some(speed) = port.speed_mbps {
                line("speed", quoted(&speed_text(speed)));
            }
            if let Some(mtu) = port.mtu {
                line("mtu", mtu.to_string());
            }
        }
    }
    for subnet in topology.switches() {
        put(&mut text, "\n[[switch]]", "");
        put(&mut text, "subnet", &quoted(&subnet.to_string()));
    }
    write_policy(&mut text, topology.policy());
    text
}

/// Only what differs from what holds where nothing is written.
fn write_policy(text: &mut String, policy: &Policy) {
    let differs = policy.differences != Differences::default();
    if policy.max_relays.is_some() || differs {
        put(text, "\n[policy]", "");
    }
    if let Some(max_relays) = policy.max_relays {
        put(text, "max_relays", &max_relays.to_string());
    }
    if differs {
        put(text, "differences", &quoted(policy.differences.name()));
    }
    for route in &policy.routes {
        let via: Vec<_> = route.via.iter().map(|name| quoted(name)).collect();
        put(text, "\n[[policy.route]]", "");
        put(text, "from", &quoted(&route.from));
        put(text, "to", &quoted(&route.to));
        put(text, "via", &format!("[{}]", via.join(", ")));
    }
}

fn put(text: &mut String, key: &str, value: &str) {
    // Writing to a string cannot fail.
    let _ = if value.is_empty() { writeln!(text, "{key}") } else { writeln!(text, "{key} = {value}") };
}

fn quoted(value: &str) -> String {
    toml::Value::from(value).to_string()
}

/// `100G` where it comes out even, else `2500M`.
pub(crate) fn speed_text(mbps: u32) -> String {
    if mbps.is_multiple_of(1000) { format!("{}G", mbps / 1000) } else { format!("{mbps}M") }
}
