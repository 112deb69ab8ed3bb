//! Cost of a thread between a socket and the reader of its events. The library avoids this cost: in its executor,
//! sockets and informers share a thread.
//!
//! A writer sends event-sized records over TCP. One variant processes them on the socket's thread. The other
//! passes each chunk through a bounded channel to another thread.

use std::time::{Duration, Instant};

use steadfast_bench_controllers::{context_switches, processor_time};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use crate::BenchError;
use crate::median::median;

/// Size of a record in bytes. A record starts with the time of its write.
const RECORD_BYTES: usize = 2048;

/// Capacity of the channel in chunks.
const CHANNEL_CAPACITY_CHUNKS: usize = 16;

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

/// Figures of one run.
struct Figures {
    /// Processor time in seconds.
    cpu_seconds: f64,
    switches: i64,
    delays: Vec<Duration>,
}

/// Runs all measurements, and prints a table.
pub(crate) fn run(args: &HandoverArgs) -> Result<(), BenchError> {
    println!(
        "| pause | | CPU time per record | thread switches per record | delay, p50 | p99 |\n|---|---|---|---|---|---|"
    );
    for &pause in &args.pause_us {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..args.runs.max(1) {
            for (uses_second_thread, runs) in [false, true].into_iter().zip(&mut runs) {
                runs.push(measure(args.records, Duration::from_micros(pause), uses_second_thread)?);
            }
        }
        for (name, runs) in ["one thread", "a thread in between"].iter().zip(&runs) {
            let records = args.records as f64;
            let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
            println!(
                "| {pause} µs | {name} | {:.2} µs | {:.2} | {:.0} µs | {:.0} µs |",
                median(runs, |run| run.cpu_seconds * 1e6 / records),
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

/// Sends and processes all records. With `uses_second_thread`, the socket's thread passes the records to another
/// thread.
fn measure(records: usize, pause: Duration, uses_second_thread: bool) -> Result<Figures, BenchError> {
    let socket_runtime = runtime()?;
    let (address, listener) = socket_runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        Ok::<_, std::io::Error>((listener.local_addr()?, listener))
    })?;
    let started = Instant::now();
    let (cpu_before, switches_before) = (processor_time()?, context_switches()?);
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
    let mut record_reader =
        RecordReader { started, incomplete_record: Vec::new(), delays: Vec::with_capacity(records) };
    let finished_reader = if uses_second_thread {
        let (sender, mut chunks) = mpsc::channel::<Vec<u8>>(CHANNEL_CAPACITY_CHUNKS);
        let reader_thread = std::thread::spawn(move || -> Result<RecordReader, std::io::Error> {
            Builder::new_current_thread().build()?.block_on(async {
                while let Some(chunk) = chunks.recv().await {
                    record_reader.read_chunk(&chunk);
                }
            });
            Ok(record_reader)
        });
        socket_runtime.block_on(read(listener, async |chunk| drop(sender.send(chunk.to_vec()).await)))?;
        drop(sender);
        reader_thread.join().map_err(|_| "the processing thread panicked")??
    } else {
        socket_runtime.block_on(read(listener, async |chunk| record_reader.read_chunk(chunk)))?;
        record_reader
    };
    writer.join().map_err(|_| "the writing thread panicked")??;
    let (cpu_seconds, switches) = (processor_time()? - cpu_before, context_switches()? - switches_before);
    let mut delays = finished_reader.delays;
    delays.sort_unstable();
    if delays.len() != records {
        return Err(format!("{} of {records} records arrived", delays.len()).into());
    }
    Ok(Figures { cpu_seconds, switches, delays })
}

/// Reads the accepted connection to its end.
async fn read(listener: TcpListener, mut on_chunk: impl AsyncFnMut(&[u8])) -> Result<(), std::io::Error> {
    let (mut socket, _): (TcpStream, _) = listener.accept().await?;
    socket.flush().await?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match socket.read(&mut buffer).await? {
            0 => return Ok(()),
            length => on_chunk(&buffer[..length]).await,
        }
    }
}

/// Reader of the records.
struct RecordReader {
    started: Instant,
    incomplete_record: Vec<u8>,
    delays: Vec<Duration>,
}

impl RecordReader {
    fn read_chunk(&mut self, chunk: &[u8]) {
        self.incomplete_record.extend_from_slice(chunk);
        let complete_bytes = self.incomplete_record.len() / RECORD_BYTES * RECORD_BYTES;
        for record in self.incomplete_record[..complete_bytes].chunks_exact(RECORD_BYTES) {
            let mut sum = 0_u64;
            for _ in 0..PASSES_PER_RECORD {
                sum = std::hint::black_box(record).iter().fold(sum, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte));
            }
            std::hint::black_box(sum);
            let sent_nanos = record[..8].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            self.delays.push(self.started.elapsed().saturating_sub(Duration::from_nanos(sent_nanos)));
        }
        self.incomplete_record.drain(..complete_bytes);
    }
}
