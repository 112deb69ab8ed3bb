//! Requests that read.

use crate::generate::{KINDS, NAMES, Plot};
use crate::script::{Reading, Step};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// One object.
pub fn get(plot: &mut Plot) {
    let (kind, name) = match plot.existing() {
        Some((kind, name, _)) => (kind, name),
        None => (plot.kind(), plot.chance.one(NAMES)),
    };
    let collection = plot.collection(KINDS[kind]);
    let mut step = Step::new("get", "GET", format!("{collection}/{name}"));
    match plot.chance.below(8) {
        0 => {
            step.after_cache = Some(collection);
            step = step.query("resourceVersion=0").with("any version");
        }
        1 if !plot.versions.is_empty() => {
            let (_, version) = plot.versions[plot.chance.below(plot.versions.len())];
            step.after_cache = Some(collection);
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).with("version");
        }
        2 => {
            step.accept = TABLE;
            step = step.with("table");
        }
        3 => {
            step.accept = METADATA;
            step = step.with("metadata only");
        }
        4 if KINDS[kind].custom => {
            step.path.push_str("/status");
            step = step.with("status");
        }
        _ => step = step.with("plain"),
    }
    plot.push(step);
}

/// A list, and the pages that follow.
pub fn list(plot: &mut Plot) {
    let index = plot.kind();
    let kind = KINDS[index];
    let collection = plot.collection(kind);
    let mut step = Step::new("list", "GET", collection.clone());
    let mut selected = false;
    if plot.chance.percent(20) {
        step.path = format!("{}/{}", kind.root, kind.plural);
        step = step.query(&format!("labelSelector=script%3D{}", plot.namespace)).with("all namespaces");
        selected = true;
    }
    // Other scripts write, at other times on either server, what tells whether more would follow.
    let limit = !selected && plot.chance.percent(45);
    if limit {
        let most = plot.chance.one(&["limit=1", "limit=2", "limit=500"]);
        step = step.query(most).with("limit");
    }
    if !selected && plot.chance.percent(35) {
        step = selectors(plot, step);
    }
    let of_kind: Vec<usize> = plot.versions.iter().filter(|(of, _)| *of == index).map(|(_, step)| *step).collect();
    let version = (!of_kind.is_empty()).then(|| plot.chance.one(&of_kind));
    let exact = match (plot.chance.below(9), version) {
        (0, _) => {
            step.after_cache = Some(collection.clone());
            step = step.query("resourceVersion=0").with("any version");
            false
        }
        (1, _) => {
            step.after_cache = Some(collection.clone());
            step = step.query("resourceVersion=0&resourceVersionMatch=NotOlderThan").with("any version, matched");
            false
        }
        (2, Some(version)) => {
            step.after_cache = Some(collection.clone());
            step = step.query(&format!("resourceVersion=<<version:{version}>>&resourceVersionMatch=NotOlderThan"));
            step = step.with("not older");
            false
        }
        (3, Some(version)) => {
            step = step.query(&format!("resourceVersion=<<version:{version}>>&resourceVersionMatch=Exact"));
            step = step.with("exact");
            true
        }
        (4, Some(version)) => {
            step.after_cache = Some(collection.clone());
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).with("version");
            limit
        }
        _ => {
            step = step.with("newest");
            false
        }
    };
    match plot.chance.below(6) {
        0 => {
            step.accept = TABLE;
            step = step.with("table");
        }
        1 => {
            step.accept = METADATA_LIST;
            step = step.with("metadata only");
        }
        _ => {}
    }
    let (path, accept) = (step.path.clone(), step.accept);
    let mut last = plot.push(step);
    if limit && !exact && !path.contains("resourceVersion") {
        for _ in 0..plot.chance.below(3) {
            // What is written between two pages is not seen in the second.
            if plot.chance.percent(30) {
                crate::writes::create(plot);
            }
            let mut page = Step::new("list", "GET", path.clone()).with("continue");
            page.accept = accept;
            last = plot.push(page.query(&format!("continue=<<continue:{last}>>")));
        }
    }
}

fn selectors(plot: &mut Plot, step: Step) -> Step {
    match plot.chance.below(9) {
        0 => step.query("labelSelector=app%3Dweb").with("label equal"),
        1 => step.query("labelSelector=app%21%3Dweb").with("label unequal"),
        2 => step.query("labelSelector=app+in+%28web%2Capi%29").with("label in"),
        3 => step.query("labelSelector=app+notin+%28web%29%2Cscript").with("label not in"),
        4 => step.query("labelSelector=extra").with("label there"),
        5 => step.query("labelSelector=%21extra").with("label not there"),
        6 => step.query("fieldSelector=metadata.name%3Da").with("field name"),
        7 => step.query("fieldSelector=metadata.name%21%3Da").with("field name unequal"),
        _ => {
            let namespace = plot.namespace.clone();
            step.query(&format!("fieldSelector=metadata.namespace%3D{namespace}")).with("field namespace")
        }
    }
}

/// A watch, ended by the script's last objects.
pub fn watch(plot: &mut Plot) {
    let index = plot.kind();
    let kind = KINDS[index];
    let collection = plot.collection(kind);
    let mut step = Step::new("watch", "GET", collection.clone()).query("watch=true&timeoutSeconds=120");
    step.reading = Reading::UntilSentinel;
    step.after_cache = Some(collection.clone());
    if plot.chance.percent(20) {
        step.path = format!("{}/{}?watch=1&timeoutSeconds=120", kind.root, kind.plural);
        step = step.query(&format!("labelSelector=script%3D{}", plot.namespace)).with("all namespaces");
    } else if plot.chance.percent(40) {
        step = match plot.chance.below(3) {
            0 => step.query("labelSelector=app%3Dweb").with("labels"),
            1 => step.query("labelSelector=app+in+%28web%2Capi%29").with("label set"),
            _ => step.query("fieldSelector=metadata.name%21%3Da").with("fields"),
        };
    }
    let of_kind: Vec<usize> = plot.versions.iter().filter(|(of, _)| *of == index).map(|(_, step)| *step).collect();
    match (plot.chance.below(6), of_kind.is_empty()) {
        (0, _) => step = step.with("newest"),
        (1, _) => step = step.query("resourceVersion=0").with("any version"),
        (2, _) => {
            step = step.query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
            step = step.with("initial events");
        }
        (_, false) => {
            let version = plot.chance.one(&of_kind);
            step = step.query(&format!("resourceVersion=<<version:{version}>>")).with("version");
            if plot.chance.percent(30) {
                step = step.query("allowWatchBookmarks=true").with("bookmarks");
            }
        }
        _ => {
            step = step.query("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0");
            step = step.query("allowWatchBookmarks=true").with("initial events");
        }
    }
    if plot.chance.percent(20) {
        step.accept = METADATA;
        step = step.with("metadata only");
    }
    plot.push(step);
}

/// What is served.
pub fn discovery(plot: &mut Plot) {
    let path = plot.chance.one(&[
        "/apis/differential.steadfast.dev",
        "/apis/differential.steadfast.dev/v1",
        "/apis/coordination.k8s.io",
        "/apis/coordination.k8s.io/v1",
        "/api",
        "/healthz",
        "/readyz",
        "/livez",
    ]);
    plot.push(Step::new("discovery", "GET", path.to_owned()).with("plain"));
}
