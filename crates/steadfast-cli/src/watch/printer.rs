//! Standard output: one thread writes lines in order until the limit is reached or the pipe is closed.

use std::io::{self, BufWriter, ErrorKind, Write};
#[cfg(test)]
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::Duration;

#[cfg(test)]
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of pending lines. Above this number, callers block, and their informers merge further events.
const MAX_PENDING_LINES: usize = 1024;

/// Sender of lines. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Printer {
    lines: SyncSender<OutputItem>,
}

/// Item of the output.
enum OutputItem {
    /// A line, and whether it counts toward `--until`.
    Line { text: String, is_counted: bool },
    /// Request for a signal when all earlier lines are written. The sender is dropped then.
    Flush(Sender<()>),
    /// The end of the output.
    End,
}

/// Interval between two updates of the status line while no line is pending.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// Status line below the printed lines.
pub(crate) struct StatusDisplay {
    /// Shows the current status. Called when no line is pending.
    pub(super) show: Box<dyn FnMut() + Send>,
    /// Erases the status. Called before the next line.
    pub(super) hide: Box<dyn FnMut() + Send>,
}

/// Reason why the output ended.
#[derive(Debug)]
pub(crate) enum OutputEnd {
    /// The limit of `--until` was reached.
    LimitReached,
    /// The reader closed the pipe.
    PipeClosed,
    /// Writing failed.
    Failed(io::Error),
}

impl Printer {
    /// Starts the thread, which ends after `until` counted lines if given. The receiver returns the reason of the end.
    pub(crate) fn start(until: Option<u64>, status: Option<StatusDisplay>) -> (Self, oneshot::Receiver<OutputEnd>) {
        let (lines, items) = sync_channel(MAX_PENDING_LINES);
        let (end_sender, end_receiver) = oneshot::channel();
        thread::spawn(move || {
            let _ = end_sender.send(write_lines(&items, io::stdout(), until, status));
        });
        (Self { lines }, end_receiver)
    }

    /// Creates a printer whose lines are received by the test, and not written.
    #[cfg(test)]
    pub(super) fn captured() -> (Self, CapturedLines) {
        let (lines, items) = sync_channel(MAX_PENDING_LINES);
        let captured = CapturedLines { printer: Self { lines: lines.clone() }, texts: Arc::default() };
        let texts = captured.texts.clone();
        thread::spawn(move || {
            for item in items {
                if let OutputItem::Line { text, .. } = item {
                    texts.lock().push(text);
                }
            }
        });
        (Self { lines }, captured)
    }

    /// Prints a counted line. Blocks while too many lines are pending.
    pub(crate) fn print(&self, text: String) {
        // The call fails only after the output has been closed.
        let _ = self.lines.send(OutputItem::Line { text, is_counted: true });
    }

    /// Prints a line that does not count toward `--until`.
    pub(crate) fn print_uncounted(&self, text: String) {
        let _ = self.lines.send(OutputItem::Line { text, is_counted: false });
    }

    /// Blocks until all lines before this call are written, or until the output has ended.
    pub(crate) fn flush(&self) {
        let (sender, written) = channel();
        if self.lines.send(OutputItem::Flush(sender)).is_ok() {
            // Nothing is sent: the drop of the sender ends the wait.
            let _ = written.recv();
        }
    }

    /// Ends the output after the pending lines. Blocks while too many lines are pending.
    pub(crate) fn end(&self) {
        let _ = self.lines.send(OutputItem::End);
    }
}

/// Lines of a captured printer.
#[cfg(test)]
pub(super) struct CapturedLines {
    printer: Printer,
    texts: Arc<Mutex<Vec<String>>>,
}

#[cfg(test)]
impl CapturedLines {
    /// Returns the lines since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        self.printer.flush();
        std::mem::take(&mut self.texts.lock())
    }
}

fn write_lines(
    items: &Receiver<OutputItem>,
    output: impl Write,
    until: Option<u64>,
    mut status: Option<StatusDisplay>,
) -> OutputEnd {
    let mut output = BufWriter::new(output);
    let mut remaining = until.unwrap_or(u64::MAX);
    while remaining > 0 {
        let item = match items.try_recv() {
            Ok(item) => item,
            // All senders were dropped: the program ends.
            Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => {
                // A line must not stay in the buffer while no other line follows.
                if let Err(error) = output.flush() {
                    return end_of_error(error);
                }
                let Some(item) = next_item(items, status.as_mut()) else { break };
                item
            }
        };
        let (text, is_counted) = match item {
            OutputItem::Line { text, is_counted } => (text, is_counted),
            OutputItem::Flush(written) => {
                if let Err(error) = output.flush() {
                    return end_of_error(error);
                }
                drop(written);
                continue;
            }
            OutputItem::End => break,
        };
        // Output is buffered: while lines are pending, one system call writes many of them.
        if let Err(error) = writeln!(output, "{text}") {
            return end_of_error(error);
        }
        remaining -= u64::from(is_counted);
    }
    output.flush().map_or_else(end_of_error, |()| OutputEnd::LimitReached)
}

/// Waits for the next item; in the meantime the status is shown. Returns `None` if all senders were dropped.
fn next_item(items: &Receiver<OutputItem>, status: Option<&mut StatusDisplay>) -> Option<OutputItem> {
    let Some(status) = status else { return items.recv().ok() };
    let item = loop {
        (status.show)();
        match items.recv_timeout(STATUS_INTERVAL) {
            Ok(item) => break Some(item),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break None,
        }
    };
    (status.hide)();
    item
}

fn end_of_error(error: io::Error) -> OutputEnd {
    if error.kind() == ErrorKind::BrokenPipe { OutputEnd::PipeClosed } else { OutputEnd::Failed(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FailingWriter(ErrorKind);

    impl Write for FailingWriter {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Queues lines; those in brackets do not count.
    fn lines(texts: &[&str]) -> Receiver<OutputItem> {
        let (sender, receiver) = sync_channel(texts.len());
        for text in texts {
            let line = match *text {
                "END" => OutputItem::End,
                text => OutputItem::Line { text: text.to_owned(), is_counted: !text.starts_with('[') },
            };
            assert!(sender.send(line).is_ok(), "the queue is not full");
        }
        receiver
    }

    #[test]
    fn status_is_hidden_while_lines_are_written() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let record = |name: &'static str| {
            let calls = calls.clone();
            Box::new(move || calls.lock().push(name))
        };
        let status = StatusDisplay { show: record("show"), hide: record("hide") };
        assert!(matches!(write_lines(&lines(&["a", "b"]), Vec::new(), None, Some(status)), OutputEnd::LimitReached));
        // Both lines were pending, so the status is shown after them.
        assert_eq!(*calls.lock(), Vec::<&str>::new());
        let status = StatusDisplay { show: record("show"), hide: record("hide") };
        let (sender, receiver) = sync_channel(1);
        let printing = thread::spawn(move || write_lines(&receiver, Vec::new(), Some(1), Some(status)));
        while calls.lock().is_empty() {
            thread::yield_now();
        }
        assert!(
            sender.send(OutputItem::Line { text: "a".to_owned(), is_counted: true }).is_ok(),
            "the queue is not full"
        );
        assert!(matches!(printing.join(), Ok(OutputEnd::LimitReached)));
        let calls = calls.lock();
        assert_eq!((calls.first(), calls.last()), (Some(&"show"), Some(&"hide")));
    }

    #[test]
    fn output_ends_at_limit() {
        let mut written = Vec::new();
        assert!(matches!(write_lines(&lines(&["a", "b", "c"]), &mut written, Some(2), None), OutputEnd::LimitReached));
        assert_eq!(written, b"a\nb\n");
    }

    #[test]
    fn requested_end_follows_pending_lines() {
        let mut written = Vec::new();
        assert!(matches!(write_lines(&lines(&["a", "END", "b"]), &mut written, None, None), OutputEnd::LimitReached));
        assert_eq!(written, b"a\n");
    }

    #[test]
    fn flush_waits_for_earlier_lines() {
        #[derive(Clone, Default)]
        struct SlowWriter(Arc<Mutex<Vec<u8>>>);
        impl Write for SlowWriter {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                thread::sleep(Duration::from_millis(20));
                self.0.lock().extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (lines, items) = sync_channel(MAX_PENDING_LINES);
        let (printer, writer) = (Printer { lines }, SlowWriter::default());
        let output = writer.clone();
        let printing = thread::spawn(move || write_lines(&items, output, None, None));
        for _ in 0..1000 {
            printer.print("12345678".to_owned());
        }
        printer.flush();
        assert_eq!(writer.0.lock().len(), 9000);
        printer.end();
        assert!(matches!(printing.join(), Ok(OutputEnd::LimitReached)));
        // The output has ended.
        printer.flush();
    }

    #[test]
    fn uncounted_line_is_printed() {
        let mut written = Vec::new();
        assert!(matches!(
            write_lines(&lines(&["a", "[stale]", "b", "c"]), &mut written, Some(2), None),
            OutputEnd::LimitReached
        ));
        assert_eq!(written, b"a\n[stale]\nb\n");
    }

    #[test]
    fn closed_pipe_is_success_full_disk_fails() {
        assert!(matches!(
            write_lines(&lines(&["a"]), FailingWriter(ErrorKind::BrokenPipe), None, None),
            OutputEnd::PipeClosed
        ));
        assert!(matches!(
            write_lines(&lines(&["a"]), FailingWriter(ErrorKind::StorageFull), None, None),
            OutputEnd::Failed(_)
        ));
    }
}
