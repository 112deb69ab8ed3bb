//! A program on a pseudo-terminal, and the processor time and the memory that it uses.

use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::run_error::RunError;

/// Rows and columns of the terminal.
const SIZE: (u16, u16) = (50, 160);

/// Number of bytes at the end of the output that are kept and searched for the expected text.
///
/// One read from the program has at most 64 KiB, so no text is dropped before it has been searched.
const SEARCHED_BYTES: usize = 256 << 10;

/// Kernel clock ticks per second in `/proc/PID/stat`. Linux has used this value on all common architectures since 2.6.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running program.
pub(crate) struct TerminalProcess {
    /// `script` of util-linux, which provides the terminal.
    script: Child,
    /// Kept open: the program would read an end of input otherwise.
    _keys: ChildStdin,
    output: Receiver<(Instant, Vec<u8>)>,
    screen: vt100::Parser,
    /// End of the output, as bytes.
    recent_output: Vec<u8>,
    started: Instant,
    first_output: Option<Instant>,
    lines: usize,
}

/// Text to wait for.
pub(crate) enum Expected<'a> {
    /// Text on the screen.
    Screen(&'a str),
    /// Text in the output that this wait receives, in its last [`SEARCHED_BYTES`].
    Output(&'a str),
    /// Number of lines since the start.
    Lines(usize),
}

/// Processor time in seconds and resident memory in bytes of a process.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) processor: f64,
    pub(crate) memory: u64,
}

impl TerminalProcess {
    /// Starts `command`, a line for a shell.
    pub(crate) fn start(command: &str, home: &Path) -> Result<Self, RunError> {
        let line = format!("stty rows {} cols {}; exec {command}", SIZE.0, SIZE.1);
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color").env("HOME", home);
        script.env("XDG_CONFIG_HOME", home).env("XDG_STATE_HOME", home).env("XDG_DATA_HOME", home);
        let started = Instant::now();
        let mut script = script
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot start `script` of util-linux: {error}"))?;
        let (Some(keys), Some(mut stdout)) = (script.stdin.take(), script.stdout.take()) else {
            return Err("`script` has no pipes".into());
        };
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(read @ 1..) = stdout.read(&mut bytes) {
                // The receiver is dropped after the measurement of this program.
                if sender.send((Instant::now(), bytes[..read].to_vec())).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            script,
            _keys: keys,
            output,
            screen: vt100::Parser::new(SIZE.0, SIZE.1, 0),
            recent_output: Vec::new(),
            started,
            first_output: None,
            lines: 0,
        })
    }

    /// Waits until the terminal shows `expected`. Returns the time at which the last byte of it arrived.
    pub(crate) fn wait_for(&mut self, expected: &Expected<'_>, timeout: Duration) -> Result<Instant, RunError> {
        let deadline = Instant::now() + timeout;
        self.recent_output.clear();
        loop {
            let at = match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((at, bytes)) => {
                    self.receive(at, &bytes);
                    at
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(
                        format!("nothing after {} s; the screen is:\n{}", timeout.as_secs(), self.text()).into()
                    );
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the program exited; the screen is:\n{}", self.text()).into());
                }
            };
            let shown = match expected {
                Expected::Screen(text) => self.text().contains(text),
                Expected::Output(text) => contains(&self.recent_output, text.as_bytes()),
                Expected::Lines(count) => self.lines >= *count,
            };
            if shown {
                return Ok(at);
            }
        }
    }

    /// Reads the output that has arrived, so that it does not take memory.
    pub(crate) fn discard_output(&mut self) {
        while let Ok((at, bytes)) = self.output.try_recv() {
            self.receive(at, &bytes);
        }
    }

    /// Returns the time from the start to the first output.
    pub(crate) fn first_output(&self) -> Option<Duration> {
        Some(self.first_output?.saturating_duration_since(self.started))
    }

    /// Returns the start time.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Returns the processor time and the memory of the program.
    pub(crate) fn usage(&self) -> Result<Usage, RunError> {
        let program = self.program().ok_or("the program exited")?;
        let stat = std::fs::read_to_string(format!("/proc/{program}/stat"))?;
        // The name of the program ends with the last parenthesis, and may contain blanks.
        let fields: Vec<&str> =
            stat.rsplit_once(')').ok_or("unknown format of /proc/PID/stat")?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u32>().ok()).map(f64::from);
        let (user, system) = ticks(11).zip(ticks(12)).ok_or("unknown format of /proc/PID/stat")?;
        let status = std::fs::read_to_string(format!("/proc/{program}/status"))?;
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc/PID/status")?;
        let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse()?;
        Ok(Usage { processor: (user + system) / TICKS_PER_SECOND, memory: kilobytes * 1024 })
    }

    /// Returns the process ID of the program, which is the only child of `script`.
    fn program(&self) -> Option<String> {
        let script = self.script.id();
        let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    /// Returns the text of the screen.
    fn text(&self) -> String {
        self.screen.screen().contents()
    }

    fn receive(&mut self, at: Instant, bytes: &[u8]) {
        self.first_output.get_or_insert(at);
        self.lines += memchr::memchr_iter(b'\n', bytes).count();
        self.screen.process(bytes);
        self.recent_output.extend_from_slice(bytes);
        let excess = self.recent_output.len().saturating_sub(SEARCHED_BYTES);
        self.recent_output.drain(..excess);
    }
}

impl Drop for TerminalProcess {
    fn drop(&mut self) {
        // A program that ignores the end of its terminal would run on. One that has exited cannot be killed, which is no
        // error.
        if let Some(program) = self.program() {
            let _ = Command::new("kill").arg("-KILL").arg(program).status();
        }
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
