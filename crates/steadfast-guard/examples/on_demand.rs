//! Processor time and memory of a cache of pods: decoded, or packed and decoded on demand.
//!
//! ```sh
//! cargo run --release -p steadfast-guard --example on_demand -- DATA/pods.protobuf 20000 on-demand random
//! ```
//!
//! The arguments are a file of the bench's generator, the number of objects, `decoded` or `on-demand`, and one of
//! `events`, `all`, `hot` and `random`. Each run is one process, because memory that one pattern leaves to the allocator
//! would change the next. The program has one thread, and does the work of the driver, a handler and a reader in turn,
//! without a socket and without framing. It prints one line of names and numbers.

#[path = "../../steadfast/src/decoded_forms.rs"]
#[allow(dead_code, reason = "the informer uses the other methods")]
mod decoded_forms;

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use decoded_forms::{DecodeReports, DecodedForms};
use k8s_openapi::api::core::v1::Pod;
use steadfast_core::decode::{self, Cacheable, DecodeOptions, Decoder, Encoding, RawObject};
use steadfast_core::event::{Event, Path as ChangePath, Rules};
use steadfast_core::frame::Item;
use steadfast_core::protobuf::MessageId;
use steadfast_core::store::Store;
use steadfast_core::{Instant, Object, ObjectKey, WithSize};

type Failure = Box<dyn Error>;

/// Minimum size of objects that are decoded on demand, in bytes.
const MIN_DECODED_BYTES: usize = 4096;

/// Virtual time between two steps, in which all sweeps of unused objects run.
const IDLE: Duration = Duration::from_secs(20);

/// Number of objects of which one belongs to the hot ones.
const HOT_ONE_IN: usize = 100;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, objects, mode, pattern] = &arguments[..] else {
        return Err("usage: FILE OBJECTS decoded|on-demand events|all|hot|random".into());
    };
    let mut cache = Cache::new(file.into(), objects.parse()?, mode == "on-demand");
    let begun = processor_time()?;
    cache.sync()?;
    print!("sync_us={:.2} ", (processor_time()? - begun) / cache.objects as f64 / 1e3);
    cache.idle(3);
    cache.print_memory("synced")?;
    let objects = cache.objects;
    match pattern.as_str() {
        "events" => {
            for turn in 1..=2 {
                let begun = processor_time()?;
                cache.events(turn)?;
                print!("event{turn}_us={:.2} ", (processor_time()? - begun) / objects as f64 / 1e3);
            }
            cache.idle(3);
            cache.print_memory("after")?;
        }
        "all" => {
            for pass in 1..=5 {
                let begun = processor_time()?;
                cache.read_all();
                print!("pass{pass}_ns={:.0} ", (processor_time()? - begun) / objects as f64);
                cache.print_memory(&format!("pass{pass}"))?;
            }
            cache.idle(12);
            cache.print_memory("idle")?;
        }
        "hot" | "random" => {
            let candidates: Vec<usize> =
                if pattern == "hot" { (0..objects).step_by(HOT_ONE_IN).collect() } else { (0..objects).collect() };
            for step in 1..=5 {
                // As many first reads as there are candidates, then ten times as many.
                let reads = candidates.len() * if step == 1 { 1 } else { 10 };
                let begun = processor_time()?;
                cache.read_random(&candidates, reads, step);
                print!("step{step}_ns={:.0} ", (processor_time()? - begun) / reads as f64);
                cache.print_memory(&format!("step{step}"))?;
            }
            cache.idle(12);
            cache.print_memory("idle")?;
        }
        other => return Err(format!("unknown pattern: {other}").into()),
    }
    println!();
    Ok(())
}

struct Cache {
    file: PathBuf,
    objects: usize,
    store: Store<Pod>,
    decoder: Decoder,
    reports: Arc<DecodeReports>,
    is_told: Arc<AtomicBool>,
    forms: DecodedForms,
    keys: Vec<ObjectKey>,
    begun: std::time::Instant,
    /// Virtual time in addition to the clock.
    skipped: Duration,
    read: usize,
}

impl Cache {
    fn new(file: PathBuf, objects: usize, on_demand: bool) -> Self {
        let (reports, is_told) = (Arc::<DecodeReports>::default(), Arc::new(AtomicBool::new(false)));
        let (added, told) = (reports.clone(), is_told.clone());
        let report = move |key: &ObjectKey, bytes| {
            if added.add(key, bytes) {
                told.store(true, Ordering::Relaxed);
            }
        };
        let decoder = Decoder::new(DecodeOptions::default());
        Self {
            file,
            objects,
            store: Store::new(Rules::default()),
            decoder: if on_demand { decoder.on_demand(MIN_DECODED_BYTES, Arc::new(report)) } else { decoder },
            reports,
            is_told,
            forms: DecodedForms::default(),
            keys: Vec::new(),
            begun: std::time::Instant::now(),
            skipped: Duration::ZERO,
            read: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_zero(self.begun.elapsed() + self.skipped)
    }

    fn decode(&mut self, raw: &RawObject) -> Result<WithSize<Pod>, Failure> {
        let (pod, beyond) = self.decoder.decode_with_size::<Pod>(raw)?;
        let pod = WithSize::new(pod, beyond);
        let on_demand = Pod::on_demand(raw, pod.bytes, &mut self.decoder);
        Ok(pod.cached_as(on_demand))
    }

    /// Lists all objects, and calls a handler that reads one field of each.
    fn sync(&mut self) -> Result<(), Failure> {
        let mut staging = self.store.begin_relist();
        let mut records = Records::open(&self.file)?;
        for _ in 0..self.objects {
            let raw = records.next(None)?;
            let pod = self.decode(&raw)?;
            self.keys.push(raw.identity.key.clone());
            staging.put(raw.identity, Ok(pod));
        }
        let mut events = Vec::new();
        let listed = ChangePath::Listed { initial: true };
        let committed =
            self.store.commit(staging, Some("1".into()), &listed, false, |change| events.push(change.event));
        committed.map_err(|_| "an older list")?;
        self.store.publish();
        for event in events {
            self.handle(event);
        }
        Ok(())
    }

    /// Changes each object once, and calls the handler.
    fn events(&mut self, turn: usize) -> Result<(), Failure> {
        let mut records = Records::open(&self.file)?;
        for number in 0..self.objects {
            let raw = records.next(Some(2_000_000_000 + turn * self.objects + number))?;
            let pod = self.decode(&raw)?;
            let (now, mut events) = (self.now(), Vec::new());
            self.forms.event(&raw.identity.key, &pod, now);
            let watched = ChangePath::Watched { deletion: None };
            self.store.apply(raw.identity, Ok(pod), &watched, |change| events.push(change.event));
            self.store.publish();
            if self.forms.is_full() {
                self.sweep();
            }
            for event in events {
                self.handle(event);
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event<Pod>) {
        let event = event.private();
        assert!(has_node(event.object()));
        drop(event);
        self.after_read();
    }

    fn read_all(&mut self) {
        let all: Vec<Object<Pod>> = self.store.reader().snapshot().decodable().cloned().collect();
        for object in &all {
            assert!(has_node(object));
            self.after_read();
        }
    }

    fn read_random(&mut self, candidates: &[usize], reads: usize, seed: u64) {
        let reader = self.store.reader();
        // Knuth's MMIX generator.
        let mut state = seed;
        for _ in 0..reads {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = &self.keys[candidates[(state >> 33) as usize % candidates.len()]];
            let object = reader.get_by_key(key).found().expect("the object exists");
            assert!(has_node(&object));
            drop(object);
            self.after_read();
        }
    }

    /// Does the work of the driver.
    fn after_read(&mut self) {
        self.read += 1;
        if self.is_told.swap(false, Ordering::Relaxed) {
            let now = self.now();
            if self.forms.reported(&self.reports, now) {
                self.sweep();
            }
        } else if self.read.is_multiple_of(1024) {
            self.sweep_if_due();
        }
    }

    fn sweep_if_due(&mut self) {
        if self.forms.next().is_some_and(|next| next <= self.now()) {
            self.sweep();
        }
    }

    fn sweep(&mut self) {
        let now = self.now();
        if self.forms.sweep(&self.reports, &mut self.store, now) {
            self.store.publish();
        }
    }

    fn idle(&mut self, turns: usize) {
        self.after_read();
        for _ in 0..turns {
            self.skipped += IDLE;
            self.sweep_if_due();
        }
    }

    fn print_memory(&self, when: &str) -> Result<(), Failure> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        for (name, field) in [("resident", "VmRSS:"), ("peak", "VmHWM:")] {
            let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no memory in the status")?;
            let kilobytes: f64 = line.split_whitespace().next().ok_or("no number")?.parse()?;
            print!("{when}_{name}_kb={:.2} ", kilobytes * 1.024 / self.objects as f64);
        }
        Ok(())
    }
}

fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// Records of a file of the bench's generator.
struct Records {
    file: BufReader<File>,
    encoding: Encoding,
    message: MessageId,
}

impl Records {
    fn open(path: &Path) -> Result<Self, Failure> {
        let encoding = if path.extension().is_some_and(|extension| extension == "json") {
            Encoding::Json
        } else {
            Encoding::Protobuf
        };
        let message = MessageId::of_kind("v1", "Pod").ok_or("an unknown kind")?;
        Ok(Self { file: BufReader::new(File::open(path)?), encoding, message })
    }

    /// Returns the next object, with another version if it is given.
    fn next(&mut self, version: Option<usize>) -> Result<RawObject, Failure> {
        let mut header = [0; 12];
        self.file.read_exact(&mut header)?;
        let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, at) = (number(0) as usize, number(4) as usize);
        let mut text = vec![0; length];
        self.file.read_exact(&mut text)?;
        if let Some(version) = version {
            text[at..at + 10].copy_from_slice(format!("{version:010}").as_bytes());
        }
        let item = match self.encoding {
            Encoding::Json => Item::from(Bytes::from(text)),
            Encoding::Protobuf => Item::of_message(text.into(), self.message),
        };
        decode::list_item(self.encoding, &item, None).map_err(|_| "an object without an identity".into())
    }
}

/// Returns the processor time of this thread in nanoseconds.
fn processor_time() -> Result<f64, Failure> {
    // The kernel updates the figure when it schedules another thread.
    std::thread::sleep(Duration::from_micros(1));
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("no time")?.parse()?)
}
