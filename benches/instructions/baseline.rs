//! The counts that were taken before, as a file, and the comparison with them.
//!
//! Pure: texts and numbers in, texts out. Run by the main thread.

use std::fmt::Write;

/// More than so much of the baseline is too much, in percent.
pub(crate) const MOST: f64 = 110.0;

/// Instructions of each operation, and what made them: the processor's kind and the compiler.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) made_by: String,
    /// In the order in which they are told.
    pub(crate) rows: Vec<(String, f64)>,
}

impl Counts {
    /// From a file: lines of a count and a name; what made them in a comment.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (comments, rows): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with('#'));
        let made_by = comments.first()?.trim_start_matches('#').trim().to_owned();
        let row = |line: &str| {
            let (count, name) = line.trim().split_once("  ")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        Some(Self { made_by, rows: rows.into_iter().map(row).collect::<Option<_>>()? })
    }

    /// As a file.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("# {}\n", self.made_by);
        for (name, count) in &self.rows {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{count:>8.1}  {name}");
        }
        text
    }

    /// What is wrong with `now`: a line for each operation that takes too much, is new, or is gone.
    pub(crate) fn complaints(&self, now: &Self) -> Vec<String> {
        let find = |all: &Self, name: &str| all.rows.iter().find(|(other, _)| other == name).map(|(_, count)| *count);
        let mut complaints = Vec::new();
        for (name, count) in &now.rows {
            match find(self, name) {
                None => complaints.push(format!("not in the baseline: {name}")),
                Some(before) if count * 100.0 > before * MOST => complaints.push(format!(
                    "{name}: {count:.1} instructions, {before:.1} before ({:+.0} %)",
                    (count / before - 1.0) * 100.0
                )),
                Some(_) => {}
            }
        }
        let gone = self.rows.iter().filter(|(name, _)| find(now, name).is_none());
        complaints.extend(gone.map(|(name, _)| format!("only in the baseline: {name}")));
        complaints
    }
}
