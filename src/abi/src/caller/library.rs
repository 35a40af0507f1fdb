//! Opening a plugin's file and finding its table.
//!
//! For: `Plugin`. Must not know: the functions' semantics. Threads: any.

use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::OpenError;
use super::normal::Calls;
use crate::{NEWEST_VERSION, OLDEST_VERSION, symbol_name};

/// A plugin as NCCL sees it: an opened file and the table of one version.
///
/// Opening a file runs its constructors: open only files that you would run. The file stays mapped unless
/// [`close`](Self::close) is called.
pub struct Plugin {
    pub(super) calls: Calls,
    pub(super) version: u32,
    /// Contexts alive, for the versions without a context.
    pub(super) contexts: Mutex<u32>,
    path: PathBuf,
    library: *mut c_void,
}

// SAFETY: the library handle is only given to the loader, which is thread safe; the table is never written.
unsafe impl Send for Plugin {}
// SAFETY: as above; the count of contexts has its own lock.
unsafe impl Sync for Plugin {}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("path", &self.path).field("version", &self.version).finish_non_exhaustive()
    }
}

impl Plugin {
    /// Opens `path` with RTLD_NOW | RTLD_LOCAL and takes the table of `version` (6 to 12).
    ///
    /// # Errors
    /// [`OpenError`]: an unknown version, a file that does not load, a table that is absent or incomplete.
    pub fn open(path: impl AsRef<Path>, version: u32) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let symbol = symbol_name(version).ok_or(OpenError::UnknownVersion { version })?;
        let library = load(path)?;
        match find(path, library, symbol).and_then(|table| read_table(table, version)) {
            Ok(calls) => Ok(Self { calls, version, contexts: Mutex::new(0), path: path.to_owned(), library }),
            Err(error) => {
                // SAFETY: `library` came from `dlopen` just now and nothing of it is kept.
                unsafe { libc::dlclose(library) };
                Err(error)
            }
        }
    }

    /// Opens `path` with the newest table that it exports, as NCCL chooses.
    ///
    /// # Errors
    /// As [`open`](Self::open); if no table is there, the error of the oldest version.
    pub fn open_newest(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let mut version = NEWEST_VERSION;
        loop {
            match Self::open(path, version) {
                Err(OpenError::NoSymbol { .. }) if version > OLDEST_VERSION => version -= 1,
                other => return other,
            }
        }
    }

    /// A plugin that is part of this program: `table` is its table of `version`.
    ///
    /// # Errors
    /// [`OpenError`]: an unknown version or an incomplete table.
    ///
    /// # Safety
    /// `table` is a table of that version, which is never written and lives as long as the plugin is used.
    pub unsafe fn from_table(table: *const c_void, version: u32) -> Result<Self, OpenError> {
        let calls = read_table(table, version)?;
        let path = PathBuf::from("(this program)");
        Ok(Self { calls, version, contexts: Mutex::new(0), path, library: core::ptr::null_mut() })
    }

    /// Version of the table in use.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The plugin's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The network's name, which NCCL compares with `NCCL_NET`.
    pub fn name(&self) -> String {
        if self.calls.name.is_null() {
            return String::new();
        }
        // SAFETY: not NULL, and a plugin's name is a C string that lives as long as the plugin.
        unsafe { CStr::from_ptr(self.calls.name) }.to_string_lossy().into_owned()
    }

    /// Address of another exported symbol, as `T`: a function pointer type, or `*const U` for data.
    ///
    /// # Errors
    /// [`OpenError::NoSymbol`] if it is not exported.
    ///
    /// # Safety
    /// `T` must be the type of that symbol.
    pub unsafe fn symbol<T: Copy>(&self, name: &CStr) -> Result<T, OpenError> {
        const { assert!(size_of::<T>() == size_of::<*mut c_void>(), "a symbol is one pointer") };
        let address = find(&self.path, self.library, name)?;
        // SAFETY: sizes are equal (asserted above); that `T` fits is the caller's promise.
        Ok(unsafe { core::mem::transmute_copy(&address) })
    }

    /// `dlclose`, as NCCL does when its last communicator goes. No handle may be used afterwards.
    pub fn close(self) {
        if self.library.is_null() {
            return; // part of this program
        }
        // SAFETY: `library` came from `dlopen` and is closed once, since `self` is consumed.
        unsafe { libc::dlclose(self.library) };
    }
}

fn load(path: &Path) -> Result<*mut c_void, OpenError> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| OpenError::Path { path: path.to_owned() })?;
    // SAFETY: a C string; what the file's constructors do is the opener's business.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(OpenError::Load { path: path.to_owned(), reason: loader_error() });
    }
    Ok(library)
}

fn find(path: &Path, library: *mut c_void, symbol: &CStr) -> Result<*mut c_void, OpenError> {
    // SAFETY: a live library handle and a C string.
    let address = unsafe { libc::dlsym(library, symbol.as_ptr()) };
    if address.is_null() {
        let symbol = symbol.to_string_lossy().into_owned();
        return Err(OpenError::NoSymbol { path: path.to_owned(), symbol, reason: loader_error() });
    }
    Ok(address)
}

fn loader_error() -> String {
    // SAFETY: returns NULL or a C string that lives until the thread's next loader call.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".to_owned();
    }
    // SAFETY: not NULL, see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn read_table(table: *const c_void, version: u32) -> Result<Calls, OpenError> {
    // SAFETY: (all arms) a symbol with this name is a table of this version, which is the interface's contract; the
    // table lives while the library is mapped and is only read here.
    unsafe {
        match version {
            6 => Calls::v6(&*table.cast()),
            7 => Calls::v7(&*table.cast()),
            8 => Calls::v8(&*table.cast()),
            9 => Calls::v9(&*table.cast()),
            10 => Calls::v10(&*table.cast()),
            11 => Calls::v11(&*table.cast()),
            12 => Calls::v12(&*table.cast()),
            _ => Err(OpenError::UnknownVersion { version }),
        }
    }
}
