//! Requests before and after a compaction.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::{NAMES, ScriptBuilder};
use crate::differential::kinds::KINDS;
use crate::differential::reads::{METADATA, TABLE};
use crate::differential::script::{Reading, Step};

/// Minimum number of pairs of verb and option in the scripts.
pub const PAIRS: usize = 42;
/// Version that no server reaches.
const FUTURE: i64 = 9_000_000_000;

/// Adds a page of a list, and possibly the next one. Later steps use the tokens of these pages.
pub fn page(builder: &mut ScriptBuilder, kind: usize) {
    let limit = builder.chance.pick(&["limit=1", "limit=2"]);
    let mut step = Step::new("list", "GET", builder.collection(kind)).query(limit).label("limit");
    if builder.chance.percent(20) {
        step = step.query("labelSelector=app%3Dweb").label("label equal");
    }
    step.accept = builder.chance.pick(&["", "", "", TABLE]);
    let mut last = builder.push(step.clone());
    if builder.chance.percent(30) {
        let next = step.clone().query(&format!("continue=<<continue:{last}>>")).label("continue");
        last = builder.push(next);
    }
    builder.pages.push((last, step));
}

/// Adds one or several requests after a compaction.
pub fn after(builder: &mut ScriptBuilder) {
    // A server waits for three seconds before the rejection of a future version. One such request per script is enough.
    let steps = builder.steps.len();
    match builder.chance.below(100) {
        0..22 => old_page(builder),
        22..28 => strange_token(builder),
        28..48 => list(builder),
        48..54 => get(builder),
        54..80 => watch(builder),
        80..84 => delete_collection(builder),
        _ => {
            let kind = builder.kind();
            builder.change(kind);
        }
    }
    let future = FUTURE.to_string();
    let (before, new) = builder.steps.split_at(steps);
    if new.iter().any(|step| step.path.contains(&future)) && before.iter().any(|step| step.path.contains(&future)) {
        builder.steps.truncate(steps);
    }
}

/// Continues an expired list, which fails, and then uses the token of the error.
fn old_page(builder: &mut ScriptBuilder) {
    let (page, request) = builder.pages[builder.chance.below(builder.pages.len())].clone();
    let (path, query) = request.path.split_once('?').unwrap_or_default();
    let mut elsewhere = request.clone();
    elsewhere.options.clear();
    let token = format!("continue=<<continue:{page}>>");
    match builder.chance.below(10) {
        0 => {
            let kind = builder.kind();
            let other = builder.collection(kind);
            builder
                .push(Step { path: other, ..elsewhere }.query(query).query(&token).label("token of another resource"));
        }
        1 => {
            let beside = path.replace(&builder.namespace, &format!("{}-b", builder.namespace));
            let step = Step { path: beside, ..elsewhere }.query("limit=5").query(&token);
            let refused = builder.push(step.label("token of another namespace"));
            continue_list(builder, &request, refused, "another namespace");
        }
        2 => {
            builder.push(elsewhere.query(&token).query("resourceVersion=<<version:2>>").label("token and version"));
        }
        _ => {
            elsewhere = elsewhere.query(&token).label("expired token");
            let refused = builder.push(elsewhere);
            continue_list(builder, &request, refused, "");
        }
    }
}

fn continue_list(builder: &mut ScriptBuilder, request: &Step, refused: usize, elsewhere: &str) {
    if builder.chance.percent(20) {
        let kind = builder.kind();
        builder.change(kind);
    }
    let mut rest = request.clone();
    if !elsewhere.is_empty() {
        rest.path = rest.path.replacen(&builder.namespace, &format!("{}-b", builder.namespace), 1);
    }
    rest.options.clear();
    let step = rest.clone().query(&format!("continue=<<continue:{refused}>>")).label("the rest as it is now");
    let next = builder.push(step);
    if builder.chance.percent(60) {
        builder.push(rest.query(&format!("continue=<<continue:{next}>>")).label("continue"));
    }
}

/// Adds a token that no server issued.
fn strange_token(builder: &mut ScriptBuilder) {
    let of = |version: &str, rv: i64, start: &str| {
        URL_SAFE_NO_PAD.encode(json!({"v": version, "rv": rv, "start": start}).to_string())
    };
    let (option, token) = match builder.chance.below(9) {
        0 => ("malformed token", "%25%25".to_owned()),
        1 => ("malformed token", URL_SAFE_NO_PAD.encode("{")),
        2 => ("malformed token", URL_SAFE_NO_PAD.encode("[]")),
        3 => ("malformed token", of("v2", 1, "a")),
        4 => ("malformed token", of("meta.k8s.io/v1", 0, "a")),
        5 => ("malformed token", of("meta.k8s.io/v1", 7, "")),
        6 => ("malformed token", of("meta.k8s.io/v1", 7, "../a")),
        7 => ("token of our own", of("meta.k8s.io/v1", -1, "b\0")),
        _ => ("token of the future", of("meta.k8s.io/v1", FUTURE, "b\0")),
    };
    let kind = builder.kind();
    let step = Step::new("list", "GET", builder.collection(kind)).query(&format!("continue={token}"));
    let step = if builder.chance.percent(50) { step.query("limit=1") } else { step };
    builder.push(step.label(option));
}

/// Adds a list at a version.
fn list(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let collection = builder.collection(kind);
    let version = builder.version();
    let mut step = Step::new("list", "GET", collection.clone());
    let all = builder.chance.percent(15);
    if all {
        step.path = format!("{}/{}?labelSelector=script%3D{}", KINDS[kind].root, KINDS[kind].plural, builder.namespace);
        step = step.label("all namespaces");
    }
    if builder.chance.percent(20) {
        step.accept = TABLE;
    }
    let (query, option) = match builder.chance.below(12) {
        0..3 => (format!("resourceVersion={version}&resourceVersionMatch=Exact"), "exact"),
        3 if !all => (format!("resourceVersion={version}&limit=2"), "version and limit"),
        4 => (format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"), "not older"),
        5 => (format!("resourceVersion={version}"), "version"),
        6 => ("resourceVersion=1&resourceVersionMatch=Exact".to_owned(), "the first version"),
        7 => (format!("resourceVersion={FUTURE}&resourceVersionMatch=NotOlderThan"), "not older than the future"),
        8 => (format!("resourceVersion={FUTURE}&resourceVersionMatch=Exact"), "the future exactly"),
        9 => (format!("resourceVersion={FUTURE}"), "version of the future"),
        10 => ("resourceVersion=0".to_owned(), "any version"),
        _ => ("pretty=false".to_owned(), "newest"),
    };
    step.wait_for_watch_cache = Some(collection);
    builder.push(step.query(&query).label(option));
}

fn get(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let collection = builder.collection(kind);
    let mut step = Step::new("get", "GET", format!("{collection}/{}", builder.chance.pick(NAMES)));
    step.wait_for_watch_cache = Some(collection);
    let version = builder.version();
    let (version, option) = match builder.chance.below(4) {
        0 => (FUTURE.to_string(), "version of the future"),
        1 => ("1".to_owned(), "the first version"),
        _ => (version, "version"),
    };
    builder.push(step.query(&format!("resourceVersion={version}")).label(option));
}

fn watch(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    builder.watched.insert(kind);
    let collection = builder.collection(kind);
    let mut step = Step::new("watch", "GET", collection.clone()).query("watch=1").query("timeoutSeconds=60");
    step.reading = Reading::UntilSentinel;
    step.wait_for_watch_cache = Some(collection);
    let version = builder.version();
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (query, option) = match builder.chance.below(16) {
        0..5 => (format!("resourceVersion={version}"), "version"),
        5 => ("resourceVersion=1".to_owned(), "the first version"),
        6 => (format!("{initial}&resourceVersion={version}"), "initial events, version"),
        7 => (format!("{initial}&resourceVersion=1"), "initial events, the first version"),
        8 => (format!("{initial}&resourceVersion=0"), "initial events, any version"),
        9 => (initial.to_owned(), "initial events"),
        10 => (format!("{initial}&resourceVersion={FUTURE}"), "initial events, the future"),
        11 => {
            let quiet = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
            (format!("{quiet}&resourceVersion={version}"), "no initial events")
        }
        12 => ("resourceVersion=0".to_owned(), "any version"),
        13 => (format!("resourceVersion={version}&allowWatchBookmarks=true"), "bookmarks"),
        14 => ("fieldSelector=metadata.name%3Da&resourceVersion=1".to_owned(), "of one, the first version"),
        _ => ("allowWatchBookmarks=true".to_owned(), "newest"),
    };
    step.accept = builder.chance.pick(&["", "", "", "", METADATA, TABLE]);
    builder.push(step.query(&query).label(option));
}

fn delete_collection(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let version = builder.version();
    let collection = builder.collection(kind);
    let mut step = Step::new("delete collection", "DELETE", collection.clone());
    step.wait_for_watch_cache = Some(collection);
    let (query, option) = match builder.chance.below(3) {
        0 => (format!("resourceVersion={version}&resourceVersionMatch=Exact"), "exact"),
        1 => ("labelSelector=app%3Ddb&resourceVersion=0".to_owned(), "any version"),
        _ => (format!("labelSelector=app%3Ddb&resourceVersion={version}"), "version"),
    };
    builder.push(step.query(&query).label(option));
}
