//! A container in memory, in virtual time.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::io::{AsyncBufRead, AsyncRead};
use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, channel};

use super::super::source::LogReader;
use super::*;

/// Lines of an instance, each with its time in milliseconds.
type Lines = Vec<(u32, &'static str)>;

/// The logs of the current and the previous instance, and the requests.
#[derive(Default)]
struct Logs {
    current: Lines,
    previous: Option<Lines>,
    /// Ends of the next responses: number of bytes, and whether the response is interrupted.
    ends: Vec<(usize, bool)>,
    requests: Vec<LogRequest>,
    open: usize,
    max_open: usize,
}

#[derive(Clone, Default)]
struct FakeLog(Arc<Mutex<Logs>>);

/// Response that ends, or is interrupted, after its bytes. A response without an end stays open.
struct FakeResponse {
    bytes: Vec<u8>,
    read: usize,
    is_interrupted: bool,
    logs: FakeLog,
}

impl Drop for FakeResponse {
    fn drop(&mut self) {
        self.logs.0.lock().open -= 1;
    }
}

impl AsyncRead for FakeResponse {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        unreachable!("lines are read from the buffer")
    }
}

impl AsyncBufRead for FakeResponse {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let response = self.get_mut();
        if response.read == response.bytes.len() && response.is_interrupted {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(&response.bytes[response.read..]))
    }

    fn consume(self: Pin<&mut Self>, amount: usize) {
        self.get_mut().read += amount;
    }
}

fn at(milliseconds: u32) -> Timestamp {
    Timestamp::from_millisecond(1_800_000_000_000 + i64::from(milliseconds)).expect("a time")
}

impl LogSource for FakeLog {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogReader, LogError>> {
        let mut logs = self.0.lock();
        logs.requests.push(request);
        let lines = if request.previous { logs.previous.clone() } else { Some(logs.current.clone()) };
        let Some(lines) = lines else {
            let reason = "previous terminated container not found".to_owned();
            return Box::pin(async { Err(LogError { code: Some(400), reason }) });
        };
        let is_requested = |time: &u32| request.since.is_none_or(|since| at(*time) >= since);
        let lines = lines.iter().filter(|(time, _)| is_requested(time));
        let mut bytes: Vec<u8> =
            lines.flat_map(|(time, line)| format!("{} {line}\n", at(*time)).into_bytes()).collect();
        let mut is_interrupted = false;
        if !request.previous && !logs.ends.is_empty() {
            let (length, interrupts) = logs.ends.remove(0);
            bytes.truncate(length);
            is_interrupted = interrupts;
        }
        logs.open += 1;
        logs.max_open = logs.max_open.max(logs.open);
        let response = FakeResponse { bytes, read: 0, is_interrupted, logs: self.clone() };
        Box::pin(async { Ok(Box::pin(response) as LogReader) })
    }
}

struct Fixture {
    log: FakeLog,
    states: watch::Sender<Option<Instance>>,
    output: Receiver<(Arc<()>, LogItem)>,
}

impl Fixture {
    fn start(log: FakeLog) -> Self {
        let (states, receiver) = watch::channel(Some(Instance { restarts: 0, is_ended: false }));
        let (sender, output) = channel(100);
        let position = LogPosition::new(None);
        let limit = StreamLimit::new(1);
        tokio::spawn(
            LogFollower { source: log.clone(), name: Arc::new(()), output: sender, limit, position }.run(receiver),
        );
        Self { log, states, output }
    }

    async fn line(&mut self) -> String {
        match self.output.recv().await.expect("the output is open").1 {
            LogItem::Line { text, .. } => text,
            LogItem::Note(note) => format!("note: {note}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cut_loses_and_repeats_no_line() {
    let log = FakeLog::default();
    log.0.lock().current = vec![(100, "a"), (100, "a"), (900, "b"), (1500, "c"), (1500, "d")];
    // The responses end within a line, between lines, and within a time.
    let line = format!("{} a\n", at(100)).len();
    log.0.lock().ends = vec![(line + 10, true), (3 * line, false), (3 * line + 3, true)];
    let mut fixture = Fixture::start(log);
    let mut lines = Vec::new();
    while lines.len() < 6 {
        lines.push(fixture.line().await);
    }
    assert_eq!(lines[0], "a");
    assert!(lines[1].starts_with("note: the log is interrupted"), "{lines:?}");
    lines.retain(|line| !line.starts_with("note"));
    while lines.len() < 5 {
        lines.push(fixture.line().await);
    }
    assert_eq!(lines, ["a", "a", "b", "c", "d"]);
    fixture.log.0.lock().current.push((2000, "e"));
    assert_eq!(fixture.line().await, "e");
    let since: Vec<_> = fixture.log.0.lock().requests.iter().map(|request| request.since).collect();
    assert_eq!(since[0], None);
    assert_eq!(since.last(), Some(&Some(at(0))));
}

#[tokio::test(start_paused = true)]
async fn restart_prints_rest_of_ended_instance() {
    let log = FakeLog::default();
    log.0.lock().current = vec![(0, "a")];
    let mut fixture = Fixture::start(log);
    assert_eq!(fixture.line().await, "a");
    // The last line of the ended instance did not arrive before the restart, and the status of the pod is late.
    {
        let mut logs = fixture.log.0.lock();
        logs.previous = Some(vec![(0, "a"), (700, "last words")]);
        logs.current = vec![(5000, "a")];
    }
    assert_eq!(fixture.line().await, "last words");
    assert_eq!(fixture.line().await, "a");
    fixture.states.send(Some(Instance { restarts: 3, is_ended: true })).expect("a receiver");
    assert!(fixture.line().await.starts_with("note: 2 restarts since the last line"));
    {
        let mut logs = fixture.log.0.lock();
        logs.previous = Some(vec![(5000, "a")]);
        logs.current = vec![(9000, "b")];
    }
    fixture.states.send(Some(Instance { restarts: 4, is_ended: true })).expect("a receiver");
    assert_eq!(fixture.line().await, "b");
    drop(fixture.states);
    assert!(fixture.output.recv().await.is_none(), "the task ends with the pod");
}

#[tokio::test(start_paused = true)]
async fn limit_bounds_concurrent_responses() {
    let log = FakeLog::default();
    log.0.lock().current = vec![(0, "a")];
    let limit = StreamLimit::new(2);
    let (sender, mut output) = channel(1);
    let (states, receiver) = watch::channel(Some(Instance { restarts: 0, is_ended: true }));
    for number in 0..5 {
        let (source, output, limit) = (log.clone(), sender.clone(), limit.clone());
        let position = LogPosition::new(None);
        tokio::spawn(LogFollower { source, name: Arc::new(number), output, limit, position }.run(receiver.clone()));
    }
    let (mut lines, mut notes) = (Vec::new(), 0);
    while lines.len() < 5 {
        let (name, item) = output.recv().await.expect("the output is open");
        match item {
            LogItem::Line { .. } => lines.push(*name),
            LogItem::Note(note) => {
                assert!(note.starts_with("more than 2 logs are requested"), "{note}");
                notes += 1;
            }
        }
    }
    lines.sort_unstable();
    assert_eq!((lines, notes), (vec![0, 1, 2, 3, 4], 1));
    assert!(log.0.lock().max_open <= 2);
    drop(states);
}
