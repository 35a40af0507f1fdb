//! The C library's own functions, found behind this library's.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{mmsghdr, msghdr, sockaddr, socklen_t, ssize_t};

use super::refuse_to_run;

/// The next definition of `name` after this library's own: the C library's.
fn next(name: &CStr, cache: &AtomicPtr<c_void>) -> *mut c_void {
    let known = cache.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: `name` is a C string; dlsym has no other precondition.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        refuse_to_run("the C library lacks a socket function");
    }
    cache.store(found, Ordering::Relaxed);
    found
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal as ($($argument:ty),*) -> $result:ty;)*) => {
        $($(#[$doc])*
        pub(super) fn $name() -> unsafe extern "C" fn($($argument),*) -> $result {
            static CACHE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
            // SAFETY: `next` gives the C library's function of that name, which has this type.
            unsafe {
                transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(next($symbol, &CACHE))
            }
        })*
    };
}

functions! {
    connect: c"connect" as (c_int, *const sockaddr, socklen_t) -> c_int;
    bind: c"bind" as (c_int, *const sockaddr, socklen_t) -> c_int;
    sendto: c"sendto" as (c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> ssize_t;
    sendmsg: c"sendmsg" as (c_int, *const msghdr, c_int) -> ssize_t;
    sendmmsg: c"sendmmsg" as (c_int, *mut mmsghdr, c_uint, c_int) -> c_int;
    setsockopt: c"setsockopt" as (c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    accept: c"accept" as (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    accept4: c"accept4" as (c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    getsockname: c"getsockname" as (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    getpeername: c"getpeername" as (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    recvfrom: c"recvfrom" as (c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    recvmsg: c"recvmsg" as (c_int, *mut msghdr, c_int) -> ssize_t;
}
