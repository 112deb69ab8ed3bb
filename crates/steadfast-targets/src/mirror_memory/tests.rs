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
    standby.remember_desired("web", [("recent".to_owned(), entry_record("ops"))]);
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
