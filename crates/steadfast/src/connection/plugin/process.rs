//! One run of a plugin's process, ended at its deadline.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum size of a plugin's standard output in bytes.
pub(super) const MAX_OUTPUT_BYTES: usize = 1024 * 1024;
/// Number of bytes kept from the end of the plugin's standard error.
const MAX_STDERR_BYTES: usize = 8 * 1024;

/// Maximum interval between polls of the process; the first intervals are shorter.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after a plugin's exit for the rest of its output, if a child process of the plugin keeps the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// Command to run, with its environment and deadline.
pub(super) struct Run<'a> {
    pub(super) command: &'a str,
    pub(super) arguments: &'a [String],
    pub(super) variables: Vec<(&'a str, &'a str)>,
    /// Variables that are not inherited.
    pub(super) removed_variables: &'a [String],
    /// Name and value of the variable with the request for credentials.
    pub(super) input: (&'a str, &'a str),
    /// True if the plugin may read from the terminal and print on it.
    pub(super) interactive: bool,
    pub(super) deadline: Instant,
    /// Returns true if no caller needs the outcome any more.
    pub(super) is_abandoned: &'a dyn Fn() -> bool,
}

/// Output of a plugin, and the kind of its end.
pub(super) struct Output {
    pub(super) exit: ExitKind,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Kind of a process's end.
pub(super) enum ExitKind {
    Exited(ExitStatus),
    TimedOut,
    Abandoned,
    OutputTooLong,
}

/// Runs a process until it exits, or until it is killed.
pub(super) fn run(run: &Run<'_>) -> io::Result<Output> {
    let mut command = Command::new(run.command);
    command.args(run.arguments).envs(run.variables.iter().copied()).env(run.input.0, run.input.1);
    for name in run.removed_variables {
        command.env_remove(name);
    }
    command.stdin(if run.interactive { Stdio::inherit() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // A process group of its own lets the guard kill the plugin together with its children. An interactive plugin stays
    // in our group, because a background group cannot read from the terminal.
    #[cfg(unix)]
    if !run.interactive {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    let mut child = command.spawn()?;
    let (pipe, error_pipe) = (child.stdout.take(), child.stderr.take());
    // From here on, every return and panic kills and reaps the process.
    let mut kill_guard = KillOnDrop { child: &mut child, leads_group: !run.interactive, is_reaped: false };
    let stdout = read(pipe, MAX_OUTPUT_BYTES, ExcessPolicy::Stop, false)?;
    // Both pipes are read concurrently: a process that fills one of them would otherwise block forever.
    let stderr = read(error_pipe, MAX_STDERR_BYTES, ExcessPolicy::DropOldest, run.interactive)?;
    let exit = wait(&mut kill_guard, run, &stdout);
    drop(kill_guard);
    // The output before the exit is already in the pipe. If another process keeps the pipe open, the timeout ends the
    // wait, and the bytes that have arrived are used.
    stderr.wait(OUTPUT_GRACE);
    Ok(Output { exit, stdout: stdout.take(), stderr: stderr.take() })
}

/// Waits until the process has exited and its output is complete, or until the process must be killed.
fn wait(kill_guard: &mut KillOnDrop<'_>, run: &Run<'_>, output: &PipeOutput) -> ExitKind {
    let mut interval = Duration::from_millis(1);
    let mut is_complete = false;
    let mut exited: Option<(ExitStatus, Instant)> = None;
    loop {
        let now = Instant::now();
        if (run.is_abandoned)() {
            return ExitKind::Abandoned;
        }
        if output.len() > MAX_OUTPUT_BYTES {
            return ExitKind::OutputTooLong;
        }
        if exited.is_none() {
            exited = kill_guard.child.try_wait().ok().flatten().map(|status| (status, now));
            kill_guard.is_reaped = exited.is_some();
        }
        // An exit is not the end of the output: a grandchild may hold the pipe open, for example a daemon that caches
        // credentials. A plugin that has exited in time did not time out, even if this grace passes the deadline.
        match exited {
            Some((status, at)) if is_complete || now.saturating_duration_since(at) > OUTPUT_GRACE => {
                return ExitKind::Exited(status);
            }
            None if now >= run.deadline => return ExitKind::TimedOut,
            _ => {}
        }
        if is_complete {
            thread::sleep(interval);
        } else {
            is_complete = output.wait(interval);
        }
        // `std` has no wait with a timeout. Plugins that only read a cache end within milliseconds, so the first
        // intervals are short.
        interval = (interval * 2).min(POLL_INTERVAL);
    }
}

/// Guard of a process: kills and reaps the process on drop.
struct KillOnDrop<'a> {
    child: &'a mut Child,
    /// True if the process leads a group of its own.
    #[cfg_attr(not(unix), allow(dead_code))]
    leads_group: bool,
    is_reaped: bool,
}

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        // The system may already have assigned the number of a reaped process to another process.
        if self.is_reaped {
            return;
        }
        #[cfg(unix)]
        if self.leads_group
            && let Ok(number) = i32::try_from(self.child.id())
            && let Some(group) = rustix::process::Pid::from_raw(number)
        {
            // An error means that the group has ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Treatment of bytes beyond the limit.
#[derive(Clone, Copy, PartialEq)]
enum ExcessPolicy {
    Stop,
    DropOldest,
}

/// Bytes of a pipe, collected by a thread.
struct PipeOutput {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Disconnected when the thread has ended.
    end: Receiver<()>,
}

impl PipeOutput {
    /// Waits for the end of the pipe. Returns true if the pipe has ended.
    fn wait(&self, limit: Duration) -> bool {
        self.end.recv_timeout(limit) != Err(RecvTimeoutError::Timeout)
    }

    fn len(&self) -> usize {
        self.bytes.lock().len()
    }

    /// Returns the bytes that have arrived.
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock())
    }
}

/// Reads `pipe` on a thread until the pipe ends. If `copies_to_stderr` is true, copies the data to this process's
/// standard error.
fn read(
    pipe: Option<impl Read + Send + 'static>,
    limit: usize,
    excess: ExcessPolicy,
    copies_to_stderr: bool,
) -> io::Result<PipeOutput> {
    let (end_guard, end) = channel();
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let output = PipeOutput { bytes: bytes.clone(), end };
    let Some(mut pipe) = pipe else { return Ok(output) };
    thread::Builder::new().name("steadfast-plugin".to_owned()).spawn(move || {
        let _end_guard: Sender<()> = end_guard;
        let mut buffer = [0; 4096];
        loop {
            match pipe.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    let new = &buffer[..length];
                    if copies_to_stderr {
                        drop(io::stderr().write_all(new));
                    }
                    let mut kept = bytes.lock();
                    kept.extend_from_slice(new);
                    let surplus = kept.len().saturating_sub(limit);
                    if surplus > 0 {
                        if excess == ExcessPolicy::Stop {
                            break;
                        }
                        kept.drain(..surplus);
                    }
                }
            }
        }
    })?;
    Ok(output)
}
