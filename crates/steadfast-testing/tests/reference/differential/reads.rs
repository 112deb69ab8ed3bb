//! Requests that read.

use crate::differential::generate::{NAMES, ScriptBuilder};
use crate::differential::kinds::KINDS;
use crate::differential::script::Step;

/// Media type of a table.
pub const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// Media type of the metadata of an object.
pub const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Adds a read of one object.
pub fn get(builder: &mut ScriptBuilder) {
    let (kind, name) = match builder.existing_object() {
        Some((kind, name, _)) => (kind, name),
        None => (builder.kind(), builder.rng.pick(NAMES)),
    };
    let collection = builder.collection(kind);
    let mut step = Step::new("get", "GET", builder.path_of(kind, name));
    match builder.rng.below(8) {
        0 => {
            step.wait_for_watch_cache = Some(collection);
            step = step.query("resourceVersion=0").label("any version");
        }
        1 if !builder.versions.is_empty() => {
            let (_, version) = builder.versions[builder.rng.below(builder.versions.len())];
            step.wait_for_watch_cache = Some(collection);
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).label("version");
        }
        2 => {
            step.accept = TABLE;
            step = step.label("table");
        }
        3 => {
            step.accept = METADATA;
            step = step.label("metadata only");
        }
        4 if KINDS[kind].kind == "Widget" => {
            step.path.push_str("/status");
            step = step.label("status");
        }
        _ => step = step.label("plain"),
    }
    builder.push(step);
}

/// Adds a list, with its later pages.
pub fn list(builder: &mut ScriptBuilder) {
    let index = builder.kind();
    let kind = KINDS[index];
    let collection = builder.collection(index);
    let mut step = Step::new("list", "GET", collection.clone());
    let mut is_shared = !kind.is_namespaced;
    if !is_shared && builder.rng.percent(20) {
        step.path = format!("{}/{}", kind.root, kind.plural);
        step = step.label("all namespaces");
        is_shared = true;
    } else if is_shared {
        step = step.label("cluster-scoped");
    }
    // Other scripts write at different times on each server, so the number of remaining objects is not comparable.
    let has_limit = !is_shared && builder.rng.percent(45);
    if has_limit {
        let limit_query = builder.rng.pick(&["limit=1", "limit=2", "limit=500"]);
        step = step.query(limit_query).label("limit");
    }
    if builder.rng.percent(40) {
        step = selectors(builder, step);
    }
    let version = builder.step_with_version(index);
    let is_exact = match (builder.rng.below(9), version) {
        (0, _) => {
            step.wait_for_watch_cache = Some(collection.clone());
            step = step.query("resourceVersion=0").label("any version");
            false
        }
        (1, _) => {
            step.wait_for_watch_cache = Some(collection.clone());
            step = step.query("resourceVersion=0&resourceVersionMatch=NotOlderThan").label("any version, matched");
            false
        }
        (2, Some(version)) => {
            step.wait_for_watch_cache = Some(collection.clone());
            step = step.query(&format!("resourceVersion=<<version:{version}>>&resourceVersionMatch=NotOlderThan"));
            step = step.label("not older");
            false
        }
        (3, Some(version)) => {
            step = step.query(&format!("resourceVersion=<<version:{version}>>&resourceVersionMatch=Exact"));
            step = step.label("exact");
            true
        }
        (4, Some(version)) => {
            step.wait_for_watch_cache = Some(collection.clone());
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).label("version");
            has_limit
        }
        _ => {
            step = step.label("newest");
            false
        }
    };
    match builder.rng.below(6) {
        0 => {
            step.accept = TABLE;
            step = step.label("table");
        }
        1 => {
            step.accept = METADATA_LIST;
            step = step.label("metadata only");
        }
        _ => {}
    }
    step = builder.limit_to_own_objects(index, step);
    let (path, accept) = (step.path.clone(), step.accept);
    let mut last = builder.push(step);
    if has_limit && !is_exact && !path.contains("resourceVersion") {
        for _ in 0..builder.rng.below(3) {
            // A write between two pages must not appear in the second page.
            if builder.rng.percent(30) {
                crate::differential::writes::create(builder);
            }
            let mut page = Step::new("list", "GET", path.clone()).label("continue");
            page.accept = accept;
            last = builder.push(page.query(&format!("continue=<<continue:{last}>>")));
        }
    }
}

fn selectors(builder: &mut ScriptBuilder, step: Step) -> Step {
    let (option, query) = builder.rng.pick(&[
        ("label equal", "labelSelector=app%3Dweb"),
        ("label equal", "labelSelector=app%3D%3Dweb"),
        ("label unequal", "labelSelector=app%21%3Dweb"),
        ("label in", "labelSelector=app+in+%28web%2Capi%29"),
        ("label in", "labelSelector=app+in+%28%2Cweb%29"),
        ("label not in", "labelSelector=app+notin+%28web%29%2Cscript"),
        ("label there", "labelSelector=extra"),
        ("label not there", "labelSelector=%21extra"),
        ("label greater", "labelSelector=rank%3E5"),
        ("label less", "labelSelector=rank%3C7"),
        ("labels, several", "labelSelector=app+in+%28web%2Cdb%29%2Crank+notin+%283%29%2C%21other"),
        ("field name", "fieldSelector=metadata.name%3Da"),
        ("field name unequal", "fieldSelector=metadata.name%21%3Da"),
        ("field namespace", "fieldSelector=metadata.namespace%3D"),
        ("field escaped", "fieldSelector=metadata.name%3Da%5C%2Cb"),
        ("labels and fields", "labelSelector=app&fieldSelector=metadata.name%3D%3Db"),
    ]);
    step.query(query).label(option)
}
