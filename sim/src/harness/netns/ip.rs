//! The command `ip` of iproute2, and whether this process may use it for what is wanted.
//!
//! Any thread.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use super::NetnsError;
use crate::harness::sys;

/// Capabilities that are needed, with their bits.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_SYS_ADMIN", 21), ("CAP_NET_ADMIN", 12)];

/// Looks whether this process may make namespaces and interfaces.
pub(super) fn check_rights() -> Result<(), NetnsError> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let missing = missing(&status);
    if missing.is_empty() { Ok(()) } else { Err(NetnsError::Rights { missing: missing.join(" and no ") }) }
}

/// Capabilities that a process with this `/proc/self/status` lacks.
fn missing(status: &str) -> Vec<&'static str> {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or_default();
    CAPABILITIES.into_iter().filter(|(_, bit)| effective >> bit & 1 == 0).map(|(name, _)| name).collect()
}

/// The command.
#[derive(Clone, Debug)]
pub(super) struct Ip(PathBuf);

impl Ip {
    pub(super) fn find() -> Result<Self, NetnsError> {
        super::find_program("ip").map(Self).ok_or(NetnsError::NoIp)
    }

    /// Without arguments so far.
    pub(super) fn command(&self) -> Command {
        Command::new(&self.0)
    }

    /// Runs it with these words and answers what it printed.
    pub(super) fn run(&self, words: &[&str]) -> Result<String, NetnsError> {
        let mut command = self.command();
        command.args(words).stdin(Stdio::null());
        let output = sys_output(command, "");
        told(words, output).map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Has it read lines of commands, in a namespace or in this process's own. The first that fails ends it.
    pub(super) fn batch(&self, namespace: Option<&str>, lines: &str) -> Result<(), NetnsError> {
        let mut words = Vec::new();
        words.extend(namespace.map(|namespace| ["-n", namespace]).into_iter().flatten());
        words.extend(["-batch", "-"]);
        let mut command = self.command();
        command.args(&words).stdin(Stdio::piped());
        told(&words, sys_output(command, lines)).map(drop)
    }
}

/// Runs a command that ends with this process, so that nothing is made any more when things are removed.
fn sys_output(mut command: Command, input: &str) -> std::io::Result<Output> {
    sys::tie_to_parent(&mut command);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut pipe) = child.stdin.take() {
        // A command that ends before it has read all says why.
        let _ = pipe.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

fn told(words: &[&str], output: std::io::Result<Output>) -> Result<Output, NetnsError> {
    let said = match output {
        Ok(output) if output.status.success() => return Ok(output),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            if lines.is_empty() { output.status.to_string() } else { lines.join("; ") }
        }
        Err(error) => error.to_string(),
    };
    Err(NetnsError::Ip { arguments: words.join(" "), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_that_lack_are_named() {
        assert!(missing("Name:\tx\nCapEff:\t000001ffffffffff\n").is_empty());
        assert_eq!(missing("CapEff:\t0000000000000000\n"), ["CAP_SYS_ADMIN", "CAP_NET_ADMIN"]);
        assert_eq!(missing("CapEff:\t0000000000001000\n"), ["CAP_SYS_ADMIN"]);
        assert_eq!(missing("").len(), 2, "unknown is not there");
    }

    #[test]
    fn what_fails_is_told_with_its_words() {
        // given a program in the place of the command that fails and says why
        let ip = Ip(PathBuf::from("/bin/sh"));
        let told = ip.run(&["-c", "echo no such thing >&2; exit 3"]).expect_err("it fails").to_string();
        assert!(told.contains("no such thing") && told.starts_with("ip -c "), "{told}");
        assert_eq!(ip.run(&["-c", "echo fine"]).expect("it works"), "fine\n");
        assert!(Ip(PathBuf::from("/nonexistent/ip")).run(&["link"]).is_err());
    }
}
