//! Reads a topology file into descriptions of nodes. Collects every fault of the file's form; what the descriptions
//! mean together is checked elsewhere.

use super::policy::read_policy;
use super::table::{Lines, Report, Table};
use super::{NODE_KEYS, PORT_KEYS, SCHEMA, SWITCH_KEYS, TOP_KEYS};
use crate::check::Places;
use crate::{NodeSpec, Policy, PortSpec, Problem, ProblemCode, Subnet};
use std::net::Ipv4Addr;
use toml::de::DeTable;

/// What a file holds, as far as it could be read.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) switches: Vec<Subnet>,
    pub(crate) policy: Policy,
    pub(crate) places: Places,
    pub(crate) problems: Vec<Problem>,
}

/// Reads the text; never fails, but says what is wrong.
pub(crate) fn read(text: &str) -> Read {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut report = Report { lines: Lines::of(text), problems: Vec::new(), broken: !errors.is_empty() };
    for error in errors {
        let line = error.span().map(|span| report.lines.at(span.start));
        let message = format!("not TOML: {}", error.message().replace('\n', ", "));
        report.problems.push(Problem::new(ProblemCode::Syntax, "", "", message).at_line(line));
    }
    let top = Table { table: document.get_ref(), line: 1, node: "", path: "" };
    if check_schema(&top, &mut report) == SchemaFound::Newer {
        // What else is in it, only a newer release can judge.
        report.problems.retain(|problem| problem.code == ProblemCode::Schema);
        let places = Places { incomplete: true, ..Places::default() };
        return Read {
            nodes: Vec::new(),
            switches: Vec::new(),
            policy: Policy::default(),
            places,
            problems: report.problems,
        };
    }
    top.only(&mut report, TOP_KEYS);

    let mut places = Places { incomplete: report.broken, ..Places::default() };
    let mut nodes = Vec::new();
    for (index, (table, line)) in top.tables(&mut report, "node").into_iter().enumerate() {
        nodes.push(read_node(index, table, line, &mut places, &mut report));
        places.nodes.push(Some(line));
    }
    let mut switches = Vec::new();
    for (index, (table, line)) in top.tables(&mut report, "switch").into_iter().enumerate() {
        let path = format!("switch[{index}].");
        let table = Table { table, line, node: "", path: &path };
        table.only(&mut report, SWITCH_KEYS);
        match read_switch(&table, &mut report) {
            Some(subnet) => {
                switches.push(subnet);
                places.switches.push(Some(line));
            }
            None => places.incomplete = true,
        }
    }
    let policy = read_policy(&top, &mut places, &mut report);
    Read { nodes, switches, policy, places, problems: report.problems }
}

/// Whether the rest of the file can be judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SchemaFound {
    Known,
    Newer,
}

fn check_schema(top: &Table<'_>, report: &mut Report) -> SchemaFound {
    if top.get("schema").is_none() {
        if !report.broken {
            let message = format!("missing; begin the file with: schema = {SCHEMA}");
            top.problem(report, ProblemCode::Schema, "schema", message);
        }
    } else if let Some(found) = top.number(report, "schema", (i64::MIN, i64::MAX)) {
        if found > SCHEMA {
            let message = format!("schema {found} is newer than {SCHEMA}, the newest that this release reads; upgrade");
            top.problem(report, ProblemCode::Schema, "schema", message);
            return SchemaFound::Newer;
        }
        if found != SCHEMA {
            top.problem(report, ProblemCode::Schema, "schema", format!("no schema {found} exists; use {SCHEMA}"));
        }
    }
    SchemaFound::Known
}

fn read_node(index: usize, table: &DeTable<'_>, line: usize, places: &mut Places, report: &mut Report) -> NodeSpec {
    let stand_in = format!("node #{}", index + 1);
    let name = table.get("name").and_then(|value| value.get_ref().as_str());
    let node = Table { table, line, node: name.unwrap_or(&stand_in), path: "" };
    node.only(report, NODE_KEYS);
    if node.get("name").is_none() {
        node.missing(report, "name", "give the node a unique name");
    } else {
        node.string(report, "name");
    }
    let mut spec = NodeSpec::new(node.node);
    spec.id = node.string(report, "id").map(str::to_owned);
    spec.relay = node.truth(report, "relay").unwrap_or(true);
    spec.control = node.string(report, "control").and_then(|text| {
        let address = text.parse().ok().filter(|&address| crate::derive::usable_address(address));
        if address.is_none() {
            let message = format!("{text:?} is no IPv4 address of a host; write it like \"10.0.0.11\"");
            node.problem(report, ProblemCode::BadAddress, "control", message);
        }
        address
    });
    let mut ports = Vec::new();
    for (port, (table, line)) in node.tables(report, "port").into_iter().enumerate() {
        let path = format!("port[{port}].");
        let table = Table { table, line, node: node.node, path: &path };
        match read_port(&table, report) {
            Some(read) => {
                spec.ports.push(read);
                ports.push((port, Some(line)));
            }
            None => places.incomplete = true,
        }
    }
    places.ports.push(ports);
    spec
}

/// `None` if the port has no usable address.
fn read_port(port: &Table<'_>, report: &mut Report) -> Option<PortSpec> {
    port.only(report, PORT_KEYS);
    if port.get("device").is_none() {
        port.missing(report, "device", "name the RDMA device or netdev");
    }
    let device = port.string(report, "device").unwrap_or_default();
    let speed = port.get("speed").and_then(|value| match value.get_ref().as_str() {
        Some(text) => {
            let speed = parse_speed(text);
            if speed.is_none() {
                let message = format!("{text:?} is no speed; write it like \"100G\" or \"2500M\", bits a second");
                port.problem(report, ProblemCode::BadValue, "speed", message);
            }
            speed
        }
        None => {
            let message = format!("a string like \"100G\" wanted, {} found", value.get_ref().type_str());
            port.problem(report, ProblemCode::BadValue, "speed", message);
            None
        }
    });
    let mtu = port.number(report, "mtu", (68, 65_535)).and_then(|mtu| u32::try_from(mtu).ok());
    if port.get("address").is_none() {
        port.missing(report, "address", "write address and prefix length like \"192.168.100.1/30\"");
        return None;
    }
    let (address, prefix) = read_prefixed(port, report, "address")?;
    Some(PortSpec { address, prefix, device: device.to_owned(), speed_mbps: speed, mtu })
}

fn read_switch(switch: &Table<'_>, report: &mut Report) -> Option<Subnet> {
    if switch.get("subnet").is_none() {
        switch.missing(report, "subnet", "write the switched subnet like \"10.10.0.0/24\"");
        return None;
    }
    let (address, prefix) = read_prefixed(switch, report, "subnet")?;
    let subnet = Subnet::of(address, prefix)?;
    if subnet.network() != address {
        let message = format!("{address}/{prefix} is an address within {subnet}; write the subnet");
        switch.problem(report, ProblemCode::BadValue, "subnet", message);
        return None;
    }
    Some(subnet)
}

/// An address with a prefix length in range.
fn read_prefixed(table: &Table<'_>, report: &mut Report, key: &str) -> Option<(Ipv4Addr, u8)> {
    let text = table.string(report, key)?;
    let Some((address, prefix)) = text.split_once('/') else {
        let remedy = if text.parse::<Ipv4Addr>().is_ok() { "the prefix length is missing" } else { "no IPv4 address" };
        let message = format!("{text:?}: {remedy}; write it like \"192.168.100.1/30\"");
        table.problem(report, ProblemCode::BadAddress, key, message);
        return None;
    };
    let Ok(address) = address.parse::<Ipv4Addr>() else {
        let message = format!("{address:?} is no IPv4 address; write it like \"192.168.100.1/30\"");
        table.problem(report, ProblemCode::BadAddress, key, message);
        return None;
    };
    let parsed = prefix.parse::<u8>().ok().filter(|&length| Subnet::of(address, length).is_some());
    if parsed.is_none() {
        let message =
            format!("prefix length {prefix:?} is out of range; use {} to {}", Subnet::MIN_PREFIX, Subnet::MAX_PREFIX);
        table.problem(report, ProblemCode::BadPrefix, key, message);
    }
    Some((address, parsed?))
}

/// Mbit/s from a number and a unit M, G or T, with or without `bit/s`, `b/s` or `bps` after it.
pub fn parse_speed(text: &str) -> Option<u32> {
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let short = ["bit/s", "bps", "b/s", "bit"].iter().find_map(|unit| lower.strip_suffix(unit)).unwrap_or(&lower);
    let factor = match short.chars().last()? {
        'm' => 1.0,
        'g' => 1e3,
        't' => 1e6,
        _ => return None,
    };
    let digits = short[..short.len() - 1].trim_end();
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let mbps = (digits.parse::<f64>().ok()? * factor).round();
    (1.0..=1e8).contains(&mbps).then_some(mbps as u32)
}

#[cfg(test)]
mod tests {
    use super::parse_speed;

    #[test]
    fn speeds() {
        assert_eq!(parse_speed("100G"), Some(100_000));
        assert_eq!(parse_speed("2.5 Gb/s"), Some(2_500));
        assert_eq!(parse_speed("1T"), Some(1_000_000));
        assert_eq!(parse_speed("100T"), Some(100_000_000));
        for bad in ["", "G", "100", "-1G", "1e3G", "0M", "101T", "100K", "nanG", "infG"] {
            assert_eq!(parse_speed(bad), None, "{bad:?}");
        }
    }
}
