//! Tests with a disk that fails, tears writes or has corrupted bytes. A read returns the written state, or no state and
//! a reason.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;
use steadfast_core::random::Random;

use super::database::{CheckpointDatabase, PartitionChange, Rows};
use super::disk::{Disk, Medium};
use super::partition_header::{PartitionHeader, Terms};
use super::written_states::WrittenStates;

/// In-memory disk that separates durable bytes from bytes cached by the system.
#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<Bytes>>);

#[derive(Debug, Default)]
struct Bytes {
    /// Contents as seen by a reader.
    seen: Vec<u8>,
    /// Contents at the last sync, and the changes since.
    synced: Vec<u8>,
    since: Vec<UnsyncedWrite>,
    /// Number of changes, first failing change, and number of failing changes.
    changes: u64,
    fails_at: Option<u64>,
    fails_for: u64,
    was_set_aside: bool,
}

#[derive(Clone, Debug)]
enum UnsyncedWrite {
    Length(u64),
    Write(u64, Vec<u8>),
}

impl UnsyncedWrite {
    fn carry_out(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Length(length) => bytes.resize(*length as usize, 0),
            Self::Write(offset, data) => {
                let (start, end) = (*offset as usize, *offset as usize + data.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[start..end].copy_from_slice(data);
            }
        }
    }
}

impl Fake {
    fn change(&self, change: Option<UnsyncedWrite>) -> io::Result<()> {
        let mut bytes = self.0.lock();
        bytes.changes += 1;
        let failing =
            bytes.fails_at.is_some_and(|at| (at..at.saturating_add(bytes.fails_for)).contains(&bytes.changes));
        if failing {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        if let Some(change) = change {
            change.carry_out(&mut bytes.seen);
            bytes.since.push(change);
        } else {
            bytes.synced = bytes.seen.clone();
            bytes.since.clear();
        }
        Ok(())
    }

    /// Returns the disk after a power failure: each unsynced change is applied, applied in part, or lost.
    fn after_a_crash(&self, random: &mut Random) -> Self {
        let bytes = self.0.lock();
        let mut left = bytes.synced.clone();
        for change in &bytes.since {
            match (random.below(3), change) {
                (0, _) => {}
                (1, UnsyncedWrite::Write(offset, data)) => {
                    let torn = random.below(data.len() as u64 + 1) as usize;
                    UnsyncedWrite::Write(*offset, data[..torn].to_vec()).carry_out(&mut left);
                }
                _ => change.carry_out(&mut left),
            }
        }
        Self::of(left)
    }

    fn of(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Bytes { seen: bytes.clone(), synced: bytes, ..Bytes::default() })))
    }

    fn failing(at: u64, times: u64) -> Self {
        Self(Arc::new(Mutex::new(Bytes { fails_at: Some(at), fails_for: times, ..Bytes::default() })))
    }

    fn changes(&self) -> u64 {
        self.0.lock().changes
    }
}

impl StorageBackend for Fake {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock();
        let stored = bytes.seen.get(offset as usize..).and_then(|from| from.get(..out.len()));
        out.copy_from_slice(stored.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.change(Some(UnsyncedWrite::Length(length)))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.change(None)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Some(UnsyncedWrite::Write(offset, data.to_vec())))
    }
}

impl Disk for Fake {
    fn open(&self) -> io::Result<Medium> {
        Ok(Medium(Box::new(self.clone())))
    }

    fn set_aside(&self) -> io::Result<()> {
        let mut bytes = self.0.lock();
        *bytes = Bytes { was_set_aside: true, ..Bytes::default() };
        Ok(())
    }
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const NAME: &str = "/api/v1/configmaps?";

fn terms() -> Terms {
    Terms { server: "https://here".to_owned(), form: "as it is".to_owned() }
}

fn head(version: usize, mark: u64) -> PartitionHeader {
    PartitionHeader {
        terms: terms(),
        cluster: Some("c".to_owned()),
        version: version.to_string().as_str().into(),
        mark,
    }
}

/// Returns the states of one run, after each change, starting empty.
fn states(seed: u64) -> Vec<State> {
    let mut random = Random::new(seed);
    let mut states = vec![State::new()];
    for _ in 0..6 {
        let mut state = states.last().cloned().unwrap_or_default();
        for _ in 0..=random.below(30) {
            let key = format!("shop\0web-{}", random.below(60)).into_bytes();
            if random.below(4) == 0 {
                state.remove(&key);
            } else {
                let length = if random.below(20) == 0 { 9000 } else { random.below(300) };
                state.insert(key, (0..length).map(|_| random.below(256) as u8).collect());
            }
        }
        states.push(state);
    }
    states
}

/// One run of the process: its file and its knowledge of the stored state.
struct Run {
    database: CheckpointDatabase,
    generations: WrittenStates<usize>,
}

impl Run {
    fn begin(disk: &Fake) -> io::Result<Self> {
        Ok(Self { database: CheckpointDatabase::open(Box::new(disk.clone()))?, generations: WrittenStates::new(None) })
    }

    /// Writes the difference between the stored state and the state at `index`.
    fn write(&mut self, states: &[State], index: usize) -> bool {
        let Self { database, generations } = self;
        let (discard_rows, mark) = (generations.is_unusable(), generations.start_write(index));
        let edit = |found, rows: &mut dyn Rows| {
            let (old, new) = (&states[generations.begin(found)?.unwrap_or(0)], &states[index]);
            old.keys().filter(|key| !new.contains_key(*key)).try_for_each(|key| rows.remove(key))?;
            new.iter().filter(|(key, row)| old.get(*key) != Some(row)).try_for_each(|(key, row)| rows.put(key, row))
        };
        let head = Some(head(index, mark));
        let is_written =
            database.write(|| vec![PartitionChange { name: NAME, discard_rows, head, edit: Box::new(edit) }]).is_ok();
        generations.finish(is_written);
        is_written
    }
}

/// Reads a disk. Returns the index in its header and its state, or the reason that the state is missing.
fn read(disk: &Fake) -> Result<(usize, State), Option<Arc<str>>> {
    let database =
        CheckpointDatabase::open(Box::new(disk.clone())).map_err(|error| Some(Arc::from(error.to_string())))?;
    let mut state = State::new();
    let head = database.read(NAME, &terms(), |key, row| state.insert(key.to_vec(), row.to_vec()).is_none())?;
    assert_eq!(head.cluster.as_deref(), Some("c"));
    Ok((head.version.as_str().parse().expect("ours"), state))
}

/// Returns the number of disk changes of a whole run.
fn changes_of_a_run(states: &[State]) -> u64 {
    let disk = Fake::default();
    let mut run = Run::begin(&disk).expect("the database opens");
    assert!((1..states.len()).all(|index| run.write(states, index)));
    assert_eq!(read(&disk).expect("a checkpoint"), (states.len() - 1, states[states.len() - 1].clone()));
    disk.changes()
}

#[test]
fn crash_leaves_last_or_pending_state() {
    let states = states(1);
    let all = changes_of_a_run(&states);
    assert!(all > 50, "{all}");
    let mut was_ahead = 0;
    for at in 1..=all {
        // All changes fail from here on, then the power fails.
        let disk = Fake::failing(at, u64::MAX);
        let mut written = 0;
        if let Ok(mut run) = Run::begin(&disk) {
            written = (1..states.len()).take_while(|index| run.write(&states, *index)).count();
            // Later actions of this run cannot reach the disk.
            std::mem::forget(run);
        }
        for seed in 0..3 {
            match read(&disk.after_a_crash(&mut Random::new(seed))) {
                Ok((index, state)) => {
                    assert!(
                        index == written || index == written + 1,
                        "change {at}: {index} is there, {written} was written"
                    );
                    assert_eq!(state, states[index], "change {at}: state {index} is whole");
                    was_ahead += u32::from(index > written);
                }
                Err(reason) => assert_eq!(written, 0, "change {at}: the written state is lost: {reason:?}"),
            }
        }
    }
    println!("{all} changes of the disk; {was_ahead} times the state that was being written was there");
}

#[test]
fn full_disk_loses_only_unwritten_states() {
    let states = states(2);
    let all = changes_of_a_run(&states);
    for at in 1..=all {
        let disk = Fake::failing(at, 5);
        let Ok(mut run) = Run::begin(&disk) else { continue };
        let mut kept = 0;
        for index in 1..states.len() {
            // Retries like the writer until the disk accepts the transaction.
            let tries = (0..20).take_while(|_| !run.write(&states, index)).count();
            assert!(tries < 20, "change {at}: state {index} is never written");
            kept = index;
        }
        drop(run);
        disk.0.lock().fails_at = None;
        assert_eq!(read(&disk).expect("a checkpoint"), (kept, states[kept].clone()), "change {at}");
    }
}

/// Regression test. A transaction that failed at its final sync was on the disk nevertheless. Rows that this
/// transaction added, and that were absent from the next state, stayed in the file.
#[test]
fn next_write_removes_rows_of_failed_transaction() {
    let states = states(6);
    let all = changes_of_a_run(&states);
    let mut failures = 0;
    for (at, times) in (1..=all).flat_map(|at| [(at, 1), (at, 3)]) {
        let disk = Fake::failing(at, times);
        let Ok(mut run) = Run::begin(&disk) else { continue };
        for index in 1..states.len() - 1 {
            // The cache continues to change, even if a write failed.
            failures += u32::from(!run.write(&states, index));
        }
        let last = states.len() - 1;
        let tries = (0..20).take_while(|_| !run.write(&states, last)).count();
        assert!(tries < 20, "change {at}, {times} times: the last state is never written");
        drop(run);
        disk.0.lock().fails_at = None;
        assert_eq!(read(&disk).expect("a checkpoint"), (last, states[last].clone()), "change {at}, {times} times");
    }
    assert!(failures > 50, "{failures}");
}

#[test]
fn corrupted_bytes_never_yield_wrong_data() {
    let states = states(3);
    let disk = Fake::default();
    let mut run = Run::begin(&disk).expect("the database opens");
    assert!((1..states.len()).all(|index| run.write(&states, index)));
    drop(run);
    let whole = disk.0.lock().seen.clone();
    let (mut fresh, mut random) = (0, Random::new(7));
    for _ in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        if random.below(4) == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        match read(&Fake::of(bytes)) {
            Ok((index, state)) => assert_eq!(state, states[index], "a complete state that was written"),
            Err(reason) => {
                assert!(reason.is_some(), "a missing state has a reason");
                fresh += 1;
            }
        }
    }
    assert!(fresh > 20, "damage is detected too seldom: {fresh} of 200");
}

#[test]
fn invalid_file_is_moved_aside() {
    let disk = Fake::of(b"dear diary, ".repeat(2000));
    let mut run = Run::begin(&disk).expect("a new checkpoint");
    assert!(disk.0.lock().was_set_aside && run.database.unreadable.is_some());
    let states = states(4);
    assert!(run.write(&states, 1));
    drop(run);
    assert_eq!(read(&disk).expect("a checkpoint"), (1, states[1].clone()));
}

#[test]
fn foreign_partition_is_rejected_with_reason() {
    let disk = Fake::default();
    let mut run = Run::begin(&disk).expect("the database opens");
    assert!(run.write(&states(5), 1));
    let database = &run.database;
    let read =
        |terms: &Terms| database.read(NAME, terms, |_, _| true).map(|_| ()).unwrap_err().expect("a reason").to_string();
    let stored = Terms { server: "https://there".to_owned(), ..terms() };
    assert_eq!(read(&stored), "the checkpoint belongs to another server, https://here");
    let other = Terms { form: "as it was".to_owned(), ..terms() };
    assert_eq!(read(&other), "the checkpoint contains other parts of the objects than the program now requests");
    assert_eq!(database.read("/api/v1/pods?", &terms(), |_, _| true).map(|_| ()), Err(None), "there never was one");
}
