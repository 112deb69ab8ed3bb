//! Cost of a thread switch between a socket and the task that processes its events. The library avoids this cost: in
//! its executor, sockets and informers share a thread.
//!
//! A writer sends event-sized records over TCP. The variants process the records
//!
//! - on the socket's thread, in the task that reads the socket;
//! - on the socket's thread, in another task, which receives each chunk through a bounded channel: the library's executor;
//! - on another thread, which receives each chunk through a bounded channel.

use std::time::{Duration, Instant};

use steadfast_bench_controllers::{context_switches, processor_time};
use steadfast_executor::{BlockingPool, IoExecutor, TokioReactor};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::BenchError;
use crate::median::median;

/// Size of a record in bytes. A record starts with the time of its write.
const RECORD_BYTES: usize = 2048;

/// Capacity of the channel in chunks.
const CHANNEL_CAPACITY: usize = 16;

/// Passes over a record, which cost about as much as the processing of an event.
const PASSES_PER_RECORD: usize = 4;

/// Arguments of the measurement.
#[derive(clap::Args)]
pub(crate) struct HandoverArgs {
    /// Records per run
    #[arg(long, default_value_t = 5_000)]
    records: usize,
    /// Time between two records in microseconds, one row each; 0 writes without a pause
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 0])]
    pause_us: Vec<u64>,
    /// Runs of each variant, in turn; the table shows medians
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Thread and task that process the records.
#[derive(Clone, Copy)]
enum Variant {
    OneTask,
    Executor,
    SecondThread,
}

impl Variant {
    const ALL: [Self; 3] = [Self::OneTask, Self::Executor, Self::SecondThread];

    fn name(self) -> &'static str {
        match self {
            Self::OneTask => "one task",
            Self::Executor => "two tasks of the executor's thread",
            Self::SecondThread => "a second thread",
        }
    }
}

/// Figures of one run.
struct Figures {
    /// Processor time in seconds.
    processor: f64,
    switches: i64,
    delays: Vec<Duration>,
}

/// Runs all measurements, and prints a table.
pub(crate) fn run(args: &HandoverArgs) -> Result<(), BenchError> {
    println!(
        "| pause | | CPU time per record | thread switches per record | delay, p50 | p99 |\n|---|---|---|---|---|---|"
    );
    for &pause in &args.pause_us {
        let mut runs = Variant::ALL.map(|_| Vec::new());
        for _ in 0..args.runs.max(1) {
            for (variant, runs) in Variant::ALL.into_iter().zip(&mut runs) {
                runs.push(measure(args.records, Duration::from_micros(pause), variant)?);
            }
        }
        for (name, runs) in Variant::ALL.map(Variant::name).iter().zip(&runs) {
            let records = args.records as f64;
            let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
            println!(
                "| {pause} µs | {name} | {:.2} µs | {:.2} | {:.0} µs | {:.0} µs |",
                median(runs, |run| run.processor * 1e6 / records),
                median(runs, |run| run.switches as f64 / records),
                median(runs, |run| micros(run.delays[run.delays.len() / 2])),
                median(runs, |run| micros(run.delays[run.delays.len() * 99 / 100])),
            );
        }
    }
    Ok(())
}

fn runtime() -> Result<Runtime, BenchError> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Sends and processes all records.
fn measure(records: usize, pause: Duration, variant: Variant) -> Result<Figures, BenchError> {
    let reader = runtime()?;
    let (address, listener) = reader.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Ok::<_, std::io::Error>((listener.local_addr()?, listener))
    })?;
    let started = Instant::now();
    let (time_before, switches_before) = (processor_time()?, context_switches()?);
    let writer = std::thread::spawn(move || -> Result<(), std::io::Error> {
        use std::io::Write as _;
        let mut socket = std::net::TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut record = vec![b'x'; RECORD_BYTES];
        for number in 0..records {
            // A thread that slept for longer than the pause catches up without pauses.
            let due = started + pause * u32::try_from(number).unwrap_or(u32::MAX);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            record[..8].copy_from_slice(&(started.elapsed().as_nanos() as u64).to_le_bytes());
            socket.write_all(&record)?;
        }
        socket.shutdown(std::net::Shutdown::Write)
    });
    let mut processor = Processor { started, rest: Vec::new(), delays: Vec::with_capacity(records) };
    let processed = match variant {
        Variant::OneTask => {
            reader.block_on(read(listener, &mut processor))?;
            processor
        }
        Variant::Executor => {
            // The listener is registered with the runtime of `reader`. The executor's runtime needs its own registration.
            let listener = listener.into_std()?;
            let executor = IoExecutor::new(TokioReactor::new()?, BlockingPool::named("blocking"))?;
            let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(CHANNEL_CAPACITY);
            let (done, processed) = std::sync::mpsc::channel();
            let reading = executor.handle().runtime().spawn(async move {
                // The listener is created in a task of the executor's runtime, so that it belongs to that runtime.
                forward(TcpListener::from_std(listener)?, sender).await
            });
            executor.spawn(Box::pin(async move {
                while let Some(chunk) = chunks.recv().await {
                    processor.take(&chunk);
                }
                // The receiver waits for this value.
                drop(done.send(processor));
            }));
            let processor = processed.recv()?;
            reader.block_on(reading)??;
            processor
        }
        Variant::SecondThread => {
            let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(CHANNEL_CAPACITY);
            let processing = std::thread::spawn(move || -> Result<Processor, std::io::Error> {
                Builder::new_current_thread().build()?.block_on(async {
                    while let Some(chunk) = chunks.recv().await {
                        processor.take(&chunk);
                    }
                });
                Ok(processor)
            });
            reader.block_on(forward(listener, sender))?;
            processing.join().map_err(|_| "the processing thread panicked")??
        }
    };
    writer.join().map_err(|_| "the writing thread panicked")??;
    let (processor, switches) = (processor_time()? - time_before, context_switches()? - switches_before);
    let mut delays = processed.delays;
    delays.sort_unstable();
    if delays.len() != records {
        return Err(format!("{} of {records} records arrived", delays.len()).into());
    }
    Ok(Figures { processor, switches, delays })
}

/// Reads the accepted connection to its end, and processes each chunk.
async fn read(listener: TcpListener, processor: &mut Processor) -> Result<(), std::io::Error> {
    let (mut socket, mut buffer) = accept(listener).await?;
    loop {
        match socket.read(&mut buffer).await? {
            0 => return Ok(()),
            length => processor.take(&buffer[..length]),
        }
    }
}

/// Reads the accepted connection to its end, and sends each chunk to the reader of the records.
async fn forward(listener: TcpListener, chunks: mpsc::Sender<Vec<u8>>) -> Result<(), std::io::Error> {
    let (mut socket, mut buffer) = accept(listener).await?;
    loop {
        match socket.read(&mut buffer).await? {
            0 => return Ok(()),
            // The receiver reads to the end.
            length => drop(chunks.send(buffer[..length].to_vec()).await),
        }
    }
}

/// Returns the first connection, and a buffer for its chunks.
async fn accept(listener: TcpListener) -> Result<(TcpStream, Vec<u8>), std::io::Error> {
    let (socket, _) = listener.accept().await?;
    Ok((socket, vec![0; 64 * 1024]))
}

/// Reader of the records.
struct Processor {
    started: Instant,
    rest: Vec<u8>,
    delays: Vec<Duration>,
}

impl Processor {
    fn take(&mut self, chunk: &[u8]) {
        self.rest.extend_from_slice(chunk);
        let complete_bytes = self.rest.len() / RECORD_BYTES * RECORD_BYTES;
        for record in self.rest[..complete_bytes].chunks_exact(RECORD_BYTES) {
            let mut sum = 0_u64;
            for _ in 0..PASSES_PER_RECORD {
                sum = std::hint::black_box(record).iter().fold(sum, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
            }
            std::hint::black_box(sum);
            let sent = record[..8].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            self.delays.push(self.started.elapsed().saturating_sub(Duration::from_nanos(sent)));
        }
        self.rest.drain(..complete_bytes);
    }
}
