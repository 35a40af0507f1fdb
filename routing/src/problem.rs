//! What can be wrong with a topology. All problems are collected; none hides another.

use std::fmt;

/// What is wrong, as a code that stays the same from release to release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum ProblemCode {
    /// The text is not TOML.
    Syntax,
    /// A key that the schema does not know.
    UnknownKey,
    /// A required key is missing.
    MissingKey,
    /// A value of the wrong type, or out of its range.
    BadValue,
    /// The schema is missing or of a newer release.
    Schema,
    /// Two nodes with one name.
    DuplicateName,
    /// Two nodes with one id, or two ids with one key.
    DuplicateId,
    /// Two ports with one address.
    DuplicateAddress,
    /// An address that does not parse or that no port may have.
    BadAddress,
    /// A prefix length outside 1 to 31.
    BadPrefix,
    /// A network or broadcast address below /31.
    NotAHost,
    /// Two ports of one node in one subnet.
    SubnetTwiceOnNode,
    /// More than two ports in a subnet that is not declared as a switch.
    SubnetShared,
    /// Two subnets of different prefix length, one inside the other.
    SubnetOverlap,
    /// A switch that is declared twice or that no port uses.
    BadSwitch,
    /// Not every node can be reached.
    Disconnected,
    /// No node, or more nodes than fit.
    NodeCount,
    /// A pinned route that no connection could take.
    BadRoute,
    /// Two ends of a cable, or two parts of an imported map, that do not say the same.
    BadCable,
}

impl ProblemCode {
    /// All codes.
    pub const ALL: [Self; 19] = [
        Self::Syntax,
        Self::UnknownKey,
        Self::MissingKey,
        Self::BadValue,
        Self::Schema,
        Self::DuplicateName,
        Self::DuplicateId,
        Self::DuplicateAddress,
        Self::BadAddress,
        Self::BadPrefix,
        Self::NotAHost,
        Self::SubnetTwiceOnNode,
        Self::SubnetShared,
        Self::SubnetOverlap,
        Self::BadSwitch,
        Self::Disconnected,
        Self::NodeCount,
        Self::BadRoute,
        Self::BadCable,
    ];

    /// The stable code, as in logs and documents.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Syntax => "E60",
            Self::UnknownKey => "E61",
            Self::MissingKey => "E62",
            Self::BadValue => "E63",
            Self::Schema => "E64",
            Self::DuplicateName => "E65",
            Self::DuplicateId => "E66",
            Self::DuplicateAddress => "E67",
            Self::BadAddress => "E68",
            Self::BadPrefix => "E69",
            Self::NotAHost => "E70",
            Self::SubnetTwiceOnNode => "E71",
            Self::SubnetShared => "E72",
            Self::SubnetOverlap => "E73",
            Self::BadSwitch => "E74",
            Self::Disconnected => "E75",
            Self::NodeCount => "E76",
            Self::BadRoute => "E80",
            Self::BadCable => "E27",
        }
    }
}

/// One thing that is wrong: where, what and what to do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// Line of the file, from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong.
    pub code: ProblemCode,
    /// The node's name, or `node #3` for the third node of a file if it has none; empty if it is no node's fault.
    pub node: String,
    /// The field, as a path within the node or the file: `port[1].address`, `policy.max_relays`; may be empty.
    pub field: String,
    /// What was found and what to do about it.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(code: ProblemCode, node: &str, field: &str, message: impl Into<String>) -> Self {
        Self { line: None, code, node: node.to_owned(), field: field.to_owned(), message: message.into() }
    }

    pub(crate) const fn at_line(mut self, line: Option<usize>) -> Self {
        self.line = line;
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mesh[{}] ", self.code.code())?;
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if !self.node.is_empty() {
            write!(f, "node {:?}, ", self.node)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::{Problem, ProblemCode};
    use std::collections::BTreeSet;

    #[test]
    fn codes_differ() {
        let codes: BTreeSet<_> = ProblemCode::ALL.iter().map(|code| code.code()).collect();
        assert_eq!(codes.len(), ProblemCode::ALL.len());
    }

    #[test]
    fn says_where_and_what() {
        let problem =
            Problem::new(ProblemCode::BadAddress, "spark-a", "port[0].address", "no IPv4 address").at_line(Some(7));
        assert_eq!(problem.to_string(), "mesh[E68] line 7, node \"spark-a\", port[0].address: no IPv4 address");
    }
}
