//! State of mirrors that survives restarts, in a file: the origins of entries, and the state of the guard.

mod journal;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::guard::{ApprovalRequest, Guard, UnknownApproval};
use crate::mirror_record::{EntryRecord, MirrorRecord, RecordedHolders};
use crate::origin::Origin;
use journal::{Journal, JournalLine};

/// Memory of several mirrors, each under its name. Clones share one memory.
#[derive(Clone, Debug)]
pub struct MirrorMemory(Arc<MemoryState>);

#[derive(Debug)]
struct MemoryState {
    /// Locked before `records`, so that lines reach the file in the order of the changes. `None` keeps the memory in
    /// this process only.
    journal: Mutex<Option<Journal>>,
    /// ID that distinguishes this process, including its later runs, from other processes with the same mark.
    instance: String,
    /// Each mirror has its own lock, so that a long plan of one mirror delays no other mirror. No lock of this map or of
    /// a mirror is held during I/O: mirrors wait for them on the threads of the runtime.
    records: Mutex<BTreeMap<String, Arc<Mutex<StoredMirror>>>>,
}

#[derive(Debug, Default)]
struct StoredMirror {
    record: MirrorRecord,
    /// Guard state in the file.
    written_guard: Guard,
    /// Entries that this standby would have added, each with the time at which the entry was last desired.
    recent_entries: BTreeMap<String, (EntryRecord, Instant)>,
    /// True if the last import contained the entries of the leader. Each recorded entry is then current.
    has_leader_entries: bool,
}

impl StoredMirror {
    /// Returns the recorded entries of `mirror` as lines of the file.
    fn entry_lines(&self, mirror: &str) -> impl Iterator<Item = JournalLine> {
        self.record.entries().map(move |(name, entry_record)| JournalLine::Entry {
            mirror: mirror.to_owned(),
            name: name.clone(),
            entry_record: Some(entry_record.clone()),
        })
    }
}

/// Period for which a standby remembers an entry that is no longer desired and that the leader has not recorded.
const RECENT_PERIOD: Duration = Duration::from_secs(120);

impl MirrorMemory {
    /// Opens the memory in the file at `path`. The first write creates the file, readable by its owner only.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read or is damaged, because approvals must not be guessed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (journal, lines) = Journal::open(path)?;
        let mut instance = None;
        let mut records: BTreeMap<String, StoredMirror> = BTreeMap::new();
        for line in lines {
            match line {
                JournalLine::Entry { mirror, name, entry_record } => {
                    records.entry(mirror).or_default().record.restore(name, entry_record);
                }
                JournalLine::Instance { id } => instance = Some(id),
                JournalLine::Guard { mirror, guard } => {
                    let stored = records.entry(mirror).or_default();
                    stored.record.guard = guard.clone();
                    stored.written_guard = guard;
                }
            }
        }
        let is_known = instance.is_some();
        let instance = instance.unwrap_or_else(new_instance_id);
        let journal = Mutex::new(Some(if is_known { journal } else { journal.with_instance(&instance) }));
        let records = records.into_iter().map(|(mirror, stored)| (mirror, Arc::new(Mutex::new(stored))));
        Ok(Self(Arc::new(MemoryState { journal, instance, records: Mutex::new(records.collect()) })))
    }

    /// Creates a memory that ends with the process.
    pub fn volatile() -> Self {
        Self(Arc::new(MemoryState {
            journal: Mutex::new(None),
            instance: PROCESS_INSTANCE.clone(),
            records: Mutex::default(),
        }))
    }

    /// Returns the ID of this process: the same after a restart with the same file.
    pub(crate) fn instance(&self) -> &str {
        &self.0.instance
    }

    /// Returns the first pending approval of each mirror that has any.
    pub fn first_approvals(&self) -> BTreeMap<String, ApprovalRequest> {
        self.approvals()
            .into_iter()
            .filter_map(|(mirror, requests)| Some((mirror, requests.into_iter().next()?)))
            .collect()
    }

    /// Returns all pending approvals of each mirror that has any, by group.
    pub fn approvals(&self) -> BTreeMap<String, Vec<ApprovalRequest>> {
        let requests = |(mirror, stored): (String, Arc<Mutex<StoredMirror>>)| {
            let requests: Vec<ApprovalRequest> = stored.lock().record.guard.pending_approvals().cloned().collect();
            (!requests.is_empty()).then_some((mirror, requests))
        };
        self.all_stored().into_iter().filter_map(requests).collect()
    }

    /// Approves the pending removals of `mirror` with this `id`, and returns the request.
    ///
    /// # Errors
    ///
    /// Returns an error if nothing with this ID is pending any more, or if the approval cannot be written.
    pub fn approve(&self, mirror: &str, id: &str) -> io::Result<ApprovalRequest> {
        let approved = self.update(mirror, |record| record.guard.approve(id));
        let request = approved.map_err(|error: UnknownApproval| io::Error::new(io::ErrorKind::NotFound, error))?;
        self.flush(mirror)?;
        Ok(request)
    }

    /// Returns a copy of the record of `mirror`.
    pub(crate) fn record(&self, mirror: &str) -> MirrorRecord {
        self.find_stored(mirror).map(|stored| stored.lock().record.clone()).unwrap_or_default()
    }

    /// Changes the record of `mirror`. [`flush`](Self::flush) writes the change.
    pub(crate) fn update<T>(&self, mirror: &str, change: impl FnOnce(&mut MirrorRecord) -> T) -> T {
        let stored = self.stored(mirror);
        let mut stored = stored.lock();
        change(&mut stored.record)
    }

    /// Writes the changes of `mirror` durably. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written. The changes are kept in the process, and the next call tries
    /// again.
    pub(crate) fn flush(&self, mirror: &str) -> io::Result<()> {
        // This lock is taken before that of the records, so that concurrent flushes write in the order of the changes.
        let mut journal = self.0.journal.lock();
        if journal.is_none() {
            self.update(mirror, MirrorRecord::take_changed);
            return Ok(());
        }
        let (mut lines, mut changed, mut guard) = (Vec::new(), Vec::new(), None);
        if let Some(stored) = self.find_stored(mirror) {
            let mut stored = stored.lock();
            changed = stored.record.take_changed();
            for name in &changed {
                let entry_record = stored.record.get(name).cloned();
                lines.push(JournalLine::Entry { mirror: mirror.to_owned(), name: name.clone(), entry_record });
            }
            let durable = stored.record.guard.durable_state();
            if durable != stored.written_guard {
                lines.push(JournalLine::Guard { mirror: mirror.to_owned(), guard: durable.clone() });
                guard = Some(durable);
            }
        }
        let Some(journal) = journal.as_mut().filter(|_| !lines.is_empty()) else { return Ok(()) };
        let result = journal.append(&lines).and_then(|()| {
            // The whole file is rewritten only if later lines have replaced most of it.
            if journal.is_oversized() { journal.replace(&self.all_lines(mirror, guard.as_ref())) } else { Ok(()) }
        });
        if let Some(stored) = self.find_stored(mirror) {
            let mut stored = stored.lock();
            match (&result, guard) {
                (Ok(()), Some(guard)) => stored.written_guard = guard,
                (Ok(()), None) => {}
                // The next flush writes these names, with the values that are current then.
                (Err(_), _) => stored.record.put_back(changed),
            }
        }
        result
    }

    /// Returns the complete content of the file. `guard` replaces the written guard of the mirror `flushed`.
    fn all_lines(&self, flushed: &str, guard: Option<&Guard>) -> Vec<JournalLine> {
        let mut lines = vec![JournalLine::Instance { id: self.0.instance.clone() }];
        for (mirror, stored) in self.all_stored() {
            let stored = stored.lock();
            lines.extend(stored.entry_lines(&mirror));
            let guard = guard.filter(|_| mirror == flushed).unwrap_or(&stored.written_guard).clone();
            lines.push(JournalLine::Guard { mirror, guard });
        }
        lines
    }

    /// Returns the memory as text for other replicas: the guards, and the origins of the entries. Omits the origins
    /// if the text would be longer than `max_bytes`.
    pub fn export(&self, max_bytes: usize) -> String {
        let (mut guards, mut entries) = (Vec::new(), Vec::new());
        for (mirror, stored) in self.all_stored() {
            // One lock for both: the guard must fit the entries.
            let stored = stored.lock();
            entries.extend(stored.entry_lines(&mirror));
            guards.push(JournalLine::Guard { mirror, guard: stored.record.guard.durable_state() });
        }
        let text = |lines: Vec<JournalLine>| {
            let lines = lines.iter().filter_map(|line| serde_json::to_string(line).ok());
            lines.collect::<Vec<_>>().join("\n")
        };
        let (guards, entries) = (text(guards), text(entries));
        if entries.is_empty() || guards.len().saturating_add(entries.len()) >= max_bytes {
            return guards;
        }
        format!("{guards}\n{entries}")
    }

    /// Replaces the memory by the [export](Self::export) of another replica, and writes the file. Entries that were
    /// desired here shortly before are kept, because the leader may have added them and crashed. An entry is not
    /// kept if another group holds its name or one of its locations. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is damaged, and changes nothing. Also returns an error if the file cannot be
    /// written. In this case the process has the new memory, and the next call tries to write again.
    pub fn import(&self, text: &str) -> io::Result<()> {
        let lines = text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str::<JournalLine>);
        let lines = lines.collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
        let mut adopted: BTreeMap<String, (Guard, BTreeMap<String, EntryRecord>)> = BTreeMap::new();
        for line in lines {
            match line {
                JournalLine::Guard { mirror, guard } => adopted.entry(mirror).or_default().0 = guard,
                JournalLine::Entry { mirror, name, entry_record: Some(entry_record) } => {
                    adopted.entry(mirror).or_default().1.insert(name, entry_record);
                }
                JournalLine::Entry { entry_record: None, .. } | JournalLine::Instance { .. } => {}
            }
        }
        for (mirror, (guard, entries)) in &adopted {
            let stored = self.stored(mirror);
            let mut stored = stored.lock();
            let StoredMirror { record, recent_entries, has_leader_entries, .. } = &mut *stored;
            recent_entries.retain(|_, (_, desired)| desired.elapsed() < RECENT_PERIOD);
            record.guard = guard.clone();
            // An export omits its entries if the text would be too long. In this case, the entries known here stay.
            *has_leader_entries = !entries.is_empty();
            if *has_leader_entries {
                let leader_holders = RecordedHolders::new(entries);
                record.retain(|name, entry_record| {
                    // A recorded recent entry keeps its locations. Another recent entry that claimed one of them later
                    // must not take it over.
                    let is_recent = recent_entries
                        .get(name)
                        .is_some_and(|(recent, _)| recent.origin.group == entry_record.origin.group);
                    entries.contains_key(name) || (is_recent && leader_holders.permits(name, entry_record))
                });
            }
            for (name, entry_record) in entries {
                record.insert(name, entry_record.clone());
            }
            // The leader has resolved conflicts in favor of the recorded entries. A recent entry that lost a conflict
            // must not get the location at the takeover.
            let mut holders = RecordedHolders::new(record.entries());
            for (name, (entry_record, _)) in recent_entries.iter().filter(|(name, _)| !entries.contains_key(*name)) {
                if holders.permits(name, entry_record) {
                    holders.insert(name, entry_record);
                    record.insert(name, entry_record.clone());
                }
            }
        }
        adopted.keys().try_for_each(|mirror| self.flush(mirror))
    }

    /// Remembers for a limited time that a standby wants these entries of `mirror`. Does not record an entry if a
    /// recorded entry of another group holds its name or one of its locations.
    ///
    /// Without an import of the leader's entries, the record may be outdated. A recorded entry then holds its locations
    /// only while `is_claimed` returns true for its name and origin.
    pub(crate) fn remember_desired(
        &self,
        mirror: &str,
        desired: impl IntoIterator<Item = (String, EntryRecord)>,
        is_claimed: impl Fn(&str, &Origin) -> bool,
    ) {
        let now = Instant::now();
        let stored = self.stored(mirror);
        let mut stored = stored.lock();
        let StoredMirror { record, recent_entries, has_leader_entries, .. } = &mut *stored;
        let is_current = *has_leader_entries;
        let mut holders = RecordedHolders::new(
            record.entries().filter(|(name, recorded)| is_current || is_claimed(name, &recorded.origin)),
        );
        for (name, entry_record) in desired {
            if holders.permits(&name, &entry_record) {
                holders.insert(&name, &entry_record);
                record.insert(&name, entry_record.clone());
            }
            // An entry without a record may get its locations later: the next import decides with the holders of the
            // leader.
            recent_entries.insert(name, (entry_record, now));
        }
    }

    /// Returns the memory of `mirror`, which is created if missing. A panic under its lock leaves a record that the next
    /// read corrects.
    fn stored(&self, mirror: &str) -> Arc<Mutex<StoredMirror>> {
        self.0.records.lock().entry(mirror.to_owned()).or_default().clone()
    }

    fn find_stored(&self, mirror: &str) -> Option<Arc<Mutex<StoredMirror>>> {
        self.0.records.lock().get(mirror).cloned()
    }

    fn all_stored(&self) -> Vec<(String, Arc<Mutex<StoredMirror>>)> {
        self.0.records.lock().iter().map(|(mirror, stored)| (mirror.clone(), stored.clone())).collect()
    }
}

/// ID of this process if no file keeps one.
static PROCESS_INSTANCE: LazyLock<String> = LazyLock::new(new_instance_id);

fn new_instance_id() -> String {
    format!("{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests;
