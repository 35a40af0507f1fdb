//! The datagrams of discovery: beacons, digests of the database, and advertisements, as data and as bytes.
//!
//! ```text
//!   magic u32 | version u16 | kind u8 | fields        at most 1,400 bytes, little endian
//! ```
//!
//! Another version is refused as a whole, which is the room for what may come, an authentication tag first. Must not know what a
//! datagram means for the node. Pure; runs on the thread of the node's owner.

use std::net::Ipv4Addr;

use super::advert::{MAX_ADJACENCIES, MAX_ADVERT, MAX_TEXT, Version, port_subnet};
use super::bytes::{WireError, bound, put_text};
use crate::reader::Reader;

/// First word of every datagram: `MSHD` in ASCII.
pub const MAGIC: u32 = u32::from_le_bytes(*b"MSHD");
/// Version of everything in discovery's datagrams. 2: switched segments.
pub const VERSION: u16 = 2;
/// Longest datagram, in bytes: fits every MTU that Ethernet has.
pub const MAX_DATAGRAM: usize = 1400;
/// Most neighbours that are remembered and named on a cable. It has one; more are told so that all ends learn of the fault.
pub const MAX_HEARD: usize = 4;
/// Most neighbours that a beacon names: as many as a node on a switched segment can advertise.
pub const MAX_NAMED: usize = MAX_ADJACENCIES;
/// Most entries of a digest.
pub const MAX_ENTRIES: usize = (MAX_DATAGRAM - HEAD - 17) / ENTRY;

const HEAD: usize = 7;
const ENTRY: usize = 24;
const ASKS: u8 = 1;
const SWITCHED: u8 = 2;
/// Of a beacon all but its texts and whom it names.
const FIELDS: usize = 48;
const NAMED: usize = 20;
const BEACON: u8 = 1;
const DIGEST: u8 = 2;
const ADVERTS: u8 = 3;

const _: () = assert!(MAX_ADVERT + HEAD + 4 <= MAX_DATAGRAM, "any advertisement fits into a datagram");
const _: () = assert!(HEAD + 2 * (1 + MAX_TEXT) + FIELDS + MAX_NAMED * NAMED <= MAX_DATAGRAM, "any beacon fits");
const _: () = assert!(MAX_ENTRIES <= u8::MAX as usize, "a byte counts them");

/// Whom a node hears on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Key of the node heard.
    pub node: u64,
    /// Which life of it.
    pub life: u64,
    /// Its port.
    pub address: Ipv4Addr,
}

/// What a database holds, in 16 bytes: equal for equal databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Summary {
    /// Number of advertisements.
    pub count: u64,
    /// Hashes of all, combined regardless of order.
    pub hash: u64,
}

/// What a node says on one of its ports, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon<'a> {
    /// Stable id.
    pub id: &'a str,
    /// Name, for people.
    pub name: &'a str,
    /// Which life of the node: grows with every start.
    pub life: u64,
    /// Counts the beacons on this port, so that one which was overtaken is known.
    pub number: u32,
    /// What the node can do beyond the protocol's version.
    pub features: u32,
    /// The port's address.
    pub address: Ipv4Addr,
    /// Its prefix length.
    pub prefix: u8,
    /// Speed in Mbit/s, 0 if not known.
    pub speed_mbps: u32,
    /// MTU in bytes, 0 if not known.
    pub mtu: u32,
    /// Which rail the node takes the port for, 0 if it does not say.
    pub rail: u8,
    /// The node misses a beacon and asks for one at once.
    pub asks: bool,
    /// The port's subnet is declared there to be a switched segment.
    pub switched: bool,
    /// The node's database.
    pub summary: Summary,
    /// Whom it hears on this port.
    pub heard: Vec<Heard>,
}

/// One line of a digest: an advertisement that the sender holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigestEntry {
    /// Key of the node it is from.
    pub origin: u64,
    /// How new it is.
    pub version: Version,
}

/// All that the sender holds of the nodes whose keys are in a range. What is not in it, the sender lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// First key of the range.
    pub first: u64,
    /// Last key of the range, itself included.
    pub last: u64,
    /// Ascending by origin.
    pub entries: Vec<DigestEntry>,
}

/// An advertisement on its way, not yet looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried<'a> {
    /// How long ago its origin sent it out, in milliseconds.
    pub age_ms: u16,
    /// Its bytes.
    pub body: &'a [u8],
}

/// Any datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Datagram<'a> {
    /// To all on a link.
    Beacon(Beacon<'a>),
    /// To a neighbour whose database differs.
    Digest(Digest),
    /// To a neighbour: what is new, or what it lacks.
    Adverts(Vec<Carried<'a>>),
}

impl<'a> Datagram<'a> {
    /// From bytes.
    ///
    /// # Errors
    /// Any [`WireError`]. Advertisements are only cut apart here: each stands or falls by itself.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader { bytes };
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(WireError::Magic { got: magic });
        }
        let theirs = r.u16()?;
        if theirs != VERSION {
            return Err(WireError::Version { theirs, ours: VERSION });
        }
        bound("datagram length", bytes.len() as u64, MAX_DATAGRAM as u64)?;
        let datagram = match r.u8()? {
            BEACON => Self::Beacon(decode_beacon(&mut r)?),
            DIGEST => Self::Digest(decode_digest(&mut r)?),
            ADVERTS => Self::Adverts(decode_adverts(&mut r)?),
            kind => return Err(WireError::Kind { kind }),
        };
        r.end()?;
        Ok(datagram)
    }
}

fn head(kind: u8, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity);
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(kind);
    out
}

impl Beacon<'_> {
    /// As a datagram. Texts must be within [`MAX_TEXT`]; of `heard` the first [`MAX_NAMED`] are told, [`MAX_HEARD`] at a cable.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = head(BEACON, 256);
        put_text(&mut out, self.id);
        put_text(&mut out, self.name);
        out.extend_from_slice(&self.life.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.features.to_le_bytes());
        out.extend_from_slice(&self.address.octets());
        out.push(self.prefix);
        out.extend_from_slice(&self.speed_mbps.to_le_bytes());
        out.extend_from_slice(&self.mtu.to_le_bytes());
        let flags = (u8::from(self.asks) * ASKS) | (u8::from(self.switched) * SWITCHED);
        out.extend_from_slice(&[self.rail, flags]);
        out.extend_from_slice(&self.summary.count.to_le_bytes());
        out.extend_from_slice(&self.summary.hash.to_le_bytes());
        let named = self.heard.len().min(most_named(self.switched));
        out.push(named as u8);
        for heard in &self.heard[..named] {
            out.extend_from_slice(&heard.node.to_le_bytes());
            out.extend_from_slice(&heard.life.to_le_bytes());
            out.extend_from_slice(&heard.address.octets());
        }
        out
    }
}

const fn most_named(switched: bool) -> usize {
    if switched { MAX_NAMED } else { MAX_HEARD }
}

fn decode_beacon<'a>(r: &mut Reader<'a>) -> Result<Beacon<'a>, WireError> {
    let (id, name) = (r.text("id", MAX_TEXT, false)?, r.text("name", MAX_TEXT, false)?);
    let (life, number, features) = (r.u64()?, r.u32()?, r.u32()?);
    let (address, prefix) = (r.address()?, r.u8()?);
    if port_subnet(address, prefix).is_none() {
        return Err(WireError::Port { address, prefix });
    }
    let (speed_mbps, mtu, rail, flags) = (r.u32()?, r.u32()?, r.u8()?, r.u8()?);
    bound("flags", flags.into(), (ASKS | SWITCHED).into())?;
    let (asks, switched) = (flags & ASKS != 0, flags & SWITCHED != 0);
    let summary = Summary { count: r.u64()?, hash: r.u64()? };
    let mut heard = Vec::new();
    for _ in 0..r.count("neighbours heard", most_named(switched))? {
        heard.push(Heard { node: r.u64()?, life: r.u64()?, address: r.address()? });
    }
    Ok(Beacon {
        id,
        name,
        life,
        number,
        features,
        address,
        prefix,
        speed_mbps,
        mtu,
        rail,
        asks,
        switched,
        summary,
        heard,
    })
}

impl Digest {
    /// As a datagram. At most [`MAX_ENTRIES`] entries.
    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.entries.len() <= MAX_ENTRIES);
        let mut out = head(DIGEST, HEAD + 17 + self.entries.len() * ENTRY);
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.last.to_le_bytes());
        out.push(self.entries.len() as u8);
        for DigestEntry { origin, version } in &self.entries {
            out.extend_from_slice(&origin.to_le_bytes());
            out.extend_from_slice(&version.incarnation.to_le_bytes());
            out.extend_from_slice(&version.seq.to_le_bytes());
            out.extend_from_slice(&version.sum.to_le_bytes());
        }
        out
    }
}

fn decode_digest(r: &mut Reader<'_>) -> Result<Digest, WireError> {
    let (first, last) = (r.u64()?, r.u64()?);
    let mut entries: Vec<DigestEntry> = Vec::new();
    for _ in 0..r.count("entries", MAX_ENTRIES)? {
        let origin = r.u64()?;
        let version = Version { incarnation: r.u64()?, seq: r.u32()?, sum: r.u32()? };
        let follows = entries.last().is_none_or(|entry| entry.origin < origin);
        if !follows || !(first..=last).contains(&origin) {
            return Err(WireError::Order { field: "entries" });
        }
        entries.push(DigestEntry { origin, version });
    }
    Ok(Digest { first, last, entries })
}

/// Packs advertisements, each with its age in milliseconds, into as few datagrams as their order allows.
pub fn pack<'a>(adverts: impl Iterator<Item = Carried<'a>>) -> Vec<Vec<u8>> {
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    for Carried { age_ms, body } in adverts {
        debug_assert!(body.len() <= MAX_ADVERT);
        let fits = datagrams.last().is_some_and(|last| last.len() + 4 + body.len() <= MAX_DATAGRAM);
        if !fits {
            datagrams.push(head(ADVERTS, HEAD + 4 + body.len()));
        }
        if let Some(last) = datagrams.last_mut() {
            last.extend_from_slice(&age_ms.to_le_bytes());
            last.extend_from_slice(&(body.len() as u16).to_le_bytes());
            last.extend_from_slice(body);
        }
    }
    datagrams
}

fn decode_adverts<'a>(r: &mut Reader<'a>) -> Result<Vec<Carried<'a>>, WireError> {
    let mut adverts = Vec::new();
    while !r.bytes.is_empty() {
        let (age_ms, len) = (r.u16()?, r.u16()?);
        bound("advertisement length", len.into(), MAX_ADVERT as u64)?;
        adverts.push(Carried { age_ms, body: r.slice(len.into())? });
    }
    Ok(adverts)
}

#[cfg(test)]
#[path = "beacon_tests.rs"]
mod tests;
