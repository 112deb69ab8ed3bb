//! One run of a plugin's process, ended at its deadline.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

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
    // A separate process group can be killed with its children. On a terminal, a background group cannot read.
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
    let (exit, stdout) = wait(&mut kill_guard, run, &stdout);
    drop(kill_guard);
    // The output before the exit is already in the pipe. If another process keeps the pipe open, the timeout ends the
    // wait.
    let stderr = stderr.recv_timeout(OUTPUT_GRACE).unwrap_or_default();
    Ok(Output { exit, stdout, stderr })
}

/// Waits until the process has exited and its output is complete, or until the process must be killed.
fn wait(kill_guard: &mut KillOnDrop<'_>, run: &Run<'_>, output: &Receiver<Vec<u8>>) -> (ExitKind, Vec<u8>) {
    let mut interval = Duration::from_millis(1);
    let mut stdout = None;
    let mut exited: Option<(ExitStatus, Instant)> = None;
    loop {
        let now = Instant::now();
        if now >= run.deadline {
            return (ExitKind::TimedOut, stdout.unwrap_or_default());
        }
        if (run.is_abandoned)() {
            return (ExitKind::Abandoned, Vec::new());
        }
        if exited.is_none() {
            exited = kill_guard.child.try_wait().ok().flatten().map(|status| (status, now));
            kill_guard.is_reaped = exited.is_some();
        }
        // An exit is not the end of the output: a grandchild may hold the pipe open, for example a daemon that caches
        // credentials.
        if let Some((status, at)) = exited
            && (stdout.is_some() || now.saturating_duration_since(at) > OUTPUT_GRACE)
        {
            return (ExitKind::Exited(status), stdout.unwrap_or_default());
        }
        if stdout.is_some() {
            thread::sleep(interval);
        } else {
            match output.recv_timeout(interval) {
                Ok(all) if all.len() > MAX_OUTPUT_BYTES => return (ExitKind::OutputTooLong, Vec::new()),
                Ok(all) => stdout = Some(all),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => stdout = Some(Vec::new()),
            }
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

/// Reads `pipe` on a thread until the pipe ends. If `copies_to_stderr` is true, copies the data to this process's
/// standard error.
fn read(
    pipe: Option<impl Read + Send + 'static>,
    limit: usize,
    excess: ExcessPolicy,
    copies_to_stderr: bool,
) -> io::Result<Receiver<Vec<u8>>> {
    let (done, all) = channel();
    let Some(mut pipe) = pipe else { return Ok(all) };
    thread::Builder::new().name("steadfast-plugin".to_owned()).spawn(move || {
        let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match pipe.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => break,
                Ok(length) => {
                    let new = &buffer[..length];
                    kept.extend_from_slice(new);
                    if copies_to_stderr {
                        drop(io::stderr().write_all(new));
                    }
                    if kept.len() > limit {
                        if excess == ExcessPolicy::Stop {
                            break;
                        }
                        kept.drain(..kept.len() - limit);
                    }
                }
            }
        }
        drop(done.send(kept));
    })?;
    Ok(all)
}
