//! The loader against files and tables that are wrong.

use super::*;
use crate::*;

#[test]
fn unknown_versions_are_refused_before_the_file_is_opened() {
    // given a file that does not exist
    for version in [0, 5, 13, u32::MAX] {
        // when a version without a table is asked for, then the version is the reason
        let error = Plugin::open("/nonexistent.so", version).unwrap_err();
        assert!(matches!(error, OpenError::UnknownVersion { version: v } if v == version), "{error}");
    }
}

#[test]
fn missing_files_and_symbols_are_named() {
    // given no file at all
    let error = Plugin::open("/nonexistent/libnccl-net-x.so", 12).unwrap_err();
    // then the loader's reason is passed on
    assert!(matches!(&error, OpenError::Load { reason, .. } if reason.contains("nonexistent")), "{error}");
    // given a library that is no plugin
    for version in OLDEST_VERSION..=NEWEST_VERSION {
        let error = Plugin::open("libc.so.6", version).unwrap_err();
        assert!(matches!(&error, OpenError::NoSymbol { symbol, .. } if symbol.contains("ncclNetPlugin")), "{error}");
    }
    // and the newest of none is none
    let error = Plugin::open_newest("libc.so.6").unwrap_err();
    assert!(matches!(&error, OpenError::NoSymbol { symbol, .. } if symbol == "ncclNetPlugin_v6"), "{error}");
}

#[test]
fn paths_with_nul_are_refused() {
    let error = Plugin::open("a\0b", 12).unwrap_err();
    assert!(matches!(error, OpenError::Path { .. }), "{error}");
}
