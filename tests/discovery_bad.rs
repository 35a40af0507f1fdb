//! Clusters with something wrong, and discovery in them: daemons of the real command, cabled as no topology file may say it. Each mistake is one
//! line with its code on each node that sees it, no link is taken that is ambiguous, those that are not are kept, and nothing ends but in order.
//!
//! Knows nothing of the inside of discovery: what is checked are logs, `topology discover`, and exit statuses.
#![cfg(feature = "cli")]

mod common;
#[path = "netns/stage.rs"]
#[allow(dead_code, reason = "shared with the tests of network namespaces, of which this uses a part")]
mod netns;
#[path = "discovery_bad/stage.rs"]
mod stage;

#[path = "discovery_bad/cabling.rs"]
mod cabling;
#[path = "discovery_bad/datagrams.rs"]
mod datagrams;
#[path = "discovery_bad/identities.rs"]
mod identities;
#[path = "discovery_bad/lives.rs"]
mod lives;
#[path = "discovery_bad/switches.rs"]
mod switches;
