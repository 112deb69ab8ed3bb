use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::guard::{Flow, GuardRules, Limits};
use crate::mirror_record::EntryRecord;
use crate::origin::Origin;

struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-memory-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self) -> std::path::PathBuf {
        self.0.join("memory")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entry_record(group: &str) -> EntryRecord {
    EntryRecord {
        origin: Arc::new(Origin { group: group.into(), ..Origin::default() }),
        locations: vec![],
        state: "1".into(),
    }
}

fn names(memory: &MirrorMemory) -> Vec<(String, String)> {
    memory.record("m").entries().map(|(name, entry_record)| (name.clone(), entry_record.origin.group.clone())).collect()
}

#[test]
fn reopened_memory_has_flushed_records() {
    let folder = Folder::new("reopen");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    memory.flush("m").expect("nothing to write");
    assert!(!folder.file().exists());
    for number in 0..50 {
        memory.update("m", |record| record.insert(&format!("{number:02}"), entry_record("a")));
    }
    memory.update("m", |record| {
        let mut flow = Flow { serving: 4, ..Flow::default() };
        flow.other_removals.extend((0..4).map(|number| (format!("{number:02}"), String::new())));
        let rules = GuardRules { limits: Limits::default(), allow_empty: false };
        record.guard.decide(rules, &[("a".to_owned(), flow)].into(), &BTreeSet::new(), 0)
    });
    memory.flush("m").expect("written");
    memory.update("m", |record| record.retain(|name, _| name >= "48"));
    memory.update("m", |record| record.insert("49", entry_record("b")));
    memory.flush("m").expect("written");
    memory.update("m", |record| record.insert("50", entry_record("never flushed")));

    let reopened = MirrorMemory::open(&folder.file()).expect("a memory");
    assert_eq!(names(&reopened), [("48", "a"), ("49", "b")].map(|(name, group)| (name.into(), group.into())));
    assert_eq!(reopened.instance(), memory.instance());
    assert_eq!(reopened.first_approvals(), memory.first_approvals());
    assert_eq!(reopened.first_approvals()["m"].names.len(), 4);
}

#[test]
fn torn_last_line_is_overwritten() {
    let folder = Folder::new("torn");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    memory.update("m", |record| record.insert("a", entry_record("g")));
    memory.flush("m").expect("written");
    let mut text = std::fs::read(folder.file()).expect("a file");
    text.extend(br#"{"entry":{"mirror":"m","na"#);
    std::fs::write(folder.file(), text).expect("written");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    assert_eq!(names(&memory).len(), 1);
    memory.update("m", |record| record.insert("b", entry_record("g")));
    memory.flush("m").expect("written");
    assert_eq!(names(&MirrorMemory::open(&folder.file()).expect("a memory")).len(), 2);
}

#[test]
fn damaged_file_error_names_line() {
    let folder = Folder::new("damaged");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    memory.update("m", |record| record.insert("a", entry_record("g")));
    memory.flush("m").expect("written");
    let text = std::fs::read_to_string(folder.file()).expect("a file").replace("\"m\"", "m");
    std::fs::write(folder.file(), text).expect("written");
    let error = MirrorMemory::open(&folder.file()).expect_err("damaged").to_string();
    assert!(error.contains("line 3") && error.contains("remove the file"), "{error}");
}

#[test]
fn file_of_first_release_is_replaced() {
    let folder = Folder::new("old");
    std::fs::write(folder.file(), r#"{"m":{"gone":[],"approved":[],"ask":null}}"#).expect("written");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    memory.update("m", |record| record.insert("a", entry_record("g")));
    memory.flush("m").expect("written");
    assert_eq!(names(&MirrorMemory::open(&folder.file()).expect("a memory")).len(), 1);
}

#[test]
fn rewritten_entries_do_not_grow_file() {
    let folder = Folder::new("size");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    for round in 0..3000 {
        memory.update("m", |record| record.insert("a", EntryRecord { state: round.to_string(), ..entry_record("g") }));
        memory.flush("m").expect("written");
    }
    let lines = std::fs::read_to_string(folder.file()).expect("a file").lines().count();
    assert!(lines < 1100, "{lines} lines");
    assert_eq!(MirrorMemory::open(&folder.file()).expect("a memory").record("m").get("a").expect("it").state, "2999");
}

#[test]
fn failed_flush_is_repeated_whole() {
    let folder = Folder::new("failed");
    let memory = MirrorMemory::open(&folder.file()).expect("a memory");
    memory.update("m", |record| record.insert("a", entry_record("g")));
    // A folder at the path of the temporary file.
    std::fs::create_dir(folder.0.join("memory.new")).expect("a folder");
    let error = memory.flush("m").expect_err("the file cannot be written").to_string();
    assert!(error.contains("cannot write"), "{error}");
    memory.update("m", |record| record.insert("b", entry_record("g")));
    std::fs::remove_dir(folder.0.join("memory.new")).expect("removed");
    memory.flush("m").expect("written");
    assert_eq!(names(&MirrorMemory::open(&folder.file()).expect("a memory")).len(), 2);
}

#[test]
fn replica_adopts_leader_guard_and_origins() {
    let entry_record = |group: &str| EntryRecord {
        origin: std::sync::Arc::new(crate::origin::Origin { group: group.to_owned(), ..Default::default() }),
        locations: Vec::new(),
        state: "v".to_owned(),
    };
    let (leader, standby) = (MirrorMemory::volatile(), MirrorMemory::volatile());
    leader.update("web", |record| record.insert("a", entry_record("shop")));
    standby.update("web", |record| record.insert("old", entry_record("shop")));
    // The leader may have added the entry and crashed before reporting it.
    standby.remember_desired("web", [("recent".to_owned(), entry_record("ops"))], |_, _| true);
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    let names =
        |memory: &MirrorMemory| memory.record("web").entries().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&standby), ["a", "recent"]);
    assert_eq!(standby.record("web").origin("a").map(|origin| origin.group.clone()).as_deref(), Some("shop"));
    // The entries are too large for the export, so the entries that the replica has seen itself stay.
    standby.import(&leader.export(10)).expect("a complete export");
    assert_eq!(names(&standby), ["a", "recent"]);
    assert!(standby.import("{").is_err() && names(&standby).len() == 2);
}

fn located_record(group: &str, location: &str) -> EntryRecord {
    EntryRecord { locations: vec![location.to_owned()], ..entry_record(group) }
}

fn pairs<const COUNT: usize>(pairs: [(&str, &str); COUNT]) -> Vec<(String, String)> {
    pairs.map(|(name, group)| (name.to_owned(), group.to_owned())).into()
}

#[test]
fn takeover_keeps_holder_of_contested_location() {
    let (leader, standby) = (MirrorMemory::volatile(), MirrorMemory::volatile());
    // The leader has reported a conflict for the entry of `g2`, which sorts before that of `g1`.
    leader.update("m", |record| record.insert("www 2", located_record("g1", "www")));
    let desired = || {
        [("www 1", "g2", "www"), ("www 2", "g1", "www"), ("other", "g2", "other")]
            .map(|(name, group, location)| (name.to_owned(), located_record(group, location)))
    };
    standby.remember_desired("m", desired(), |_, _| true);
    let expected = pairs([("other", "g2"), ("www 2", "g1")]);
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    assert_eq!(names(&standby), expected);
    standby.remember_desired("m", desired(), |_, _| true);
    assert_eq!(names(&standby), expected);
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    assert_eq!(names(&standby), expected);
}

#[test]
fn standby_keeps_imported_holder_of_name() {
    let (leader, standby) = (MirrorMemory::volatile(), MirrorMemory::volatile());
    leader.update("m", |record| record.insert("key", entry_record("g1")));
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    // The target may still contain an entry that its group no longer desires.
    standby.remember_desired("m", [("key".to_owned(), entry_record("g2"))], |_, _| false);
    assert_eq!(names(&standby), pairs([("key", "g1")]));
    // An entry of the same group is updated.
    let updated = EntryRecord { state: "2".into(), ..entry_record("g1") };
    standby.remember_desired("m", [("key".to_owned(), updated)], |_, _| false);
    assert_eq!(standby.record("m").get("key").expect("the entry is recorded").state, "2");
}

#[test]
fn unrecorded_name_goes_to_recent_claimant() {
    let (leader, standby) = (MirrorMemory::volatile(), MirrorMemory::volatile());
    leader.update("m", |record| record.insert("a", entry_record("g1")));
    leader.update("m", |record| record.insert("key", entry_record("g1")));
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    standby.remember_desired("m", [("key".to_owned(), entry_record("g2"))], |_, _| false);
    // The leader has removed the entry of `g1`. It may have added that of `g2` and crashed.
    leader.update("m", |record| record.retain(|name, _| name != "key"));
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    assert_eq!(names(&standby), pairs([("a", "g1"), ("key", "g2")]));
}

#[test]
fn first_recent_claimant_keeps_location() {
    let (leader, standby) = (MirrorMemory::volatile(), MirrorMemory::volatile());
    leader.update("m", |record| record.insert("a", entry_record("g1")));
    let (first, second) =
        (("www 2".to_owned(), located_record("g1", "www")), ("www 1".to_owned(), located_record("g2", "www")));
    standby.remember_desired("m", [first.clone()], |_, _| true);
    standby.remember_desired("m", [second, first], |_, _| true);
    standby.import(&leader.export(1 << 20)).expect("a complete export");
    assert_eq!(names(&standby), pairs([("a", "g1"), ("www 2", "g1")]));
}

#[test]
fn standby_without_leader_entries_follows_claims() {
    let standby = MirrorMemory::volatile();
    let desired = |group: &str| [("key".to_owned(), entry_record(group))];
    standby.remember_desired("m", desired("g1"), |_, _| true);
    // `g1` still desires the name.
    standby.remember_desired("m", desired("g2"), |name, origin| name == "key" && origin.group == "g1");
    assert_eq!(names(&standby), pairs([("key", "g1")]));
    // `g1` has released the name.
    standby.remember_desired("m", desired("g2"), |_, origin| origin.group == "g2");
    assert_eq!(names(&standby), pairs([("key", "g2")]));
}

#[test]
fn slow_update_delays_no_other_mirror() {
    let memory = MirrorMemory::volatile();
    let other = memory.clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let outcome = memory.update("slow", |_| {
        std::thread::spawn(move || {
            other.update("other", |record| record.insert("a", entry_record("g")));
            other.flush("other").expect("nothing to write");
            sender.send(())
        });
        receiver.recv_timeout(Duration::from_secs(60))
    });
    outcome.expect("the other mirror does not wait");
    assert!(memory.record("slow").entries().next().is_none());
    assert_eq!(memory.record("other").entries().count(), 1);
}
