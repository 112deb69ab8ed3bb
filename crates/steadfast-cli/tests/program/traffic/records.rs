//! Continuous reads of a DNS zone and of etcd, and the checks of their contents.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::removals::ContentLossPeriod;

/// Interval between two reads of one system.
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// Limit of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Time from the readiness of a pod until its records must exist.
const ADD_LIMIT: Duration = Duration::from_secs(2);

/// Time from the end of a pod's container until its records must not exist.
const REMOVE_LIMIT: Duration = Duration::from_secs(1);

/// Maximum time from the start of the program until all records exist, on a machine without other load.
const NORMAL_START: Duration = Duration::from_secs(1);

/// Maximum factor for all limits on a machine with other load.
const MAX_SLOWNESS: f64 = 4.0;

/// Returns the factor for all limits on this machine: 1 without other load, and more if the first records take longer
/// than normal.
pub(crate) fn slowness(start: Duration) -> f64 {
    (start.as_secs_f64() / NORMAL_START.as_secs_f64()).clamp(1.0, MAX_SLOWNESS)
}

/// Addresses in one system.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) system: &'static str,
    pub(crate) started: Instant,
    pub(crate) finished: Instant,
    pub(crate) addresses: BTreeSet<IpAddr>,
}

/// State of a pod, from an instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodState {
    /// The address must be present.
    Ready,
    /// The address may be present: the pod is not ready, or its container will stop soon.
    Leaving,
    /// The address must be absent.
    Dead,
}

/// All changes of pods, by the address of the pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline(BTreeMap<IpAddr, Vec<(Instant, PodState)>>);

impl Timeline {
    /// Records that a pod enters a state now. Call this after a change to `Ready` or `Dead`, and before a change to
    /// `Leaving`.
    pub(crate) fn enter(&mut self, address: IpAddr, state: PodState) {
        self.0.entry(address).or_default().push((Instant::now(), state));
    }

    /// Addresses that were in `state` during all of the period.
    fn throughout(&self, state: PodState, from: Instant, to: Instant) -> impl Iterator<Item = IpAddr> {
        let is_in_state = move |changes: &[(Instant, PodState)]| {
            let was_in_state = changes
                .iter()
                .rev()
                .find(|(instant, _)| *instant <= from)
                .is_some_and(|(_, entered)| *entered == state);
            was_in_state
                && changes.iter().all(|(instant, entered)| *entered == state || *instant <= from || *instant > to)
        };
        self.0.iter().filter(move |(_, changes)| is_in_state(changes)).map(|(address, _)| *address)
    }
}

/// Returns an error if a sample lacks an address of a ready pod outside of `losses`, or contains an address without a
/// living pod. `slowness` is the factor for both limits.
pub(crate) fn check_samples(
    origin: Instant,
    timeline: &Timeline,
    losses: &[ContentLossPeriod],
    samples: &[Sample],
    slowness: f64,
) -> Result<(), String> {
    let mut fault_texts = Vec::new();
    for sample in samples {
        let Sample { system, started, finished, addresses } = sample;
        let is_lost = losses.iter().any(|loss| loss.covers(system, *started, *finished));
        let since_limit = |limit: Duration| started.checked_sub(limit.mul_f64(slowness)).unwrap_or(*started);
        let mut add_fault = |description: &str, address: IpAddr| {
            fault_texts
                .push(format!("{:.3?}: {system} {description} {address}, and has {addresses:?}", *started - origin));
        };
        for address in timeline.throughout(PodState::Ready, since_limit(ADD_LIMIT), *finished) {
            if !is_lost && !addresses.contains(&address) {
                add_fault("lacks the ready pod", address);
            }
        }
        for address in timeline.throughout(PodState::Dead, since_limit(REMOVE_LIMIT), *finished) {
            if addresses.contains(&address) {
                add_fault("has the dead pod", address);
            }
        }
        for address in addresses.iter().filter(|address| !timeline.0.contains_key(*address)) {
            add_fault("has the foreign address", *address);
        }
    }
    match (fault_texts.first(), fault_texts.last()) {
        (Some(first), Some(last)) => Err(format!("{} faults, from\n  {first}\nto\n  {last}", fault_texts.len())),
        _ => Ok(()),
    }
}

/// Reads one system; `None` without a response.
pub(crate) type Reader = Box<dyn Fn() -> Option<BTreeSet<IpAddr>> + Send>;

/// Threads that read systems, until `finish` is called or this value is dropped.
#[derive(Debug)]
pub(crate) struct Readers {
    stop: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<Sample>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(readers: Vec<(&'static str, Reader)>) -> Self {
        let (stop, samples) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Sample>>>::default());
        let threads = readers.into_iter().map(|(system, read)| {
            let (stop, samples) = (stop.clone(), samples.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    if let Some(addresses) = read() {
                        let sample = Sample { system, started, finished: Instant::now(), addresses };
                        samples.lock().push(sample);
                    }
                    std::thread::sleep(READ_INTERVAL);
                }
            })
        });
        Self { threads: threads.collect(), stop, samples }
    }

    pub(crate) fn finish(mut self) -> Vec<Sample> {
        self.stop_threads();
        std::mem::take(&mut self.samples.lock())
    }

    fn stop_threads(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.stop_threads();
    }
}

/// Asks the DNS server on `port` for the addresses of `name`; `None` unless it responds with NOERROR or NXDOMAIN.
pub(crate) fn resolve(port: u16, name: &str) -> Option<BTreeSet<IpAddr>> {
    let mut query = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).ok()?);
        query.extend_from_slice(label.as_bytes());
    }
    // The root label, type A, class IN.
    query.extend_from_slice(&[0, 0, 1, 0, 1]);
    let question_end = query.len();
    // TCP, because thirty addresses do not fit into a datagram of 512 bytes.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(READ_TIMEOUT)).ok()?;
    stream.write_all(&u16::try_from(query.len()).ok()?.to_be_bytes()).ok()?;
    stream.write_all(&query).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut response = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut response).ok()?;
    matches!(response.get(3)? & 0x0f, 0 | 3).then_some(())?;
    let count = u16::from_be_bytes([*response.get(6)?, *response.get(7)?]);
    let (mut offset, mut addresses) = (question_end, BTreeSet::new());
    for _ in 0..count {
        // Compression pointer (RFC 1035, section 4.1.4): all tested servers refer to the question for the record name.
        matches!(response.get(offset)?, 0xc0..).then_some(())?;
        let kind = u16::from_be_bytes([*response.get(offset + 2)?, *response.get(offset + 3)?]);
        let length = usize::from(u16::from_be_bytes([*response.get(offset + 10)?, *response.get(offset + 11)?]));
        let data = response.get(offset + 12..offset + 12 + length)?;
        if let (1, Ok(octets)) = (kind, <[u8; 4]>::try_from(data)) {
            addresses.insert(Ipv4Addr::from(octets).into());
        }
        offset += 12 + length;
    }
    Some(addresses)
}

mod tests {
    use super::*;

    fn address(last_byte: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, last_byte).into()
    }

    fn timeline_of(states: &[(u8, u64, PodState)], started: Instant) -> Timeline {
        let mut timeline = Timeline::default();
        for (last_byte, second, state) in states {
            let instant = started + Duration::from_secs(*second);
            timeline.0.entry(address(*last_byte)).or_default().push((instant, *state));
        }
        timeline
    }

    fn sample(origin: Instant, second: u64, last_bytes: &[u8]) -> Sample {
        let started = origin + Duration::from_secs(second);
        Sample {
            system: "etcd",
            started,
            finished: started,
            addresses: last_bytes.iter().map(|last_byte| address(*last_byte)).collect(),
        }
    }

    #[test]
    fn missing_ready_pod_is_reported() {
        let started = Instant::now();
        let timeline =
            timeline_of(&[(1, 0, PodState::Ready), (2, 0, PodState::Ready), (2, 9, PodState::Leaving)], started);
        let samples = [sample(started, 1, &[]), sample(started, 5, &[1, 2]), sample(started, 10, &[1])];
        check_samples(started, &timeline, &[], &samples, 1.0).expect("all in time");
        let samples = [sample(started, 5, &[1])];
        let fault = check_samples(started, &timeline, &[], &samples, 1.0).expect_err("2 was ready");
        assert!(fault.contains("etcd lacks the ready pod 127.0.0.2"), "{fault}");
        let loss = ContentLossPeriod { system: "etcd", start: started, end: started + Duration::from_secs(6) };
        check_samples(started, &timeline, &[loss], &samples, 1.0).expect("the loss is allowed");
        check_samples(started, &timeline, &[ContentLossPeriod { system: "DNS", ..loss }], &samples, 1.0)
            .expect_err("another system");
    }

    #[test]
    fn dead_and_foreign_addresses_are_reported() {
        let started = Instant::now();
        let timeline =
            timeline_of(&[(1, 0, PodState::Ready), (1, 3, PodState::Leaving), (1, 4, PodState::Dead)], started);
        let loss = ContentLossPeriod { system: "etcd", start: started, end: started + Duration::from_secs(60) };
        check_samples(started, &timeline, &[loss], &[sample(started, 4, &[1])], 1.0).expect("within the limit");
        let fault =
            check_samples(started, &timeline, &[loss], &[sample(started, 8, &[1])], 1.0).expect_err("dead for 4 s");
        assert!(fault.contains("has the dead pod 127.0.0.1"), "{fault}");
        let fault =
            check_samples(started, &timeline, &[loss], &[sample(started, 2, &[1, 7])], 1.0).expect_err("not a pod");
        assert!(fault.contains("has the foreign address 127.0.0.7"), "{fault}");
    }

    #[test]
    fn limits_grow_with_measured_slowness() {
        let started = Instant::now();
        let timeline = timeline_of(&[(1, 0, PodState::Ready)], started);
        let samples = [sample(started, 3, &[])];
        check_samples(started, &timeline, &[], &samples, 1.0).expect_err("missing after three seconds");
        check_samples(started, &timeline, &[], &samples, 2.0).expect("within the limit of a slow machine");
        let factors = [100, 1_000, 2_500, 60_000].map(|millis| slowness(Duration::from_millis(millis)));
        assert!(factors.iter().zip([1.0, 1.0, 2.5, 4.0]).all(|(factor, of)| (factor - of).abs() < 1e-9), "{factors:?}");
    }
}
