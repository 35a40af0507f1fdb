//! Every name is found at its version, as NCCL looks for it, and at no other.

#![allow(unsafe_code, reason = "drives a C library")]

mod support;

use mesh_soft_verbs::artefact::{PLAIN_NAME, SONAME};
use mesh_soft_verbs::symbols;
use support::{Library, library_folder};

#[test]
fn each_public_name_is_at_its_version_only() {
    // given the library under both names that programs open
    for file in [SONAME, PLAIN_NAME] {
        let library = Library::open(&library_folder().join(file));
        for (name, version) in symbols::public() {
            // when a name is asked for at its version, then it is there
            assert!(!library.find(name, version).is_null(), "{file}: {name}@{version}");
            // and at another version that exists it is not
            let other = if version == "IBVERBS_1.1" { "IBVERBS_1.5" } else { "IBVERBS_1.1" };
            assert!(library.find(name, other).is_null(), "{file}: {name}@{other}");
            assert!(library.find(name, "IBVERBS_9.9").is_null(), "{file}: {name} at a version that does not exist");
        }
    }
}

#[test]
fn each_private_name_is_under_every_release() {
    // given the library, when vendor libraries of several releases look for their names, then all are there
    let library = Library::open(&library_folder().join(SONAME));
    for &release in symbols::PRIVATE_VERSIONS {
        for name in symbols::private(release) {
            let version = symbols::private_version(release);
            assert!(!library.find(&name, &version).is_null(), "{name}@{version}");
            assert!(library.find(&name, "IBVERBS_1.1").is_null(), "{name}@IBVERBS_1.1");
        }
    }
}

#[test]
fn refusing_functions_refuse_in_their_own_way() {
    // given one function of each kind
    let library = Library::open(&library_folder().join(SONAME));
    let code: unsafe extern "C" fn() -> i32 = library.function("ibv_cmd_create_qp", "IBVERBS_PRIVATE_34");
    let null: unsafe extern "C" fn() -> *mut std::ffi::c_void = library.function("ibv_create_srq", "IBVERBS_1.1");
    // when called, then the one returns the code and the other null
    // SAFETY: both take no notice of arguments.
    unsafe {
        assert_eq!(code(), libc::EOPNOTSUPP);
        assert!(null().is_null());
    }
}

#[test]
fn nothing_else_is_visible() {
    // given the library, when helpers of the build are asked for, then they are hidden
    let library = Library::open(&library_folder().join(SONAME));
    for name in ["soft_verbs_refuse", "soft_verbs_query_gid_type", "rust_eh_personality"] {
        for version in symbols::VERSIONS {
            assert!(library.find(name, version).is_null(), "{name}@{version}");
        }
    }
}
