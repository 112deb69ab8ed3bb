//! Watches.

use crate::differential::generate::ScriptBuilder;
use crate::differential::kinds::KINDS;
use crate::differential::reads::{METADATA, TABLE};
use crate::differential::script::{ReadMode, Step};

/// Adds a watch that ends with the script's last objects, which match each of these selectors.
pub fn watch(builder: &mut ScriptBuilder) {
    let index = builder.kind();
    let kind = KINDS[index];
    builder.watched.insert(index);
    let collection = builder.collection(index);
    let mut step = Step::new("watch", "GET", collection.clone());
    step.read_mode = ReadMode::UntilSentinel;
    step.wait_for_watch_cache = Some(collection.clone());
    if !kind.is_namespaced {
        step = step.label("cluster-scoped");
    } else if builder.rng.percent(20) {
        step.path = format!("{}/{}", kind.root, kind.plural);
        step = step.label("all namespaces");
    }
    step = step.query(builder.rng.pick(&["watch=true", "watch=1"])).query("timeoutSeconds=120");
    if builder.rng.percent(45) {
        let (option, query) = builder.rng.pick(&[
            ("label equal", "labelSelector=app%3Dweb"),
            ("label unequal", "labelSelector=app%21%3Dapi"),
            ("label in", "labelSelector=app+in+%28web%2Capi%29"),
            ("label not in", "labelSelector=app+notin+%28api%2Cdb%29"),
            ("label there", "labelSelector=extra"),
            ("label not there", "labelSelector=%21other"),
            ("label greater", "labelSelector=rank%3E5"),
            ("label less", "labelSelector=rank%3C9"),
            ("fields", "fieldSelector=metadata.name%21%3Da"),
            ("labels and fields", "labelSelector=app%3Dweb&fieldSelector=metadata.name%21%3Db"),
        ]);
        step = step.query(query).label(option);
    }
    let version = builder.step_with_version(index);
    match (builder.rng.below(8), version) {
        (0, _) => step = step.label("newest"),
        (1, _) => step = step.query("resourceVersion=0").label("any version"),
        (2, _) => {
            step = step.query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
            step = step.label("initial events");
        }
        (3, _) => {
            step = step.query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0");
            step = step.query("allowWatchBookmarks=true").label("initial events, any version");
        }
        (4, Some(version)) => {
            step = step.query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).label("initial events, version");
        }
        (5, Some(version)) => {
            step = step.query("sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).label("no initial events");
        }
        (_, Some(version)) => {
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).label("version");
            if builder.rng.percent(30) {
                step = step.query("allowWatchBookmarks=true").label("bookmarks");
            }
        }
        _ => step = step.query("resourceVersion=0&allowWatchBookmarks=true").label("any version"),
    }
    match builder.rng.below(6) {
        0 => {
            step.accept = METADATA;
            step = step.label("metadata only");
        }
        1 => {
            step.accept = TABLE;
            step = step.label("table");
        }
        2 => {
            step.accept = "application/json;stream=watch";
            step = step.label("stream");
        }
        _ => {}
    }
    let step = builder.limit_to_own_objects(index, step);
    builder.push(step);
}
