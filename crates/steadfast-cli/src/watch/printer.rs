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
    lines: SyncSender<Line>,
}

/// A line, and whether it is one of those that are counted.
struct Line {
    text: String,
    counts: bool,
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

    /// Prints a line of an event; waits while too many wait already.
    pub(crate) fn print(&self, text: String) {
        // After the end nobody wants it.
        let _ = self.lines.send(Line { text, counts: true });
    }

    /// Prints a line that is no event's, which is not among those that are counted.
    pub(crate) fn print_aside(&self, text: String) {
        let _ = self.lines.send(Line { text, counts: false });
    }
}

fn print(waiting: &Receiver<Line>, output: impl Write, until: Option<u64>) -> End {
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
        if let Err(error) = writeln!(output, "{}", line.text) {
            return end(error);
        }
        left -= u64::from(line.counts);
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

    /// Those in brackets are no events.
    fn lines(texts: &[&str]) -> Receiver<Line> {
        let (sender, receiver) = sync_channel(texts.len());
        for text in texts {
            let line = Line { text: (*text).to_owned(), counts: !text.starts_with('[') };
            assert!(sender.send(line).is_ok(), "there is room");
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
    fn what_is_no_event_is_printed_and_not_counted() {
        let mut written = Vec::new();
        assert!(matches!(print(&lines(&["a", "[stale]", "b", "c"]), &mut written, Some(2)), End::Counted));
        assert_eq!(written, b"a\n[stale]\nb\n");
    }

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
        assert!(matches!(print(&lines(&["a"]), Closed(ErrorKind::BrokenPipe), None), End::NobodyReads));
        assert!(matches!(print(&lines(&["a"]), Closed(ErrorKind::StorageFull), None), End::Failed(_)));
    }
}
