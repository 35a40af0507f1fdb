//! A TOML table under inspection: typed look-ups that note what is wrong and carry on.

use crate::{Problem, ProblemCode, nearest};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where lines begin, to turn an offset into a line number.
#[derive(Debug)]
pub(super) struct Lines(Vec<usize>);

impl Lines {
    pub(super) fn of(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at).collect())
    }

    /// The line, from 1, that holds this offset.
    pub(super) fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|&newline| newline < offset) + 1
    }
}

/// What has gone wrong so far.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) lines: Lines,
    pub(super) problems: Vec<Problem>,
    /// Whether the text itself is broken: keys that seem to be missing may be in the broken part.
    pub(super) broken: bool,
}

/// One table of the file and the path that leads to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table<'a> {
    pub(super) table: &'a DeTable<'a>,
    pub(super) line: usize,
    /// Name of the node it belongs to, for messages; may be empty.
    pub(super) node: &'a str,
    /// Path of the table within the node or the file: empty, or with a dot at its end.
    pub(super) path: &'a str,
}

impl<'a> Table<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    /// Notes a problem of one field at the field's line, else at the table's.
    pub(super) fn problem(&self, report: &mut Report, code: ProblemCode, key: &str, message: impl Into<String>) {
        let line = self.get(key).map_or(self.line, |value| report.lines.at(value.span().start));
        let field = format!("{}{key}", self.path);
        report.problems.push(Problem::new(code, self.node, &field, message).at_line(Some(line)));
    }

    /// Notes every key that is not among the known ones.
    pub(super) fn only(&self, report: &mut Report, known: &[&str]) {
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            let message = match nearest(name, known) {
                Some(near) => format!("unknown key; did you mean {near:?}?"),
                None => format!("unknown key; known here: {}", known.join(", ")),
            };
            let field = format!("{}{name}", self.path);
            let line = Some(report.lines.at(key.span().start));
            report.problems.push(Problem::new(ProblemCode::UnknownKey, self.node, &field, message).at_line(line));
        }
    }

    /// Notes that a required key is not there.
    pub(super) fn missing(&self, report: &mut Report, key: &str, remedy: &str) {
        if !report.broken {
            self.problem(report, ProblemCode::MissingKey, key, format!("missing; {remedy}"));
        }
    }

    fn wrong_type(&self, report: &mut Report, key: &str, found: &DeValue<'_>, wanted: &str) {
        self.problem(report, ProblemCode::BadValue, key, format!("{wanted} wanted, {} found", found.type_str()));
    }

    /// A string; `None` if absent or, noted, of another type.
    pub(super) fn string(&self, report: &mut Report, key: &str) -> Option<&'a str> {
        let value = self.get(key)?.get_ref();
        let text = value.as_str();
        if text.is_none() {
            self.wrong_type(report, key, value, "a string");
        }
        text
    }

    /// A list of strings; `None` if absent or, noted, of another type.
    pub(super) fn strings(&self, report: &mut Report, key: &str) -> Option<Vec<String>> {
        let value = self.get(key)?.get_ref();
        let strings = value
            .as_array()
            .and_then(|array| array.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect());
        if strings.is_none() {
            self.wrong_type(report, key, value, "a list of strings");
        }
        strings
    }

    /// A truth value; `None` if absent or, noted, of another type.
    pub(super) fn truth(&self, report: &mut Report, key: &str) -> Option<bool> {
        let value = self.get(key)?.get_ref();
        let truth = value.as_bool();
        if truth.is_none() {
            self.wrong_type(report, key, value, "true or false");
        }
        truth
    }

    /// A whole number within limits, both included; `None` if absent or, noted, anything else.
    pub(super) fn number(&self, report: &mut Report, key: &str, limits: (i64, i64)) -> Option<i64> {
        let value = self.get(key)?.get_ref();
        let Some(digits) = value.as_integer() else {
            self.wrong_type(report, key, value, "a whole number");
            return None;
        };
        match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) if (limits.0..=limits.1).contains(&number) => Some(number),
            _ => {
                let message = format!("{} is out of range; use {} to {}", digits.as_str(), limits.0, limits.1);
                self.problem(report, ProblemCode::BadValue, key, message);
                None
            }
        }
    }

    /// The tables of an array of tables, with their lines; none if absent or, noted, of another type.
    pub(super) fn tables(&self, report: &mut Report, key: &str) -> Vec<(&'a DeTable<'a>, usize)> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let wanted = format!("[[{key}]] tables");
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(report, key, value.get_ref(), &wanted);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in array.iter() {
            match item.get_ref().as_table() {
                Some(table) => tables.push((table, report.lines.at(item.span().start))),
                None => self.wrong_type(report, key, item.get_ref(), &wanted),
            }
        }
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_count_from_one() {
        let lines = Lines::of("ab\ncd\n");
        assert_eq!([0, 2, 3, 5, 6].map(|offset| lines.at(offset)), [1, 1, 2, 2, 3]);
    }
}
