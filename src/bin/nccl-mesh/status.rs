//! `nccl-mesh status`: what the processes of this host's node see now. Asks them and prints; changes nothing, and is no process of the
//! node itself. Runs on the command's main thread.

mod screen;

use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use nccl_net_mesh::ask::{Asked, ask, others};
use serde_json::{Value, json};

use crate::routes::{emit, fail};

/// Longest wait for the answers, of all processes together.
const LIMIT: Duration = Duration::from_secs(2);

/// Options of the command.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The node is found as its processes are: by NCCL_MESH_PORT, and by NCCL_MESH_NODE where that is set for them. docs/status.md \
                  says what each figure means. Exit status 0 only if there are processes and each has answered."
)]
pub(crate) struct Args {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Again every SECONDS, until interrupted, with rates
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
    watch: Option<f64>,
}

/// Fails if there is no process, or one does not answer.
pub(crate) fn run(args: &Args) -> ExitCode {
    let Some(seconds) = args.watch else { return once(args) };
    if !(0.05..=86_400.0).contains(&seconds) {
        return fail("mesh[E33] --watch takes seconds, from 0.05 to 86400");
    }
    watch(args, Duration::from_secs_f64(seconds))
}

fn once(args: &Args) -> ExitCode {
    let seen = match Seen::now() {
        Ok(seen) => seen,
        Err(why) => return fail(&why),
    };
    let printed = emit(&if args.json { seen.lines() } else { screen::text(&seen, None) });
    for line in seen.silent_lines() {
        fail(&line);
    }
    if seen.silent.is_empty() { printed } else { ExitCode::FAILURE }
}

/// Until a signal, or until nobody reads any more. Who is not there may come.
fn watch(args: &Args, every: Duration) -> ExitCode {
    let clears = !args.json && std::io::stdout().is_terminal();
    let mut last = None;
    loop {
        let (text, seen) = match Seen::now() {
            Ok(seen) if args.json => (seen.lines(), Some(seen)),
            Ok(seen) => (screen::text(&seen, last.as_ref()), Some(seen)),
            Err(why) => (format!("{why}\n"), None),
        };
        let errors: String = seen.iter().flat_map(Seen::silent_lines).map(|line| line + "\n").collect();
        let mut out = std::io::stdout().lock();
        let home = if clears { "\x1b[H\x1b[2J" } else { "" };
        // What is not JSON goes where it cannot be taken for it.
        let written = if args.json && seen.is_none() {
            write!(std::io::stderr(), "{text}")
        } else {
            let tail = if args.json { "" } else { &errors };
            write!(out, "{home}{text}{tail}").and_then(|()| out.flush())
        };
        if let Err(error) = written {
            return if error.kind() == std::io::ErrorKind::BrokenPipe {
                ExitCode::SUCCESS
            } else {
                fail(&format!("standard output: {error}"))
            };
        }
        drop(out);
        last = seen;
        std::thread::sleep(every);
    }
}

/// What a process has answered: its rows, the first of which is about itself.
#[derive(Debug)]
struct Answer {
    rows: Vec<Value>,
}

/// What all of them have.
#[derive(Debug)]
struct Seen {
    answers: Vec<Answer>,
    silent: Vec<(u32, Option<u32>, String)>,
}

impl Seen {
    /// Asks.
    fn now() -> Result<Self, String> {
        let (name, asked) =
            ask(LIMIT).map_err(|e| format!("mesh[E33] the names of this host's sockets cannot be listed: {e}"))?;
        if asked.is_empty() {
            return Err(nobody(&name));
        }
        Ok(Self::of(asked))
    }

    /// Puts answers into an order that does not depend on who came first: who owns the node, then by rank.
    fn of(asked: Vec<Asked>) -> Self {
        let mut seen = Self { answers: Vec::new(), silent: Vec::new() };
        for one in asked {
            match one.answer.and_then(|text| rows(&text, one.user)) {
                Ok(rows) => seen.answers.push(Answer { rows }),
                Err(why) => seen.silent.push((one.process, one.user, why)),
            }
        }
        let key = |answer: &Answer| {
            let of = &answer.rows[0];
            (of["owns_node"] != json!(true), of["rank"].as_u64().unwrap_or(u64::MAX), of["pid"].as_u64())
        };
        seen.answers.sort_by_key(key);
        seen
    }

    /// As JSON: processes, those that do not answer too; the node as its owner sees it; then what each process has.
    fn lines(&self) -> String {
        let silent = self.silent.iter().map(
            |(pid, user, why)| json!({ "kind": "process", "pid": pid, "user": user, "answers": false, "why": why }),
        );
        let processes = self.answers.iter().map(|answer| answer.rows[0].clone());
        let of_node = self.of_node(|_| true).cloned();
        let own = self.answers.iter().flat_map(|answer| answer.rows[1..].iter().filter(|row| is_own(row)));
        let all = processes.chain(silent).chain(of_node).chain(own.cloned());
        all.map(|row| format!("{row}\n")).collect()
    }

    /// Rows about the node, of the process that knows it best.
    fn of_node(&self, wanted: impl Fn(&Value) -> bool) -> impl Iterator<Item = &Value> {
        let rows = self.answers.first().map_or(&[][..], |answer| &answer.rows[1..]);
        rows.iter().filter(move |row| !is_own(row) && wanted(row))
    }

    fn silent_lines(&self) -> impl Iterator<Item = String> {
        self.silent.iter().map(|(pid, _, why)| format!("mesh[E34] process {pid} {why}; what it sees is missing here"))
    }
}

/// Whether a row is about a process alone: those have its number.
fn is_own(row: &Value) -> bool {
    !row["pid"].is_null()
}

/// The rows of an answer, with what the kernel says of who gave it.
fn rows(text: &str, user: Option<u32>) -> Result<Vec<Value>, String> {
    let read = |line: &str| serde_json::from_str::<Value>(line).ok().filter(Value::is_object);
    let rows: Option<Vec<Value>> = text.lines().map(read).collect();
    let mut rows = rows.ok_or("answers something else: it is another build")?;
    match rows.first_mut().filter(|row| row["kind"] == "process") {
        Some(first) => {
            first["answers"] = json!(true);
            first["user"] = json!(user);
            Ok(rows)
        }
        None => Err("answers something else: it is another build".to_owned()),
    }
}

/// That there is nobody, and why that may be.
fn nobody(name: &str) -> String {
    let others = others();
    let hint = if others.is_empty() {
        "start a job or `nccl-mesh agent` here; in a container, look inside it or share the host's network".to_owned()
    } else {
        let list: Vec<_> = others.iter().map(|other| format!("@{other}")).collect();
        format!("there are {}: set NCCL_MESH_PORT and NCCL_MESH_NODE as for that job", list.join(", "))
    };
    format!("mesh[E33] no process of this host has the name @{name}, or all have NCCL_MESH_DISCOVERY=0; {hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(process: u32, answer: Result<&str, &str>) -> Asked {
        Asked { process, user: Some(1000), answer: answer.map(str::to_owned).map_err(str::to_owned) }
    }

    pub(super) fn seen() -> Seen {
        let guest = "\
{\"kind\":\"process\",\"pid\":9,\"node\":\"a\",\"id\":\"a\",\"role\":\"guest\",\"owns_node\":false,\"job\":7,\"rank\":0,\"tcp_port\":40001,\
\"link\":\"tcp\",\"age_s\":2.000,\"direct_bytes\":0,\"relayed_out_bytes\":3000000,\"forwarded_bytes\":null,\"streams\":null}
{\"kind\":\"port\",\"device\":\"f0\",\"address\":\"10.0.0.9/30\",\"carrier\":false}
{\"kind\":\"connection\",\"pid\":9,\"node\":\"a\",\"number\":0,\"direction\":\"send\",\"peer\":\"b\",\"route\":null,\"age_s\":1.000,\
\"state\":\"connecting\"}
{\"kind\":\"connection\",\"pid\":9,\"node\":\"a\",\"number\":1,\"direction\":\"send\",\"peer\":\"c\",\"route\":\"a - b - c and a - d - c\",\
\"relays\":1,\"lanes\":2,\"links\":[],\"sent_bytes\":3000000,\"age_s\":1.500,\"state\":\"failed\",\"code\":\"E59\",\"error\":\"mesh[E59] it broke\"}
";
        let owner = "\
{\"kind\":\"process\",\"pid\":12,\"node\":\"a\",\"id\":\"a\",\"role\":\"daemon\",\"owns_node\":true,\"job\":null,\"rank\":null,\
\"tcp_port\":17917,\"link\":\"tcp\",\"age_s\":10.000,\"direct_bytes\":0,\"relayed_out_bytes\":0,\"forwarded_bytes\":2048,\
\"forwarded_chunks\":2,\"streams\":1,\"slots\":64,\"slots_lent\":4,\"slots_filled\":1}
{\"kind\":\"port\",\"device\":\"f0\",\"address\":\"10.0.0.1/30\",\"carrier\":true,\"speed_mbps\":100000,\"neighbour\":\"b\",\
\"neighbour_address\":\"10.0.0.2\"}
{\"kind\":\"port\",\"device\":\"f1\",\"address\":\"10.0.0.5/30\",\"carrier\":false,\"speed_mbps\":null,\"neighbour\":null}
{\"kind\":\"node\",\"name\":\"a\",\"self\":true,\"found\":true,\"relays\":0,\"lets_pass\":true,\"daemon\":true}
{\"kind\":\"node\",\"name\":\"c\",\"self\":false,\"found\":false,\"relays\":1,\"lets_pass\":false,\"daemon\":null}
{\"kind\":\"link\",\"a\":\"a\",\"b\":\"b\",\"a_address\":\"10.0.0.1\",\"b_address\":\"10.0.0.2\"}
{\"kind\":\"trunk\",\"pid\":12,\"node\":\"a\",\"direction\":\"in\",\"peer\":\"b\",\"link\":\"10.0.0.1-10.0.0.2\",\"streams\":1,\"slots\":4,\
\"slots_filled\":1}
";
        let silent = asked(10, Err("does not answer within 2 s: its state is T (stopped)"));
        Seen::of(vec![asked(9, Ok(guest)), silent, asked(12, Ok(owner)), asked(13, Ok("{}")), asked(14, Ok("x"))])
    }

    #[test]
    fn the_node_is_told_as_its_owner_sees_it_and_who_is_silent_is_told_too() {
        // given a guest, the owner, one that is stopped and two that talk nonsense
        let seen = seen();
        let text = seen.lines();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let of = |kind: &str, field: &str| {
            let rows = lines.iter().filter(|row| row["kind"] == kind);
            rows.map(|row| row[field].to_string()).collect::<Vec<_>>()
        };
        // then processes come first, the owner before all, and then what is known of the node, once
        assert_eq!(of("process", "pid"), ["12", "9", "10", "13", "14"]);
        assert_eq!(of("process", "answers"), ["true", "true", "false", "false", "false"]);
        assert_eq!(of("port", "address"), ["\"10.0.0.1/30\"", "\"10.0.0.5/30\""]);
        assert_eq!(of("connection", "state"), ["\"connecting\"", "\"failed\""]);
        // and there is a line for each that is silent
        let silent: Vec<_> = seen.silent_lines().collect();
        assert_eq!(silent.len(), 3);
        assert!(silent[0].starts_with("mesh[E34] process 10 does not answer within 2 s"), "{silent:?}");
    }

    #[test]
    fn who_finds_nobody_is_told_whom_there_is() {
        let text = nobody("nccl-mesh-17917-nobody-has-this");
        assert!(
            text.starts_with("mesh[E33] no process of this host has the name @nccl-mesh-17917-nobody-has-this"),
            "{text}"
        );
    }
}
