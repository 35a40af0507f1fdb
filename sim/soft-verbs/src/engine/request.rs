//! One request of a send queue. Plain data; the queue's lock guards it.

use crate::abi::{self, Sge};

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Write into the peer's memory.
    Write,
    /// The same, and take a receive.
    WriteImm,
    /// Fill a receive.
    Send,
    /// The same, with a number.
    SendImm,
    /// Read from the peer's memory.
    Read,
    /// Replace the peer's word if it equals `compare`.
    CompareSwap,
    /// Add `compare` to the peer's word.
    FetchAdd,
}

impl Operation {
    /// From `IBV_WR_*`.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            abi::IBV_WR_RDMA_WRITE => Self::Write,
            abi::IBV_WR_RDMA_WRITE_WITH_IMM => Self::WriteImm,
            abi::IBV_WR_SEND => Self::Send,
            abi::IBV_WR_SEND_WITH_IMM => Self::SendImm,
            abi::IBV_WR_RDMA_READ => Self::Read,
            abi::IBV_WR_ATOMIC_CMP_AND_SWP => Self::CompareSwap,
            abi::IBV_WR_ATOMIC_FETCH_AND_ADD => Self::FetchAdd,
            _ => return None,
        })
    }

    /// `IBV_WC_*` of its completion at the sender.
    pub fn completion(self) -> u32 {
        match self {
            Self::Write | Self::WriteImm => abi::IBV_WC_RDMA_WRITE,
            Self::Send | Self::SendImm => abi::IBV_WC_SEND,
            Self::Read => abi::IBV_WC_RDMA_READ,
            Self::CompareSwap => abi::IBV_WC_COMP_SWAP,
            Self::FetchAdd => abi::IBV_WC_FETCH_ADD,
        }
    }

    /// `IBV_ACCESS_*` that the peer's queue pair and region must grant.
    pub fn needs(self) -> u32 {
        match self {
            Self::Write | Self::WriteImm => abi::IBV_ACCESS_REMOTE_WRITE,
            Self::Read => abi::IBV_ACCESS_REMOTE_READ,
            Self::CompareSwap | Self::FetchAdd => abi::IBV_ACCESS_REMOTE_ATOMIC,
            Self::Send | Self::SendImm => 0,
        }
    }

    /// Whether data goes from the peer to the sender.
    pub fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether it takes a receive of the peer.
    pub fn takes_receive(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send | Self::SendImm)
    }

    /// Whether it carries a number.
    pub fn has_imm(self) -> bool {
        matches!(self, Self::WriteImm | Self::SendImm)
    }
}

/// Where the data of a request lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// In registered memory.
    Scattered(Vec<Sge>),
    /// Copied when it was posted.
    Inline(Box<[u8]>),
}

/// One request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The program's number.
    pub wr_id: u64,
    /// What to do.
    pub operation: Operation,
    /// Whether success is told.
    pub signalled: bool,
    /// Whether the peer's completion wakes those who wait for solicited ones.
    pub solicited: bool,
    /// The number, network byte order.
    pub imm: u32,
    /// The peer's address.
    pub remote: u64,
    /// The peer's key.
    pub rkey: u32,
    /// Compare value, or what to add.
    pub compare: u64,
    /// Value to put in place.
    pub swap: u64,
    /// The data.
    pub payload: Payload,
    /// Its bytes.
    pub length: u64,
    /// Requests posted up to and with this one.
    pub posted: u64,
    /// Clock engine: when the last byte is at the peer (ns), 0 before time was reserved.
    pub arrives_at: u64,
    /// Clock engine: when the peer's acknowledgement is back.
    pub acknowledged_at: u64,
}
