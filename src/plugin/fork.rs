//! Children of fork are turned away: sockets, queues and locks belong to the parent.
//!
//! For: the frame around every entry point. Must not know: what the entry points do. Threads: any.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static IN_CHILD: AtomicBool = AtomicBool::new(false);
static SAID: AtomicBool = AtomicBool::new(false);

/// From now on a child of fork knows that it is one.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler stores to one atomic, which is allowed between fork and exec; the library is never unmapped
        // (it is linked with nodelete), so the handler stays callable. A failure (no memory) leaves children unmarked,
        // which only costs the clear refusal.
        unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
    });
}

unsafe extern "C" fn mark_child() {
    IN_CHILD.store(true, Ordering::Relaxed);
}

/// Whether this process is a child of one that used the plugin. Says so once: with one write, as the locks of the logger may
/// be held for ever in a child.
pub(super) fn in_child() -> bool {
    if !IN_CHILD.load(Ordering::Relaxed) {
        return false;
    }
    if !SAID.swap(true, Ordering::Relaxed) {
        const TEXT: &str = "nccl-mesh: mesh[E90] used in a child of fork after the parent initialised it; \
                            start processes with spawn, or fork before the first NCCL call\n";
        // SAFETY: the text is valid for its length; nothing can be done if it is not written.
        unsafe { libc::write(libc::STDERR_FILENO, TEXT.as_ptr().cast(), TEXT.len()) };
    }
    true
}
