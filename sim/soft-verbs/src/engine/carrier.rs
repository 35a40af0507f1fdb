//! Ports that have the carrier of a netdev: looked at in `/sys/class/net` of the process's own network namespace.
//!
//! One thread a process, from the first such device that it opens; the look at that opening is made by the caller, so that a port's
//! state is right at once. Knows no verbs.

use std::fs;
use std::sync::Once;
use std::time::Duration;

use super::Fabric;
use crate::process::keep_signals_away;

/// From one look to the next.
const LOOKS: Duration = Duration::from_millis(50);

/// Keeps the ports of `nodes` that have a netdev up while that has its carrier, from now on.
pub fn follow(fabric: &'static Fabric, nodes: impl FnOnce() -> Vec<String>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let nodes = nodes();
        let ports = fabric.plan.ports.iter().enumerate().filter(|(_, port)| nodes.contains(&port.node));
        let ports: Vec<(usize, &str)> = ports.filter_map(|(at, port)| Some((at, port.netdev.as_deref()?))).collect();
        if ports.is_empty() {
            return;
        }
        look(fabric, &ports);
        let thread = std::thread::Builder::new().name("soft-verbs ports".to_owned());
        let watch = move || {
            keep_signals_away();
            loop {
                std::thread::sleep(LOOKS);
                look(fabric, &ports);
            }
        };
        if let Err(error) = thread.spawn(watch) {
            eprintln!("soft verbs: no thread that watches netdevs: {error}: ports stay as they are");
        }
    });
}

fn look(fabric: &Fabric, ports: &[(usize, &str)]) {
    for &(port, netdev) in ports {
        // Of a netdev that is set down the file cannot be read.
        fabric.set_carrier(port, read(netdev, "carrier").is_some_and(|text| text == "1"));
    }
}

/// The kernel's number of a netdev; 0 if there is none of that name.
pub fn index(netdev: &str) -> u32 {
    read(netdev, "ifindex").and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn read(netdev: &str, what: &str) -> Option<String> {
    fs::read_to_string(format!("/sys/class/net/{netdev}/{what}")).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_a_number_and_no_other_name_has() {
        assert_eq!(index("lo"), 1);
        assert_eq!(index("no such netdev"), 0);
    }
}
