//! libibverbs, found and bound at run time.
//!
//! Nothing of this crate is linked with the library: a host without RDMA loads and runs everything else. Bound once a process, by symbol
//! version, since the same names also exist with the structures of an older interface; the library is never unloaded, as its own
//! destructors and its providers' threads do not survive that. Knows nothing of devices. Any thread; the first call may take milliseconds.
#![allow(unsafe_code, reason = "dlopen, dlvsym, and calls through the pointers they return")]
#![allow(
    clippy::missing_transmute_annotations,
    reason = "the field that a function goes to says its type, in one place"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::sys;

/// Why libibverbs cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// No file of that name could be opened.
    #[error("no libibverbs: {reason}; install rdma-core (Debian and Ubuntu: libibverbs1 and ibverbs-providers)")]
    Missing {
        /// What the dynamic linker said of each name that was tried.
        reason: String,
    },
    /// The library lacks something that every version since 2006 has.
    #[error(
        "{library} has no {symbol} of version {version}: it is too old, or not libibverbs; update rdma-core (Debian and Ubuntu: libibverbs1 \
         and ibverbs-providers), or take this file out of LD_LIBRARY_PATH"
    )]
    Old {
        /// The file.
        library: PathBuf,
        /// The missing function.
        symbol: &'static str,
        /// Its version.
        version: &'static str,
    },
    /// The library could not prepare itself for processes that fork.
    #[error("ibv_fork_init of {library} failed: {}", std::io::Error::from_raw_os_error(*.errno))]
    Fork {
        /// The file.
        library: PathBuf,
        /// Its errno.
        errno: i32,
    },
}

/// The functions of libibverbs. Those that C programs inline (post, poll, arm) are reached through the context instead.
#[derive(Debug)]
pub(super) struct Verbs {
    pub(super) library: PathBuf,
    pub(super) get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut sys::Device,
    pub(super) free_device_list: unsafe extern "C" fn(*mut *mut sys::Device),
    pub(super) get_device_name: unsafe extern "C" fn(*mut sys::Device) -> *const c_char,
    pub(super) open_device: unsafe extern "C" fn(*mut sys::Device) -> *mut sys::Context,
    pub(super) close_device: unsafe extern "C" fn(*mut sys::Context) -> c_int,
    pub(super) query_device: unsafe extern "C" fn(*mut sys::Context, *mut sys::DeviceAttr) -> c_int,
    pub(super) query_port: unsafe extern "C" fn(*mut sys::Context, u8, *mut sys::PortAttr) -> c_int,
    pub(super) query_gid: unsafe extern "C" fn(*mut sys::Context, u8, c_int, *mut sys::Gid64) -> c_int,
    pub(super) alloc_pd: unsafe extern "C" fn(*mut sys::Context) -> *mut sys::Pd,
    pub(super) dealloc_pd: unsafe extern "C" fn(*mut sys::Pd) -> c_int,
    pub(super) reg_mr: unsafe extern "C" fn(*mut sys::Pd, *mut c_void, usize, c_int) -> *mut sys::Mr,
    pub(super) dereg_mr: unsafe extern "C" fn(*mut sys::Mr) -> c_int,
    pub(super) create_comp_channel: unsafe extern "C" fn(*mut sys::Context) -> *mut sys::CompChannel,
    pub(super) destroy_comp_channel: unsafe extern "C" fn(*mut sys::CompChannel) -> c_int,
    pub(super) create_cq:
        unsafe extern "C" fn(*mut sys::Context, c_int, *mut c_void, *mut sys::CompChannel, c_int) -> *mut sys::Cq,
    pub(super) destroy_cq: unsafe extern "C" fn(*mut sys::Cq) -> c_int,
    pub(super) get_cq_event: unsafe extern "C" fn(*mut sys::CompChannel, *mut *mut sys::Cq, *mut *mut c_void) -> c_int,
    pub(super) ack_cq_events: unsafe extern "C" fn(*mut sys::Cq, c_uint),
    pub(super) create_qp: unsafe extern "C" fn(*mut sys::Pd, *mut sys::QpInitAttr) -> *mut sys::Qp,
    pub(super) modify_qp: unsafe extern "C" fn(*mut sys::Qp, *mut sys::QpAttr, c_int) -> c_int,
    pub(super) destroy_qp: unsafe extern "C" fn(*mut sys::Qp) -> c_int,
    /// Context, port, index, entry, flags, size of the entry.
    pub(super) query_gid_ex:
        Option<unsafe extern "C" fn(*mut sys::Context, u32, u32, *mut sys::GidEntry, u32, usize) -> c_int>,
}

/// Names tried when no path is given: the one that the run-time package has comes first.
const NAMES: [&CStr; 2] = [c"libibverbs.so.1", c"libibverbs.so"];

/// Never cleared: pointers into the library are everywhere.
static VERBS: OnceLock<Result<Verbs, LoadError>> = OnceLock::new();

/// Binds the library, once a process: the first caller's path counts. No path means the usual names, as the dynamic linker finds them.
pub(super) fn verbs(path: Option<&Path>) -> Result<&'static Verbs, LoadError> {
    VERBS.get_or_init(|| load(path)).as_ref().map_err(Clone::clone)
}

/// Whether libibverbs can be used, and the file that was bound. The first caller's `path` counts for the whole process; `None` takes
/// `libibverbs.so.1` and then `libibverbs.so` from the dynamic linker's search path.
///
/// # Errors
/// [`LoadError`]; the same for ever after.
pub fn probe(path: Option<&Path>) -> Result<&'static Path, LoadError> {
    verbs(path).map(|verbs| verbs.library.as_path())
}

fn load(path: Option<&Path>) -> Result<Verbs, LoadError> {
    use std::os::unix::ffi::OsStrExt;
    let given = match path.map(|path| CString::new(path.as_os_str().as_bytes())) {
        None => None,
        Some(Ok(name)) => Some(name),
        Some(Err(_)) => return Err(LoadError::Missing { reason: "the path has a zero byte".into() }),
    };
    let names = given.as_deref().map_or(&NAMES[..], |_| &[]).iter().copied();
    let mut reasons = Vec::new();
    for name in given.as_deref().into_iter().chain(names) {
        // SAFETY: the name is a C string. Loading runs the library's constructors, which the operator's choice of a library implies.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return bind(
                handle,
                file_of(handle).unwrap_or_else(|| std::ffi::OsStr::from_bytes(name.to_bytes()).into()),
            );
        }
        let (name, why) = (name.to_string_lossy(), dl_error());
        // The linker does not always say what it looked for.
        reasons.push(if why.contains(&*name) { why } else { format!("{name}: {why}") });
    }
    Err(LoadError::Missing { reason: reasons.join("; ") })
}

/// The file behind a library that was found by name: there may be several of that name.
fn file_of(handle: *mut c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    /// The public part of `struct link_map`.
    #[repr(C)]
    struct LinkMap {
        base: usize,
        name: *const c_char,
    }
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: an open handle; the call writes one pointer to `map`, which lives here.
    let found = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) } == 0 && !map.is_null();
    if !found {
        return None;
    }
    // SAFETY: the linker's own entry of a library that is never unloaded; its name is a C string and is copied.
    let name = unsafe { CStr::from_ptr((*map).name) }.to_bytes();
    (!name.is_empty()).then(|| std::ffi::OsStr::from_bytes(name).into())
}

fn dl_error() -> String {
    // SAFETY: dlerror returns null or a C string that lives until this thread's next dl call; it is copied before.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "unknown error".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

/// The address of a function of the library.
fn find(handle: *mut c_void, name: &'static CStr, version: &'static CStr) -> Option<*mut c_void> {
    // SAFETY: the handle came from dlopen and is never closed; name and version are C strings.
    let at = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// A function of the library, as the type that the place it goes to has.
macro_rules! symbol {
    ($handle:expr, $name:literal, $version:literal) => {
        find($handle, $name, $version).map(|at| {
            // SAFETY: the function of this name and version has the type of the place it goes to: both are written from the same
            // documented interface. A pointer to a function has the size of one to data.
            unsafe { std::mem::transmute(at) }
        })
    };
}

macro_rules! required {
    ($handle:expr, $library:expr, $name:literal, $version:literal) => {
        symbol!($handle, $name, $version).ok_or_else(|| LoadError::Old {
            library: $library.clone(),
            symbol: $name.to_str().unwrap_or_default(),
            version: $version.to_str().unwrap_or_default(),
        })?
    };
}

fn bind(handle: *mut c_void, library: PathBuf) -> Result<Verbs, LoadError> {
    let fork_init: unsafe extern "C" fn() -> c_int = required!(handle, library, c"ibv_fork_init", c"IBVERBS_1.1");
    let verbs = Verbs {
        get_device_list: required!(handle, library, c"ibv_get_device_list", c"IBVERBS_1.1"),
        free_device_list: required!(handle, library, c"ibv_free_device_list", c"IBVERBS_1.1"),
        get_device_name: required!(handle, library, c"ibv_get_device_name", c"IBVERBS_1.1"),
        open_device: required!(handle, library, c"ibv_open_device", c"IBVERBS_1.1"),
        close_device: required!(handle, library, c"ibv_close_device", c"IBVERBS_1.1"),
        query_device: required!(handle, library, c"ibv_query_device", c"IBVERBS_1.1"),
        query_port: required!(handle, library, c"ibv_query_port", c"IBVERBS_1.1"),
        query_gid: required!(handle, library, c"ibv_query_gid", c"IBVERBS_1.1"),
        alloc_pd: required!(handle, library, c"ibv_alloc_pd", c"IBVERBS_1.1"),
        dealloc_pd: required!(handle, library, c"ibv_dealloc_pd", c"IBVERBS_1.1"),
        reg_mr: required!(handle, library, c"ibv_reg_mr", c"IBVERBS_1.1"),
        dereg_mr: required!(handle, library, c"ibv_dereg_mr", c"IBVERBS_1.1"),
        // These two never had another form than the first.
        create_comp_channel: required!(handle, library, c"ibv_create_comp_channel", c"IBVERBS_1.0"),
        destroy_comp_channel: required!(handle, library, c"ibv_destroy_comp_channel", c"IBVERBS_1.0"),
        create_cq: required!(handle, library, c"ibv_create_cq", c"IBVERBS_1.1"),
        destroy_cq: required!(handle, library, c"ibv_destroy_cq", c"IBVERBS_1.1"),
        get_cq_event: required!(handle, library, c"ibv_get_cq_event", c"IBVERBS_1.1"),
        ack_cq_events: required!(handle, library, c"ibv_ack_cq_events", c"IBVERBS_1.1"),
        create_qp: required!(handle, library, c"ibv_create_qp", c"IBVERBS_1.1"),
        modify_qp: required!(handle, library, c"ibv_modify_qp", c"IBVERBS_1.1"),
        destroy_qp: required!(handle, library, c"ibv_destroy_qp", c"IBVERBS_1.1"),
        query_gid_ex: symbol!(handle, c"_ibv_query_gid_ex", c"IBVERBS_1.11"),
        library,
    };
    // Registered pages must not become copies in a child that a data loader forks. Before any registration.
    // SAFETY: takes no arguments and may be called before any device is open.
    match unsafe { fork_init() } {
        0 => Ok(verbs),
        errno => Err(LoadError::Fork { library: verbs.library, errno }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_told_with_the_linkers_words() {
        let error = load(Some(Path::new("/nowhere/libibverbs.so.1"))).unwrap_err();
        let LoadError::Missing { reason } = &error else { panic!("{error}") };
        assert!(reason.contains("/nowhere/libibverbs.so.1"), "{reason}");
        assert!(error.to_string().contains("install rdma-core"), "{error}");
    }

    #[test]
    fn another_library_is_told_apart() {
        // given a library that is none of this kind, when it is bound, then the first missing function is named
        let error = load(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(matches!(error, LoadError::Old { symbol: "ibv_fork_init", version: "IBVERBS_1.1", .. }), "{error}");
        // with the file that the linker took, and what to do
        let text = error.to_string();
        assert!(
            text.starts_with('/') && text.contains("/libc.so.6 has no") && text.contains("update rdma-core"),
            "{text}"
        );
    }

    #[test]
    fn a_path_with_a_zero_byte_is_refused() {
        assert!(matches!(load(Some(Path::new("a\0b"))), Err(LoadError::Missing { .. })));
    }
}
