//! A host without libibverbs: everything loads, and says what is missing. A binary of its own, as the library is bound once a process.

use std::net::Ipv4Addr;
use std::path::Path;

use mesh_link::verbs::{DeviceError, DeviceSet, LoadError, probe};

#[test]
fn a_host_without_the_library_is_told_what_to_install() {
    // given a path where no library is, as the first that this process names
    let nowhere = Path::new("/nowhere/libibverbs.so.1");
    let error = probe(Some(nowhere)).unwrap_err();
    assert!(matches!(&error, LoadError::Missing { reason } if reason.contains("/nowhere")), "{error}");
    // when devices are opened, then the same is told, with the remedy, every time
    for _ in 0..2 {
        let error = DeviceSet::open(&[Ipv4Addr::LOCALHOST], Some(nowhere)).unwrap_err();
        assert!(matches!(&error, DeviceError::Library(LoadError::Missing { .. })), "{error}");
        assert!(error.to_string().contains("install rdma-core"), "{error}");
    }
    // and this process has no libibverbs in it
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("libibverbs"), "linked with libibverbs");
}
