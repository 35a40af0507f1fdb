//! FNV-1a, 64 bits: the hash behind node keys and the topology's hash. Chosen because its result is fixed by its
//! definition, so that it can travel between nodes of different builds. It is no defence against a forger.

/// A running FNV-1a hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    pub(crate) const fn finish(self) -> u64 {
        self.0
    }
}

/// The hash of one string.
pub(crate) fn fnv1a(text: &str) -> u64 {
    Fnv::new().bytes(text.as_bytes()).finish()
}

#[cfg(test)]
mod tests {
    use super::fnv1a;

    #[test]
    fn matches_the_published_vectors() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }
}
