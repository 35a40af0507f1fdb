//! Texts to values.
//!
//! For: the table. Must not know: which setting it is. Threads: pure.

use super::RelayCores;

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in a range, both ends included.
    Number {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A number as above, or `auto`.
    NumberOrAuto {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// 0 or 1 (also false/true, no/yes, off/on).
    Switch,
    /// Any text.
    Text,
    /// A path.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Core numbers with commas, `auto`, or `none`.
    Cores,
    /// Accepted, without effect; the reason.
    Idle(&'static str),
}

/// A value that fits its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Auto,
    Switch(bool),
    Text(String),
    Cores(RelayCores),
    Idle,
}

impl Value {
    /// The number, if it is one.
    pub(super) fn number(self) -> Option<u64> {
        match self {
            Self::Number(n) => Some(n),
            _ => None,
        }
    }
}

impl Kind {
    /// What the kind takes, in words.
    pub fn expected(self) -> String {
        match self {
            Self::Number { min, max } => format!("a whole number from {min} to {max}"),
            Self::NumberOrAuto { min, max } => format!("a whole number from {min} to {max}, or auto"),
            Self::Switch => "0 or 1".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Path => "a path".to_owned(),
            Self::Choice(words) => words.join(" or "),
            Self::Cores => "core numbers with commas, auto, or none".to_owned(),
            Self::Idle(_) => "anything".to_owned(),
        }
    }

    /// The value of `text`, which is not empty; `None` if it is not of this kind.
    pub(super) fn parse(self, text: &str) -> Option<Value> {
        let text = text.trim();
        match self {
            Self::Number { min, max } => number(text, min, max),
            Self::NumberOrAuto { .. } if text.eq_ignore_ascii_case("auto") => Some(Value::Auto),
            Self::NumberOrAuto { min, max } => number(text, min, max),
            Self::Switch => match text.to_ascii_lowercase().as_str() {
                "0" | "false" | "no" | "off" => Some(Value::Switch(false)),
                "1" | "true" | "yes" | "on" => Some(Value::Switch(true)),
                _ => None,
            },
            Self::Text | Self::Path => Some(Value::Text(text.to_owned())),
            Self::Choice(words) => {
                words.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| Value::Text((*word).to_owned()))
            }
            Self::Cores => cores(text).map(Value::Cores),
            Self::Idle(_) => Some(Value::Idle),
        }
    }
}

fn number(text: &str, min: u64, max: u64) -> Option<Value> {
    text.parse().ok().filter(|n| (min..=max).contains(n)).map(Value::Number)
}

/// Largest core number that Linux's affinity masks of the usual size can name.
const LAST_CORE: usize = 1023;

fn cores(text: &str) -> Option<RelayCores> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => return Some(RelayCores::Auto),
        "none" => return Some(RelayCores::Unpinned),
        _ => {}
    }
    let list: Option<Vec<usize>> =
        text.split(',').map(|core| core.trim().parse().ok().filter(|core| *core <= LAST_CORE)).collect();
    list.map(RelayCores::List)
}

/// The name closest to `name`, if it is close enough to be what was meant: at most a third of the letters differ.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len().max(name.len()) / 3)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove or replace to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
