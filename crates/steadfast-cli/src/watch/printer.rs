//! Standard output: one thread, one line after the other, until enough were written or nobody reads them.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use tokio::sync::oneshot;

/// How many lines may wait; whoever has more waits too, and its informer merges what comes meanwhile.
const WAITING: usize = 1024;

/// Takes lines. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Printer {
    lines: SyncSender<String>,
}

/// Why nothing more is printed.
#[derive(Debug)]
pub(crate) enum End {
    /// As many lines as were wanted.
    Counted,
    /// The other end of the pipe was closed.
    NobodyReads,
    /// Writing failed.
    Failed(io::Error),
}

impl Printer {
    /// Prints to standard output, `until` so many lines or for ever; the receiver tells the end.
    pub(crate) fn start(until: Option<u64>) -> (Self, oneshot::Receiver<End>) {
        let (lines, waiting) = sync_channel(WAITING);
        let (ended, end) = oneshot::channel();
        thread::spawn(move || {
            let _ = ended.send(print(&waiting, io::stdout(), until));
        });
        (Self { lines }, end)
    }

    /// Prints `line`; waits while too many wait already.
    pub(crate) fn print(&self, line: String) {
        // After the end nobody wants it.
        let _ = self.lines.send(line);
    }
}

fn print(waiting: &Receiver<String>, output: impl Write, until: Option<u64>) -> End {
    let mut output = BufWriter::new(output);
    let mut left = until.unwrap_or(u64::MAX);
    while left > 0 {
        let line = match waiting.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                // Nobody should wait for a line that is known.
                if let Err(error) = output.flush() {
                    return end(error);
                }
                let Ok(line) = waiting.recv() else { break };
                line
            }
        };
        if let Err(error) = writeln!(output, "{line}") {
            return end(error);
        }
        left -= 1;
    }
    output.flush().map_or_else(end, |()| End::Counted)
}

fn end(error: io::Error) -> End {
    if error.kind() == ErrorKind::BrokenPipe { End::NobodyReads } else { End::Failed(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed(ErrorKind);

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn lines(texts: &[&str]) -> Receiver<String> {
        let (sender, receiver) = sync_channel(texts.len());
        for text in texts {
            sender.send((*text).to_owned()).expect("there is room");
        }
        receiver
    }

    #[test]
    fn it_ends_after_as_many_lines_as_are_wanted() {
        let mut written = Vec::new();
        assert!(matches!(print(&lines(&["a", "b", "c"]), &mut written, Some(2)), End::Counted));
        assert_eq!(written, b"a\nb\n");
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
        assert!(matches!(print(&lines(&["a"]), Closed(ErrorKind::BrokenPipe), None), End::NobodyReads));
        assert!(matches!(print(&lines(&["a"]), Closed(ErrorKind::StorageFull), None), End::Failed(_)));
    }
}
