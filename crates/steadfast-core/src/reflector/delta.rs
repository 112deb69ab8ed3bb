//! A list by difference: when it is worth the while, and how far it is.
//!
//! What it saves was measured with a real server and 20,000 pods of 9 KB: an object's metadata cost it 43 to 68 µs in JSON
//! and 15 to 25 in protobuf, the whole object 90 to 155 µs in a list in JSON, 130 to 200 in a stream, and 35 to 60 in
//! protobuf. Config maps of 6 KB, which are next to nothing but one text, cost 34 to 47 µs in JSON and their metadata 8 to 16.
//! What each object that differs costs is a request of its own: 2.7 ms where those were measured. So one in 200 takes back half of
//! what is saved of such config maps, and a tenth of what is saved of pods. How large objects are is not considered otherwise:
//! of small ones metadata are most of it, and there is little to be saved, nor much to be lost.

use std::time::Duration;

use super::full::Full;
use super::outlook::Outlook;
use super::output::Output;
use super::request::RequestId;
use super::settings::ReflectorSettings;
use crate::record::Identity;
use crate::time::Instant;
use crate::version::ResourceVersion;

/// More may not differ however many there are: a few at once, and one after the other, they would take their time.
const MANY: usize = 200;

/// So many changes may be expected of each object that may differ: several may be of one.
const CHANGES_EACH: f64 = 2.0;

/// The time after which half of what was seen is forgotten.
const MEMORY: Duration = Duration::from_secs(600);

/// Whether lists are made by difference, and what speaks against it.
#[derive(Debug)]
pub(super) struct Sparing {
    /// Whether it is wanted, whatever it saves.
    wanted: Option<bool>,
    /// The fewest objects for which it is worth the while.
    least: usize,
    /// One in so many may differ.
    one_in: usize,
    outlook: Outlook,
    /// Until when all is listed, as differences were not to be had or too many.
    pub(super) full_until: Option<Instant>,
    /// How many changes our watch and our lists have brought, and since when that is counted.
    changes: usize,
    since: Instant,
}

impl Sparing {
    pub(super) fn new(settings: &ReflectorSettings) -> Self {
        Self {
            wanted: settings.delta_relists,
            least: settings.delta_least,
            one_in: settings.delta_one_in.max(1),
            outlook: Outlook::default(),
            full_until: None,
            changes: 0,
            since: Instant::ZERO,
        }
    }

    /// Takes in what the next list is chosen by.
    pub(super) fn expect(&mut self, outlook: Outlook) {
        self.outlook = outlook;
    }

    /// The first list is complete: changes are counted from here on.
    pub(super) fn begin(&mut self, now: Instant) {
        (self.changes, self.since) = (0, now);
    }

    /// Our watch has brought a change, or a list so many.
    pub(super) fn changed(&mut self, changes: usize) {
        self.changes = self.changes.saturating_add(changes);
    }

    /// Time goes by: what was long ago counts for less.
    pub(super) fn age(&mut self, now: Instant) {
        let counted = now.since(self.since);
        if counted > MEMORY {
            self.changes /= 2;
            self.since = self.since + counted / 2;
        }
    }

    /// How many changes there may have been since `proven`, when all was held for the last time.
    fn expected(&self, now: Instant, proven: Instant) -> f64 {
        let seen = proven.since(self.since).max(Duration::from_secs(1));
        self.changes as f64 / seen.as_secs_f64() * now.since(proven).as_secs_f64()
    }

    /// Whether a list at `now` is to be made by difference, where all was held for the last time at `proven`.
    pub(super) fn is_worth_it(&self, now: Instant, proven: Option<Instant>) -> bool {
        let Outlook { protobuf, doubted, held, metadata_only } = self.outlook;
        let wanted = self.wanted.unwrap_or(!protobuf) && !doubted && !metadata_only && held >= self.least;
        let bearable = self.most() as f64 * CHANGES_EACH;
        wanted
            && self.full_until.is_none_or(|until| now >= until)
            && proven.is_some_and(|proven| self.expected(now, proven) <= bearable)
    }

    /// How many objects may differ.
    pub(super) fn most(&self) -> usize {
        (self.outlook.held / self.one_in).min(MANY)
    }

    /// How many objects are held as the list begins.
    pub(super) fn held(&self) -> usize {
        self.outlook.held
    }
}

/// One object that differs, and has been requested.
#[derive(Clone, Debug)]
pub(super) struct Fetch {
    pub(super) id: RequestId,
    /// Who it is, and in which version it has to come.
    pub(super) wanted: Identity,
    pub(super) came: bool,
}

/// A list by difference on its way.
#[derive(Clone, Debug)]
pub(super) struct Delta {
    /// What is to be had, in another way if not in this one.
    pub(super) full: Full,
    /// The page of metadata under way.
    pub(super) page: Option<RequestId>,
    /// The version that all of it is of, as the first page gave it.
    pub(super) version: Option<ResourceVersion>,
    /// What differs, and is not requested yet.
    pub(super) different: Vec<Identity>,
    /// What is requested.
    pub(super) requested: Vec<Fetch>,
    /// How many objects differ, and how many may; no more may be missing from the metadata either.
    pub(super) count: usize,
    pub(super) most: usize,
    /// How many objects were held as it began, and how many are listed.
    pub(super) held: usize,
    pub(super) listed: usize,
    /// Whether the server has answered since something was requested.
    pub(super) opened: bool,
    /// When something of it was last seen to come, or was requested again.
    pub(super) progress: Instant,
    /// When no more of it is waited for.
    pub(super) deadline: Instant,
    /// Until when no object is requested, as the server asks for patience.
    pub(super) not_before: Option<Instant>,
    /// Since when it has done so, and nothing has come.
    pub(super) put_off_since: Option<Instant>,
}

impl Delta {
    /// One that begins at `now` in place of `full`, and may take so long.
    pub(super) fn begun(now: Instant, full: Full, sparing: &Sparing, within: Duration) -> Self {
        Self {
            full,
            page: None,
            version: None,
            different: Vec::new(),
            requested: Vec::new(),
            count: 0,
            most: sparing.most(),
            held: sparing.held(),
            listed: 0,
            opened: false,
            progress: now,
            deadline: now + within,
            not_before: None,
            put_off_since: None,
        }
    }

    /// Whether `id` is one of its requests.
    pub(super) fn has(&self, id: RequestId) -> bool {
        self.requests().any(|own| own == id)
    }

    /// The requests under way.
    pub(super) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.page.into_iter().chain(self.requested.iter().map(|fetch| fetch.id))
    }

    /// It is given up: what is under way, and what came of it.
    pub(super) fn abandon(&self, out: &mut Vec<Output>) {
        out.extend(self.requests().map(Output::Cancel));
        out.push(Output::DropStaging);
    }

    /// Whether more of what is held is missing from the metadata, which are complete, than may have ended.
    pub(super) fn lacks_too_many(&self) -> bool {
        self.held.saturating_sub(self.listed) > self.most
    }

    /// Something of it has come.
    pub(super) fn comes(&mut self, now: Instant) {
        (self.progress, self.put_off_since) = (now, None);
    }

    /// When something is to be done though nothing comes: to ask again, or to give it up after `patience`.
    pub(super) fn due(&self, patience: Duration) -> Instant {
        let stalled = self.progress + patience;
        let again = match self.not_before {
            // What is under way may hang beside what is put off.
            Some(until) if self.requests().next().is_some() => until.min(stalled),
            Some(until) => until,
            None => stalled,
        };
        self.deadline.min(again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_zero(Duration::from_secs(seconds))
    }

    fn sparing(held: usize, protobuf: bool, wanted: Option<bool>) -> Sparing {
        let settings = ReflectorSettings { delta_relists: wanted, ..ReflectorSettings::default() };
        let mut sparing = Sparing::new(&settings);
        sparing.expect(Outlook { protobuf, held, ..Outlook::default() });
        sparing.begin(at(0));
        sparing
    }

    #[test]
    fn differences_are_for_much_that_is_held_and_for_json_unless_something_else_is_said() {
        let worth = |held, protobuf, wanted| sparing(held, protobuf, wanted).is_worth_it(at(60), Some(at(50)));
        assert_eq!((worth(1599, false, None), worth(1600, false, None)), (false, true));
        assert_eq!((worth(1600, true, None), worth(1600, true, Some(true))), (false, true));
        assert_eq!((worth(1600, false, Some(false)), worth(10, false, Some(true))), (false, false));
        let mut partial = sparing(1600, false, Some(true));
        partial.expect(Outlook { metadata_only: true, ..partial.outlook });
        assert!(!partial.is_worth_it(at(60), Some(at(50))), "a list of metadata is what would be listed anyway");
        partial.expect(Outlook { doubted: true, metadata_only: false, ..partial.outlook });
        assert!(!partial.is_worth_it(at(60), Some(at(50))), "what protobuf has spoilt is to be read anew");
    }

    #[test]
    fn where_much_may_have_changed_all_is_listed() {
        let mut sparing = sparing(2000, false, None);
        sparing.changed(100);
        // One change a second: 10 objects may differ, so 20 changes may be expected.
        assert!(sparing.is_worth_it(at(120), Some(at(100))));
        assert!(!sparing.is_worth_it(at(121), Some(at(100))));
        assert!(!sparing.is_worth_it(at(121), None), "nothing is known of how long it has been");
    }

    #[test]
    fn no_more_is_expected_than_may_be_had_however_many_are_held() {
        let mut sparing = sparing(1_000_000, false, None);
        sparing.changed(1000);
        assert!(sparing.is_worth_it(at(140), Some(at(100))));
        assert!(!sparing.is_worth_it(at(141), Some(at(100))), "200 may differ, and 410 changes are expected");
    }

    #[test]
    fn what_lists_have_found_counts_as_what_a_watch_brings() {
        let mut sparing = sparing(2000, false, None);
        assert!(sparing.is_worth_it(at(160), Some(at(100))));
        sparing.changed(100);
        assert!(!sparing.is_worth_it(at(160), Some(at(100))));
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut sparing = sparing(2000, false, None);
        sparing.changed(600);
        sparing.age(at(600));
        assert!(!sparing.is_worth_it(at(660), Some(at(600))));
        for hour in 1..20 {
            sparing.changed(1);
            sparing.age(at(hour * 3600));
        }
        assert!(sparing.is_worth_it(at(20 * 3600 + 60), Some(at(20 * 3600))), "it has been quiet for hours");
    }

    #[test]
    fn how_many_may_differ_grows_with_what_is_held_up_to_a_bound() {
        let most = |held| sparing(held, false, None).most();
        assert_eq!([most(10), most(1600), most(10_000), most(1_000_000)], [0, 8, 50, 200]);
    }
}
