//! The end of the interpreter.
//!
//! A thread that attaches to the interpreter during its finalization is ended inside of native code, which crashes the
//! process. The interpreter reports the finalization too late: a thread can begin to wait for the GIL before the
//! finalization and receive the GIL after its start. The hook of this module therefore runs before the finalization. It
//! stops further attachments, and waits for the threads that are attached or are about to be.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};

/// Maximum time for which the exit waits for attached threads: a handler of `logging` may block.
const ATTACHED_THREADS_TIMEOUT: Duration = Duration::from_secs(5);

const ATTACHED_THREADS_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Number of attachments that the exit waits for. Atomic, because a lock could be held by another thread at a fork.
static ATTACHMENTS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Part of [`ATTACHMENTS`] that belongs to this thread.
    static OWN_ATTACHMENTS: Cell<usize> = const { Cell::new(0) };
}

static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// Thread that runs the exit, and may use the interpreter until its end.
static EXITING_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Registers the hook, at the import of the module.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let exit = PyCFunction::new_closure(py, None, None, |arguments, _| before_finalization(arguments.py()))?;
    py.import("atexit")?.call_method1("register", (exit,))?;
    // Of the threads that were attached in its parent, a forked child has only the one that called `fork`.
    let reset = |_: &Bound<'_, _>, _: Option<&Bound<'_, _>>| ATTACHMENTS.store(OWN_ATTACHMENTS.get(), Ordering::SeqCst);
    let reset = PyCFunction::new_closure(py, None, None, reset)?;
    let keyword_arguments = PyDict::new(py);
    keyword_arguments.set_item("after_in_child", reset)?;
    let os = py.import("os")?;
    // Systems without fork lack the function.
    if os.hasattr("register_at_fork")? {
        os.call_method("register_at_fork", (), Some(&keyword_arguments))?;
    }
    Ok(())
}

/// Returns true in the thread that runs the exit. No other thread of this package can call Python any more.
pub(crate) fn is_exiting_thread() -> bool {
    EXITING_THREAD.get() == Some(&thread::current().id())
}

fn before_finalization(py: Python<'_>) {
    let _ = EXITING_THREAD.set(thread::current().id());
    IS_EXITING.store(true, Ordering::SeqCst);
    // Without the GIL, which the threads need to finish.
    py.detach(|| {
        let deadline = Instant::now() + ATTACHED_THREADS_TIMEOUT;
        while ATTACHMENTS.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(ATTACHED_THREADS_POLL_INTERVAL);
        }
    });
}

/// Attachment that the exit waits for. It begins before the thread requests the GIL. Each value begins and ends in one
/// thread.
struct Attachment;

impl Attachment {
    /// Returns `None` after the exit has begun.
    fn begin() -> Option<Self> {
        // The increment comes first: the exit sets its flag before it reads the counter.
        ATTACHMENTS.fetch_add(1, Ordering::SeqCst);
        OWN_ATTACHMENTS.set(OWN_ATTACHMENTS.get() + 1);
        let attachment = Self;
        (!IS_EXITING.load(Ordering::SeqCst)).then_some(attachment)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        OWN_ATTACHMENTS.set(OWN_ATTACHMENTS.get() - 1);
        ATTACHMENTS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Attaches a thread of this package to the interpreter. Returns `None` after the exit has begun.
pub(crate) fn try_attach<T>(work: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let _attachment = Attachment::begin()?;
    Python::try_attach(work)
}

/// Runs `work` without the GIL in a thread of Python. A daemon thread does not return from here after the exit has begun.
pub(crate) fn detach<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let (value, attachment) = py.detach(|| {
        let value = work();
        (value, reattachment())
    });
    drop(attachment);
    value
}

fn reattachment() -> Option<Attachment> {
    let attachment = Attachment::begin();
    if attachment.is_none() && !is_exiting_thread() {
        // This thread waits until the process ends. CPython 3.14 treats its own threads in the same way.
        loop {
            thread::park();
        }
    }
    attachment
}
