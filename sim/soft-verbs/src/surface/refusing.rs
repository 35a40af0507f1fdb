//! What is not offered: functions that say so. Inline functions of the headers call these pointers without a look.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::{minus_one, null};
use crate::abi::{Pd, Qp, RecvWr};

pub(super) unsafe extern "C" fn alloc_mw(_pd: *mut Pd, _kind: u32) -> *mut c_void {
    null(libc::EOPNOTSUPP)
}

pub(super) unsafe extern "C" fn bind_mw(_qp: *mut Qp, _mw: *mut c_void, _bind: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

pub(super) unsafe extern "C" fn dealloc_mw(_mw: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

pub(super) unsafe extern "C" fn post_srq_recv(_srq: *mut c_void, _wr: *mut RecvWr, _bad: *mut *mut RecvWr) -> c_int {
    libc::EOPNOTSUPP
}

/// Called by every function of the link step's C file that only refuses: names it if `MESH_SOFT_VERBS_TRACE` is set, sets
/// `errno`, returns the errno value.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub unsafe extern "C" fn soft_verbs_refuse(name: *const c_char) -> c_int {
    if std::env::var_os("MESH_SOFT_VERBS_TRACE").is_some() {
        // SAFETY: a string literal of the C file.
        let name = unsafe { CStr::from_ptr(name) };
        eprintln!("soft verbs: {} is not offered", name.to_string_lossy());
    }
    super::set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// Nothing is read from sysfs: attributes of soft devices are not there.
#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_read_sysfs_file(
    _folder: *const c_char,
    _file: *const c_char,
    _to: *mut c_char,
    _size: usize,
) -> c_int {
    minus_one(libc::ENOENT)
}

#[cfg_attr(feature = "library", unsafe(no_mangle))]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}
