//! What is in a zone, and whose it is.

use std::collections::{BTreeMap, BTreeSet};

use domain::base::iana::Rtype;
use domain::base::wire::ParseError;
use domain::base::{ParsedRecord, ToName, Ttl};
use domain::dep::octseq::Octets;
use domain::rdata::{A, Aaaa, Cname, Srv, Txt};

use super::record::{Data, MARK, Record, entry_name};
use crate::entry::Found;

/// All of a zone.
#[derive(Default)]
pub(super) struct Contents {
    names: BTreeMap<String, Owner>,
}

/// What one name has. That it has anything counts too, whatever that is.
#[derive(Default)]
struct Owner {
    records: Vec<Record>,
    texts: BTreeSet<Vec<u8>>,
}

/// What a mirror has to know of a zone to change it.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) own: BTreeMap<String, Record>,
    /// The names that bear the mark, also without entries.
    pub(super) marked: BTreeSet<String>,
}

impl Contents {
    pub(super) fn add<Octs: Octets>(&mut self, record: &ParsedRecord<'_, Octs>) -> Result<(), ParseError> {
        let name = lower(&record.owner());
        let owner = self.names.entry(name.clone()).or_default();
        let data = match record.rtype() {
            Rtype::A => record.to_record::<A>()?.map(|record| Data::A(record.data().addr())),
            Rtype::AAAA => record.to_record::<Aaaa>()?.map(|record| Data::Aaaa(record.data().addr())),
            Rtype::CNAME => record.to_record::<Cname<_>>()?.map(|record| Data::Cname(lower(record.data().cname()))),
            Rtype::SRV => record.to_record::<Srv<_>>()?.map(|record| {
                let srv = record.data();
                let (priority, weight, port) = (srv.priority(), srv.weight(), srv.port());
                Data::Srv { priority, weight, port, target: lower(srv.target()) }
            }),
            Rtype::TXT => {
                let text = record.to_record::<Txt<_>>()?.map(|record| record.data().text::<Vec<u8>>());
                owner.texts.extend(text);
                None
            }
            _ => None,
        };
        let ttl = Ttl::as_secs(&record.ttl());
        owner.records.extend(data.map(|data| Record { name, ttl, data }));
        Ok(())
    }

    /// What of it bears `mark`, and what does not.
    pub(super) fn divided(self, mark: &str) -> (Found<Record>, Seen) {
        let Self { names } = self;
        let (mut others, mut marked) = (BTreeSet::new(), BTreeSet::new());
        for (name, owner) in &names {
            match name.strip_prefix(MARK) {
                Some(of) if owner.texts.len() == 1 && owner.texts.contains(mark.as_bytes()) => {
                    marked.insert(of.to_owned());
                }
                // Somebody else's mark says that the name is somebody else's, whatever it has.
                Some(of) => _ = others.insert(of.to_owned()),
                None => _ = others.insert(name.clone()),
            }
        }
        others.retain(|name| !marked.contains(name));
        let mut own = BTreeMap::new();
        let of_marked = names.into_iter().filter(|(name, _)| marked.contains(name));
        for record in of_marked.flat_map(|(_, owner)| owner.records) {
            let entry = entry_name(&record);
            // The same service twice, by somebody's hand: the second is none that anybody wants.
            let entry = if own.contains_key(&entry) { format!("{} {}", record.name, record.data) } else { entry };
            own.insert(entry, record);
        }
        let found = Found { own: own.clone(), others, busy: BTreeSet::new() };
        (found, Seen { own, marked })
    }
}

fn lower(name: &impl ToName) -> String {
    name.fmt_with_dot().to_string().to_ascii_lowercase()
}
