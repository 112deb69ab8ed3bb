//! Record of the leader's term. Each update of a replica requires that the record contains the replica's term. So the
//! server rejects late updates of an earlier leader.

use domain::base::Name;
use domain::base::iana::{Rcode, Rtype};

use super::Zone;
use super::error::DnsError;
use super::query::ZoneQuery;
use super::record::{RecordData, parse_name, text_octets};
use crate::owner::OWNER_EXPIRES_SECS;

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

    /// Records `term` at `now`, in seconds since 1970, and makes each later update require this term. Returns false
    /// if a later term is already recorded.
    ///
    /// A record of a later term is replaced after five minutes, because terms restart after a restore of the API server
    /// from a backup.
    ///
    /// If the key has no permission to write the record, updates are sent without this condition.
    pub(super) async fn record_term(&self, term: u64, now: u64) -> Result<bool, DnsError> {
        let result = self.try_to_record(term, now).await;
        // With the condition, all updates would fail.
        if matches!(result, Err(DnsError::Rejected { rcode: Rcode::REFUSED | Rcode::NOTAUTH, .. })) {
            self.state().term = None;
        }
        result
    }

    async fn try_to_record(&self, term: u64, now: u64) -> Result<bool, DnsError> {
        let name = self.term_name();
        let wire = parse_name(&name)?;
        let (records, _) = self.query(ZoneQuery::Records(&wire, Rtype::TXT)).await?.records();
        let text = |term: u64, since: u64| {
            [self.mark.clone(), term.to_string(), since.to_string()].map(String::into_bytes).to_vec()
        };
        let recorded = records.iter().find_map(read_term);
        match recorded {
            Some((recorded, since)) if recorded == term => {
                self.state().term = Some(text(term, since));
                return Ok(true);
            }
            Some((recorded, since)) if recorded > term && now.saturating_sub(since) < OWNER_EXPIRES_SECS => {
                // The recorded term is later, so updates that require this process's term fail, as intended.
                self.state().term = Some(text(term, now));
                return Ok(false);
            }
            _ => {}
        }
        let strings = text(term, now);
        // The term is set before the write, so that following updates require it even if the response is lost.
        self.state().term = Some(strings.clone());
        match self.replace_text(&name, &records, &strings).await {
            Ok(()) => Ok(true),
            // Another replica was faster. The next call reads its record.
            Err(DnsError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
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
