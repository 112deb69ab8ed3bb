//! Record of the leader's term. Each update of a replica requires that the record contains the replica's term. So the
//! server rejects late updates of an earlier leader.
//!
//! An update requires the exact text of the record (RFC 2136, section 2.4.2), so the text stays unchanged during the
//! term. The time of the last renewal is in a second record. Otherwise updates in flight would fail at each renewal, and
//! after a renewal without a response the mirror would not know the current text.

use domain::base::Name;
use domain::base::iana::{Rcode, Rtype};

use super::Zone;
use super::error::DnsError;
use super::query::ZoneQuery;
use super::record::{RecordData, parse_name, text_octets};
use crate::owner::{OWNER_EXPIRES_SECS, OWNER_RENEW_SECS};

/// The record as a condition of an update.
pub(super) struct TermRecord {
    pub(super) name: Name<Vec<u8>>,
    pub(super) text: Vec<u8>,
}

impl Zone {
    /// Returns the name of the record, which lies next to the ownership record.
    fn term_name(&self) -> String {
        format!("term-{}", self.owner_name())
    }

    /// Returns the name of the record with the last renewal of the term.
    fn renewal_name(&self) -> String {
        format!("renewed-{}", self.term_name())
    }

    /// Records `term` at `now`, in seconds since 1970, and makes each later update require this term. Returns false
    /// if a later term is already recorded.
    ///
    /// The record is renewed each minute. A record of a later term is replaced if it was not renewed for five minutes,
    /// because terms restart after a restore of the API server from a backup.
    ///
    /// If the key has no permission to write the record, updates are sent without this condition.
    pub(super) async fn record_term(&self, term: u64, now: u64) -> Result<bool, DnsError> {
        let result = self.try_to_record(term, now).await;
        match result {
            // With the condition, all updates would fail.
            Err(DnsError::Rejected { rcode: Rcode::REFUSED | Rcode::NOTAUTH, .. }) => self.state().term = None,
            // A failed renewal does not affect the condition: the record of the term stays unchanged.
            Ok(true) => self.renew_term(term, now).await?,
            _ => {}
        }
        result
    }

    async fn try_to_record(&self, term: u64, now: u64) -> Result<bool, DnsError> {
        let name = self.term_name();
        let records = self.texts_of(&name).await?;
        if let Some((recorded, since)) = records.iter().find_map(read_term) {
            if recorded == term {
                self.state().term = Some(self.term_text(term, since));
                return Ok(true);
            }
            if recorded > term {
                // The recorded term is later, so updates that require this process's term fail, as intended. They must
                // fail even if the renewal of the later term cannot be read.
                self.state().term = Some(self.term_text(term, now));
                if self.is_current(recorded, since, now).await? {
                    return Ok(false);
                }
            }
        }
        let strings = self.term_text(term, now);
        // The term is set before the write, so that following updates require it even if the response is lost.
        self.state().term = Some(strings.clone());
        match self.replace_text(&name, &records, &strings).await {
            Ok(()) => {
                self.state().term_renewal = Some((term, now));
                Ok(true)
            }
            // Another replica was faster. The next call reads its record.
            Err(DnsError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Renews the record of the own `term`, unless the last renewal is less than a minute old.
    async fn renew_term(&self, term: u64, now: u64) -> Result<(), DnsError> {
        let last_renewal = self.state().term_renewal;
        if last_renewal.is_some_and(|(of, renewed)| of == term && now.abs_diff(renewed) < OWNER_RENEW_SECS) {
            return Ok(());
        }
        let name = self.renewal_name();
        let records = self.texts_of(&name).await?;
        self.replace_text(&name, &records, &self.term_text(term, now)).await?;
        self.state().term_renewal = Some((term, now));
        Ok(())
    }

    /// Returns true if the record of the term `recorded` is less than five minutes old, or was renewed within this time.
    /// A time far in the future comes from a wrong clock, and counts as old.
    async fn is_current(&self, recorded: u64, since: u64, now: u64) -> Result<bool, DnsError> {
        let is_recent = |time: u64| now.abs_diff(time) < OWNER_EXPIRES_SECS;
        if is_recent(since) {
            return Ok(true);
        }
        let renewals = self.texts_of(&self.renewal_name()).await?;
        Ok(renewals.iter().filter_map(read_term).any(|(term, renewed)| term == recorded && is_recent(renewed)))
    }

    /// Returns the TXT records of a name.
    async fn texts_of(&self, name: &str) -> Result<Vec<RecordData>, DnsError> {
        let (records, _) = self.query(ZoneQuery::Records(&parse_name(name)?, Rtype::TXT)).await?.records();
        Ok(records)
    }

    /// Returns the strings of a record with `term` and a time in seconds since 1970.
    fn term_text(&self, term: u64, time: u64) -> Vec<Vec<u8>> {
        [self.mark.clone(), term.to_string(), time.to_string()].map(String::into_bytes).to_vec()
    }

    /// Returns the condition of each update. `None` without replicas, or if the key may not write the record.
    pub(super) fn term_condition(&self) -> Result<Option<TermRecord>, DnsError> {
        let strings = self.state().term.clone();
        let condition = |strings: Vec<Vec<u8>>| {
            Ok(TermRecord { name: parse_name(&self.term_name())?, text: text_octets(&strings) })
        };
        strings.map(condition).transpose()
    }
}

/// Returns the term and the time of its record.
fn read_term(data: &RecordData) -> Option<(u64, u64)> {
    let RecordData::Txt(strings) = data else { return None };
    let [_, term, since] = &strings[..] else { return None };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    Some((number(term)?, number(since)?))
}
