//! What is said about settings that are wrong or idle.
//!
//! For: the log at the first init, `nccl-mesh env` and `nccl-mesh doctor`. Must not know: who prints it.
//! Threads: plain data.

use thiserror::Error;

/// Something to tell the user once. None of these stops a job.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Warning {
    /// A value of the wrong kind; the default is used.
    #[error(
        "mesh[W91] {name}={value:?} ({origin}) is not {expected}; the default ({default}) is used: correct it or unset it"
    )]
    Unparsable {
        /// Full name.
        name: String,
        /// As given.
        value: String,
        /// Where it was given.
        origin: &'static str,
        /// What it should have been.
        expected: String,
        /// What is used instead.
        default: &'static str,
    },
    /// A name that does not exist.
    #[error("mesh[W92] there is no setting {name} ({origin}){}", hint(.nearest))]
    Unknown {
        /// Full name.
        name: String,
        /// Where it was given.
        origin: &'static str,
        /// A name that may have been meant.
        nearest: Option<String>,
    },
    /// A setting that exists for people who come from elsewhere.
    #[error("mesh[W93] {name} is accepted and has no effect: {reason}")]
    Idle {
        /// Full name.
        name: String,
        /// Why there is nothing to set.
        reason: &'static str,
    },
    /// Settings of NCCL's own InfiniBand transport.
    #[error("mesh[W94] {} set, without effect on this network: ports and GIDs are chosen by address", are(.names))]
    OtherTransport {
        /// Full names.
        names: Vec<String>,
    },
    /// The file could not be read or understood; what it says is not used.
    #[error("mesh[W95] settings file {path}: {reason}; nothing in it is used: correct it or unset NCCL_MESH_CONF")]
    File {
        /// The file, or `NCCL_MESH_CONF` where only its text is known.
        path: String,
        /// The reason, in one line.
        reason: String,
    },
}

fn hint(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!(": did you mean {name}?"),
        None => ": `nccl-mesh env --all` lists all".to_owned(),
    }
}

fn are(names: &[String]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}
