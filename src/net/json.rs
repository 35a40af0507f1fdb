//! Rows of JSON: one object a line, fields in the order in which they are given.
//!
//! Knows nothing of what they say. Pure; any thread. The plugin alone has no JSON library: to write is easy, and nothing is read.

use std::fmt::{Display, Write as _};

/// An object in the making.
#[derive(Debug)]
pub(super) struct Row(String);

impl Row {
    /// With its first field, which tells what it is about.
    pub(super) fn new(kind: &str) -> Self {
        Self(format!("{{\"kind\":{}", quote(kind)))
    }

    /// A text.
    pub(super) fn text(self, name: &str, value: &str) -> Self {
        self.value(name, quote(value))
    }

    /// A number or a truth.
    pub(super) fn value(mut self, name: &str, value: impl Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.0, ",\"{name}\":{value}");
        self
    }

    /// A number or a truth, `null` if there is none.
    pub(super) fn maybe(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.value(name, value),
            None => self.value(name, "null"),
        }
    }

    /// A list of texts.
    pub(super) fn list(self, name: &str, values: impl Iterator<Item = String>) -> Self {
        let all: Vec<_> = values.map(|value| quote(&value)).collect();
        self.value(name, format_args!("[{}]", all.join(",")))
    }

    /// Puts it under those before it.
    pub(super) fn end(mut self, out: &mut String) {
        self.0.push_str("}\n");
        out.push_str(&self.0);
    }
}

/// A JSON string.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quote("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }

    #[test]
    fn a_row_is_an_object_on_a_line() {
        let mut out = String::new();
        let row = Row::new("port").text("device", "a\"b").value("up", true).maybe("speed_mbps", None::<u32>);
        row.list("links", ["x".to_owned(), "y".to_owned()].into_iter()).maybe("rank", Some(3)).end(&mut out);
        assert_eq!(
            out,
            "{\"kind\":\"port\",\"device\":\"a\\\"b\",\"up\":true,\"speed_mbps\":null,\"links\":[\"x\",\"y\"],\"rank\":3}\n"
        );
    }
}
