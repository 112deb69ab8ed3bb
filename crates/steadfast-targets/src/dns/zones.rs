//! Several zones behind one target: each record belongs to the zone with the longest matching name.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::Zone;
use super::error::DnsError;
use super::record::{self, DnsRecord, canonical_name, is_within};
use crate::entry::{ActualState, Step, Target};
use crate::owner::ClaimResult;

/// Target for several zones. Only names with the mark of the mirror belong to the mirror. A zone that cannot be read
/// delays no other zone.
#[derive(Clone, Debug)]
pub struct Zones {
    /// Zones in order of the length of their names, longest first.
    zones: Vec<Zone>,
    last_reads: Arc<Mutex<Vec<LastZoneRead>>>,
}

/// Result of the last read of a zone.
#[derive(Clone, Debug, Default)]
struct LastZoneRead {
    found: Option<ActualState<DnsRecord>>,
    /// Reason for the failure of the last read. `found` is then older.
    failure: Option<String>,
}

impl Zones {
    /// Creates the target for `zones`.
    ///
    /// # Errors
    ///
    /// Returns an error if `zones` is empty, or two of them have the same name.
    pub fn new(mut zones: Vec<Zone>) -> Result<Self, DnsError> {
        // Longer names come first: a record of `a.example.org` belongs to this zone and not to `example.org`.
        zones.sort_by(|one, other| other.name.len().cmp(&one.name.len()).then_with(|| one.name.cmp(&other.name)));
        let duplicate = zones.windows(2).find(|pair| pair[0].name == pair[1].name).map(|pair| pair[0].name.clone());
        if let Some(name) = duplicate {
            return Err(DnsError::Name { name, reason: "each zone must be named once".to_owned() });
        }
        if zones.is_empty() {
            return Err(DnsError::Name { name: String::new(), reason: "at least one zone must be named".to_owned() });
        }
        let last_reads = Arc::new(Mutex::new(vec![LastZoneRead::default(); zones.len()]));
        Ok(Self { zones, last_reads })
    }

    /// Returns the canonical record and the name of its entry.
    ///
    /// # Errors
    ///
    /// Returns an error if the record lies in none of the zones, or is not valid (see [`entry`](super::entry)).
    pub fn entry(&self, record: DnsRecord) -> Result<(String, DnsRecord), DnsError> {
        let name = canonical_name(&record.name)?;
        if let Some(zone) = self.zone_of(&name) {
            return record::entry(&self.zones[zone].name, record);
        }
        let names: Vec<_> = self.zones.iter().map(|zone| &*zone.name).collect();
        Err(DnsError::Outside { name, zone: names.join(", ") })
    }

    /// Claims all zones. Returns the first claim of another process, or else the first error. An error in one zone does
    /// not affect the claims of the other zones.
    async fn claim_names(&self, instance: &str, now: u64) -> Result<ClaimResult, DnsError> {
        // Concurrently: all zones share one deadline of the mirror, and a claim that is not renewed expires.
        let claims = join_zones(self.zones.len(), |index| self.zones[index].claim_names(instance, now)).await;
        let mut claim = Ok(ClaimResult::Ours);
        for zone_claim in claims {
            match zone_claim {
                Ok(ClaimResult::Ours) => {}
                Ok(other) => return Ok(other),
                Err(error) => claim = claim.and(Err(error)),
            }
        }
        claim
    }

    /// Returns the zone of a name.
    fn zone_of(&self, name: &str) -> Option<usize> {
        self.zones.iter().position(|zone| is_within(&zone.name, name))
    }

    fn last_reads(&self) -> MutexGuard<'_, Vec<LastZoneRead>> {
        self.last_reads.lock()
    }

    /// Reads one zone. Returns the result of the last successful read if this read fails.
    async fn read_zone(&self, index: usize) -> (Option<ActualState<DnsRecord>>, Option<DnsError>) {
        let zone = &self.zones[index];
        let result = zone.read().await;
        let mut all = self.last_reads();
        let last_read = &mut all[index];
        match result {
            Ok(found) => {
                *last_read = LastZoneRead { found: Some(found.clone()), failure: None };
                (Some(found), None)
            }
            Err(error) => {
                let reason = error.to_string();
                if last_read.failure.as_ref() != Some(&reason) && self.zones.len() > 1 {
                    tracing::warn!(zone = zone.name, %reason, "cannot read the zone; its names stay unchanged");
                }
                last_read.failure = Some(reason);
                // The last contents replace those of an unreadable zone. Without contents, the zone's entries would
                // look lost.
                (last_read.found.clone(), Some(error))
            }
        }
    }

    /// Returns the steps of each zone.
    fn steps_by_zone(&self, steps: &[Step<DnsRecord>]) -> Vec<Vec<Step<DnsRecord>>> {
        let mut steps_by_zone = vec![Vec::new(); self.zones.len()];
        for step in steps {
            let (Step::Add { value, .. } | Step::Change { to: value, .. } | Step::Remove { value, .. }) = step;
            if let Some(index) = self.zone_of(&value.name) {
                steps_by_zone[index].push(step.clone());
            }
        }
        steps_by_zone
    }
}

impl Target for Zones {
    type Value = DnsRecord;
    type Error = DnsError;

    const HAS_OWNER_RECORD: bool = true;

    async fn read(&self) -> Result<ActualState<DnsRecord>, DnsError> {
        let results = join_zones(self.zones.len(), |index| self.read_zone(index)).await;
        let mut all = ActualState { own: BTreeMap::new(), others: [].into(), busy: [].into() };
        let (mut first_error, mut has_success) = (None, false);
        for (found, error) in results {
            has_success |= error.is_none();
            first_error = first_error.or(error);
            if let Some(found) = found {
                all.own.extend(found.own);
                all.others.extend(found.others);
            }
        }
        match first_error {
            Some(error) if !has_success => Err(error),
            _ => Ok(all),
        }
    }

    async fn apply(&self, steps: &[Step<DnsRecord>]) -> Result<(), DnsError> {
        let steps_by_zone = self.steps_by_zone(steps);
        let results = join_zones(self.zones.len(), async |index: usize| {
            if steps_by_zone[index].is_empty() {
                return Ok(());
            }
            let zone = &self.zones[index];
            // A zone that could not be read is not written: the steps were planned from its last contents.
            let failure = self.last_reads()[index].failure.clone();
            match failure {
                Some(reason) => Err(DnsError::Unread { zone: zone.name.clone(), reason }),
                None => zone.apply(&steps_by_zone[index]).await,
            }
        });
        results.await.into_iter().fold(Ok(()), Result::and)
    }

    fn describe(&self, found: &ActualState<DnsRecord>, steps: &[Step<DnsRecord>]) -> Vec<String> {
        let steps_by_zone = self.steps_by_zone(steps).into_iter().enumerate().filter(|(_, steps)| !steps.is_empty());
        let described = steps_by_zone.flat_map(|(index, steps)| {
            let is_own = |record: &DnsRecord| self.zone_of(&record.name) == Some(index);
            let own = found.own.iter().filter(|(_, record)| is_own(record));
            let own = own.map(|(name, record)| (name.clone(), record.clone())).collect();
            let found = ActualState { own, others: found.others.clone(), busy: found.busy.clone() };
            self.zones[index].describe(&found, &steps)
        });
        described.collect()
    }

    fn validate(&self, desired: &mut BTreeMap<String, DnsRecord>) -> BTreeMap<String, String> {
        let mut rejected = BTreeMap::new();
        let mut entries_by_zone = vec![BTreeMap::new(); self.zones.len()];
        for (name, record) in std::mem::take(desired) {
            match self.zone_of(&record.name) {
                Some(index) => _ = entries_by_zone[index].insert(name, record),
                None => _ = rejected.insert(name, "it is in none of the zones of the mirror".to_owned()),
            }
        }
        let last_reads = self.last_reads().clone();
        for ((zone, last_read), mut entries) in self.zones.iter().zip(last_reads).zip(entries_by_zone) {
            rejected.extend(zone.validate(&mut entries));
            if let (Some(reason), true) = (last_read.failure, self.zones.len() > 1) {
                let found = last_read.found.map(|found| found.own).unwrap_or_default();
                // Entries of an unreadable zone keep their last known state. New values wait for the next read.
                entries.retain(|name, record| {
                    let exists = found.get(name) == Some(record);
                    if !exists {
                        let error = DnsError::Unread { zone: zone.name.clone(), reason: reason.clone() };
                        rejected.insert(name.clone(), error.to_string());
                    }
                    exists
                });
            }
            desired.append(&mut entries);
        }
        rejected
    }

    async fn changed(&self) {
        let all = self.zones.iter().map(|zone| Box::pin(zone.changed()));
        let mut all: Vec<_> = all.collect();
        std::future::poll_fn(|context| {
            let has_changed = all.iter_mut().any(|changed| changed.as_mut().poll(context).is_ready());
            if has_changed { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }

    async fn claim(&self, instance: &str, now: u64) -> Result<ClaimResult, DnsError> {
        self.claim_names(instance, now).await
    }

    /// Records the term in all zones. A failure in one zone does not affect the other zones.
    async fn record_term(&self, term: u64, now: u64) -> Result<bool, DnsError> {
        // Concurrently: all zones share one deadline of the mirror.
        let results = join_zones(self.zones.len(), |index| self.zones[index].record_term(term, now)).await;
        results.into_iter().try_fold(true, |is_newest, result| result.map(|is_newest_here| is_newest && is_newest_here))
    }
}

/// Runs one future for each of `count` zones concurrently, and returns all results in order.
async fn join_zones<'a, T, F: Future<Output = T> + 'a>(count: usize, run: impl Fn(usize) -> F) -> Vec<T> {
    let mut all: Vec<_> = (0..count).map(|index| (Box::pin(run(index)), None)).collect();
    std::future::poll_fn(move |context| {
        let mut is_pending = false;
        for (future, result) in &mut all {
            if result.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *result = Some(ready),
                    std::task::Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(all.iter_mut().filter_map(|(_, result)| result.take()).collect())
    })
    .await
}
