//! What the processes of a node see, for people: tables. With what was seen before, rates as well.
//!
//! Pure. Figures are what the processes said; nothing is made up for one that did not.

use std::fmt::Write as _;

use mesh_sim::harness::report::human;
use serde_json::Value;

use super::{Answer, Seen};

/// All of it.
pub(super) fn text(seen: &Seen, before: Option<&Seen>) -> String {
    let mut out = String::new();
    let first = seen.answers.first().map_or(&Value::Null, |answer| &answer.rows[0]);
    if !first.is_null() {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "node {} (id {}), {} links\n",
            cell(&first["node"]),
            cell(&first["id"]),
            cell(&first["link"])
        );
    }
    processes(seen, before, &mut out);
    let ports = seen.of_node(|row| row["kind"] == "port").map(port).collect();
    table("ports", &["address", "device", "carrier", "speed", "neighbour"], ports, &mut out);
    let nodes = seen.of_node(|row| row["kind"] == "node").map(node).collect();
    table("nodes", &["node", "way", "", ""], nodes, &mut out);
    links(seen, &mut out);
    for answer in &seen.answers {
        let whose = whose(&answer.rows[0]);
        let all = answer.rows.iter().filter(|row| row["kind"] == "connection");
        let earlier = earlier(before, answer);
        let rows = all.map(|row| connection(row, answer, earlier)).collect();
        let heads = ["", "peer", "route", "lanes", "bytes", "rate", "age", "state"];
        table(&format!("connections of {whose}"), &heads, rows, &mut out);
        let errors: Vec<_> = answer.rows.iter().filter_map(|row| row["error"].as_str()).map(plain).collect();
        if !errors.is_empty() {
            let _ = writeln!(out, "{}\n", errors.join("\n"));
        }
        let sent = answer.rows.iter().filter(|row| row["kind"] == "traffic");
        let sent = sent.map(|row| traffic(row, answer, earlier)).collect();
        table(&format!("sent over links by {whose}"), &["link", "bytes", "rate"], sent, &mut out);
        let trunks = answer.rows.iter().filter(|row| row["kind"] == "trunk").map(trunk).collect();
        table(&format!("trunks of {whose}"), &["", "peer", "link", "streams", "slots filled"], trunks, &mut out);
    }
    out
}

fn processes(seen: &Seen, before: Option<&Seen>, out: &mut String) {
    let row = |answer: &Answer| {
        let of = &answer.rows[0];
        let earlier = earlier(before, answer).map(|(of, _)| of);
        let rate = earlier.and_then(|then| difference((of, then), "forwarded_bytes", (of, then)));
        let rate = rate.map(rate_text).unwrap_or_default();
        let job = of["job"].as_u64().map_or_else(|| "-".into(), |job| format!("{job:08x}"));
        let slots = match (of["slots_filled"].as_u64(), of["slots_lent"].as_u64(), of["slots"].as_u64()) {
            (Some(filled), Some(lent), Some(slots)) => format!("{filled}/{lent}/{slots}"),
            _ => "?".into(),
        };
        let sent = ["direct_bytes", "relayed_out_bytes"].map(|field| bytes(&of[field]));
        let [direct, relayed] = sent;
        let cells = [cell(&of["pid"]), cell(&of["role"]), job, cell(&of["rank"]), cell(&of["tcp_port"]), age(of)];
        let counts = [direct, relayed, bytes(&of["forwarded_bytes"]), rate, unknown(&of["streams"]), slots];
        cells.into_iter().chain(counts).collect()
    };
    let mut rows: Vec<Vec<String>> = seen.answers.iter().map(row).collect();
    for (pid, _, why) in &seen.silent {
        rows.push(vec![pid.to_string(), format!("({})", plain(why))]);
    }
    let heads = [
        "pid",
        "role",
        "job",
        "rank",
        "TCP port",
        "age",
        "sent direct",
        "by relays",
        "forwarded",
        "rate",
        "relays now",
        "slots filled/lent/all",
    ];
    table("processes", &heads, rows, out);
}

fn port(row: &Value) -> Vec<String> {
    let carrier = match row["carrier"].as_bool() {
        Some(true) => "yes",
        Some(false) => "no",
        None => "?",
    };
    let speed = row["speed_mbps"].as_u64().map_or_else(|| "?".into(), |speed| format!("{speed} Mbit/s"));
    let neighbour = match row["neighbour"].as_str() {
        Some(name) => format!("{} at {}", plain(name), cell(&row["neighbour_address"])),
        None => "-".into(),
    };
    vec![cell(&row["address"]), cell(&row["device"]), carrier.into(), speed, neighbour]
}

fn node(row: &Value) -> Vec<String> {
    let way = match (row["self"] == true, row["relays"].as_u64()) {
        (true, _) => "this node".into(),
        (_, None) => "no way".into(),
        (_, Some(0)) => "direct".into(),
        (_, Some(1)) => "1 relay".into(),
        (_, Some(relays)) => format!("{relays} relays"),
    };
    let note = |is: bool, text: &str| if is { text.to_owned() } else { String::new() };
    let found = note(row["found"] == false, "not found");
    let kind = note(row["daemon"] == true, "daemon") + &note(row["lets_pass"] == false, "lets nothing pass");
    vec![cell(&row["name"]), way, found, kind]
}

/// Links that are up: edges, with the number of their links where there is more than one.
fn links(seen: &Seen, out: &mut String) {
    let mut edges: Vec<(String, usize)> = Vec::new();
    for row in seen.of_node(|row| row["kind"] == "link") {
        let (a, b) = (cell(&row["a"]), cell(&row["b"]));
        let edge = if a <= b { format!("{a} - {b}") } else { format!("{b} - {a}") };
        match edges.iter_mut().find(|(name, _)| *name == edge) {
            Some((_, count)) => *count += 1,
            None => edges.push((edge, 1)),
        }
    }
    edges.sort();
    let total: usize = edges.iter().map(|(_, count)| count).sum();
    let name = |(edge, count): (String, usize)| if count > 1 { format!("{edge} ({count})") } else { edge };
    let names: Vec<_> = edges.into_iter().map(name).collect();
    let _ = writeln!(out, "links up: {total}{}{}\n", if total > 0 { ": " } else { "" }, names.join(", "));
}

fn connection(row: &Value, answer: &Answer, earlier: Option<(&Value, &[Value])>) -> Vec<String> {
    let field = if row["direction"] == "send" { "sent_bytes" } else { "received_bytes" };
    let before = earlier.and_then(|(_, rows)| {
        rows.iter().find(|one| one["kind"] == "connection" && one["number"] == row["number"] && row["number"] != 0)
    });
    let per_second = before.and_then(|before| difference((row, before), field, (&answer.rows[0], earlier?.0)));
    let way = if row["direction"] == "send" { "to" } else { "from" };
    let state = match row["code"].as_str() {
        Some(code) => format!("{} {}", cell(&row["state"]), plain(code)),
        None => cell(&row["state"]),
    };
    let rate = per_second.map(rate_text).unwrap_or_default();
    vec![
        way.into(),
        cell(&row["peer"]),
        cell(&row["route"]),
        cell(&row["lanes"]),
        row[field].as_u64().map_or_else(|| "-".into(), human),
        rate,
        age(row),
        state,
    ]
}

fn traffic(row: &Value, answer: &Answer, earlier: Option<(&Value, &[Value])>) -> Vec<String> {
    let before =
        earlier.and_then(|(_, rows)| rows.iter().find(|one| one["kind"] == "traffic" && one["link"] == row["link"]));
    let rate = before.and_then(|before| difference((row, before), "sent_bytes", (&answer.rows[0], earlier?.0)));
    vec![cell(&row["link"]), bytes(&row["sent_bytes"]), rate.map(rate_text).unwrap_or_default()]
}

fn trunk(row: &Value) -> Vec<String> {
    let way = if row["direction"] == "out" { "to" } else { "from" };
    let slots = format!("{}/{}", cell(&row["slots_filled"]), cell(&row["slots"]));
    vec![way.into(), cell(&row["peer"]), cell(&row["link"]), cell(&row["streams"]), slots]
}

/// The same process as it was seen before: its own row, and the others.
fn earlier<'a>(before: Option<&'a Seen>, answer: &Answer) -> Option<(&'a Value, &'a [Value])> {
    let same = |one: &&Answer| one.rows[0]["pid"] == answer.rows[0]["pid"];
    before?.answers.iter().find(same).map(|one| (&one.rows[0], &one.rows[1..]))
}

/// Bytes a second between two looks at a row, by the process's own age at each; now first.
fn difference(row: (&Value, &Value), field: &str, process: (&Value, &Value)) -> Option<f64> {
    let seconds = process.0["age_s"].as_f64()? - process.1["age_s"].as_f64()?;
    let bytes = row.0[field].as_f64()? - row.1[field].as_f64()?;
    (seconds > 0.0 && bytes >= 0.0).then_some(bytes / seconds)
}

fn rate_text(rate: f64) -> String {
    format!("{:.1} MB/s", rate / 1e6)
}

fn whose(process: &Value) -> String {
    match process["rank"].as_u64() {
        Some(rank) => format!("process {}, rank {rank}", cell(&process["pid"])),
        None => format!("process {}", cell(&process["pid"])),
    }
}

fn age(row: &Value) -> String {
    row["age_s"].as_f64().map_or_else(|| "?".into(), |age| format!("{age:.0} s"))
}

fn bytes(value: &Value) -> String {
    value.as_u64().map_or_else(|| unknown(value), human)
}

fn unknown(value: &Value) -> String {
    if value.is_null() { "?".into() } else { cell(value) }
}

/// A value in a place of a table; `-` if there is none.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => plain(text),
        other => other.to_string(),
    }
}

/// Without what a terminal would obey.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A table under its name; nothing where it has no rows. Columns that are empty in all rows are left out.
fn table(name: &str, heads: &[&str], rows: Vec<Vec<String>>, out: &mut String) {
    if rows.is_empty() {
        return;
    }
    let used = |n: &usize| rows.iter().any(|row| row.get(*n).is_some_and(|cell| !cell.is_empty()));
    let columns: Vec<usize> = (0..heads.len()).filter(used).collect();
    // A row that is shorter has text at its end that is no cell.
    let whole = || rows.iter().filter(|row| row.len() == heads.len());
    let width =
        |n: usize| whole().map(|row| row[n].chars().count()).chain([heads[n].chars().count()]).max().unwrap_or(0);
    let widths: Vec<usize> = columns.iter().map(|n| width(*n)).collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("  {}\n", padded.join("  ").trim_end())
    };
    let _ = writeln!(out, "{name}");
    out.push_str(&line(columns.iter().map(|n| heads[*n]).collect()));
    for row in &rows {
        out.push_str(&line(columns.iter().filter_map(|n| row.get(*n)).map(String::as_str).collect()));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::seen;
    use super::*;

    #[test]
    fn tables_say_what_was_seen() {
        // given a daemon, a guest with a connection that has failed, and some that do not answer
        let out = text(&seen(), None);
        let has = |line: &str| out.lines().any(|one| one.split_whitespace().collect::<Vec<_>>().join(" ") == line);
        for line in [
            "node a (id a), tcp links",
            "12 daemon - - 17917 10 s 0 B 0 B 2.0 KiB 1 1/4/64",
            "9 guest 00000007 0 40001 2 s 0 B 2.9 MiB ? ? ?",
            "10 (does not answer within 2 s: its state is T (stopped))",
            "10.0.0.1/30 f0 yes 100000 Mbit/s b at 10.0.0.2",
            "10.0.0.5/30 f1 no ? -",
            "c 1 relay not found lets nothing pass",
            "links up: 1: a - b",
            "to b - - - 1 s connecting",
            "to c a - b - c and a - d - c 2 2.9 MiB 2 s failed E59",
            "mesh[E59] it broke",
            "from b 10.0.0.1-10.0.0.2 1 1/4",
        ] {
            assert!(has(line), "{line:?} is missing in\n{out}");
        }
    }

    #[test]
    fn rates_are_the_differences_of_two_looks() {
        // given that a second later 2 MB more were sent, and 500 kB more forwarded
        let (before, mut now) = (seen(), seen());
        for answer in &mut now.answers {
            answer.rows[0]["age_s"] = (answer.rows[0]["age_s"].as_f64().expect("an age") + 1.0).into();
        }
        now.answers[0].rows[0]["forwarded_bytes"] = 502_048.into();
        now.answers[1].rows[3]["sent_bytes"] = 5_000_000.into();
        let out = text(&now, Some(&before));
        assert!(out.contains("0.5 MB/s") && out.contains("2.0 MB/s"), "{out}");
        // given another process in its place, whose counters are lower, then there is no rate
        assert!(!text(&before, Some(&now)).contains("MB/s"));
    }

    #[test]
    fn a_terminal_is_given_nothing_to_obey() {
        assert_eq!(plain("a\x1b[2Jb"), "a?[2Jb");
    }
}
