//! Requests before and after a compaction.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::{NAMES, ScriptBuilder};
use crate::differential::kinds::KINDS;
use crate::differential::reads::{METADATA, TABLE};
use crate::differential::script::{ReadMode, Step};

/// Minimum number of pairs of verb and option in the scripts.
pub const MIN_PAIRS: usize = 42;
/// Version that no server reaches.
const FUTURE_VERSION: i64 = 9_000_000_000;

/// Adds a page of a list, and possibly the next one. Later steps use the tokens of these pages.
pub fn add_page(builder: &mut ScriptBuilder, kind: usize) {
    let limit = builder.rng.pick(&["limit=1", "limit=2"]);
    let mut step = Step::new("list", "GET", builder.collection(kind)).query(limit).label("limit");
    if builder.rng.percent(20) {
        step = step.query("labelSelector=app%3Dweb").label("label equal");
    }
    step.accept = builder.rng.pick(&["", "", "", TABLE]);
    let mut last = builder.push(step.clone());
    if builder.rng.percent(30) {
        let next = step.clone().query(&format!("continue=<<continue:{last}>>")).label("continue");
        last = builder.push(next);
    }
    builder.pages.push((last, step));
}

/// Adds one or several requests after a compaction.
pub fn add_request_after_compaction(builder: &mut ScriptBuilder) {
    // A server waits for three seconds before the rejection of a future version. One such request per script is enough.
    let steps = builder.steps.len();
    match builder.rng.below(100) {
        0..22 => add_expired_page(builder),
        22..28 => add_invalid_token(builder),
        28..48 => list(builder),
        48..54 => get(builder),
        54..80 => watch(builder),
        80..84 => delete_collection(builder),
        _ => {
            let kind = builder.kind();
            builder.change(kind);
        }
    }
    let future = FUTURE_VERSION.to_string();
    let (earlier, new) = builder.steps.split_at(steps);
    if new.iter().any(|step| step.path.contains(&future)) && earlier.iter().any(|step| step.path.contains(&future)) {
        builder.steps.truncate(steps);
    }
}

/// Continues an expired list, which fails, and then uses the token of the error.
fn add_expired_page(builder: &mut ScriptBuilder) {
    let (page_step, request) = builder.pages[builder.rng.below(builder.pages.len())].clone();
    let (path, query) = request.path.split_once('?').unwrap_or_default();
    let mut continuation = request.clone();
    continuation.options.clear();
    let token = format!("continue=<<continue:{page_step}>>");
    match builder.rng.below(10) {
        0 => {
            let kind = builder.kind();
            let other_collection = builder.collection(kind);
            builder.push(
                Step { path: other_collection, ..continuation }
                    .query(query)
                    .query(&token)
                    .label("token of another resource"),
            );
        }
        1 => {
            let other_namespace_path = path.replace(&builder.namespace, &format!("{}-b", builder.namespace));
            let step = Step { path: other_namespace_path, ..continuation }.query("limit=5").query(&token);
            let rejected_step = builder.push(step.label("token of another namespace"));
            continue_list(builder, &request, rejected_step, "another namespace");
        }
        2 => {
            builder.push(continuation.query(&token).query("resourceVersion=<<version:2>>").label("token and version"));
        }
        _ => {
            continuation = continuation.query(&token).label("expired token");
            let rejected_step = builder.push(continuation);
            continue_list(builder, &request, rejected_step, "");
        }
    }
}

fn continue_list(builder: &mut ScriptBuilder, request: &Step, rejected_step: usize, other_namespace: &str) {
    if builder.rng.percent(20) {
        let kind = builder.kind();
        builder.change(kind);
    }
    let mut continuation = request.clone();
    if !other_namespace.is_empty() {
        continuation.path = continuation.path.replacen(&builder.namespace, &format!("{}-b", builder.namespace), 1);
    }
    continuation.options.clear();
    let step =
        continuation.clone().query(&format!("continue=<<continue:{rejected_step}>>")).label("the rest as it is now");
    let next = builder.push(step);
    if builder.rng.percent(60) {
        builder.push(continuation.query(&format!("continue=<<continue:{next}>>")).label("continue"));
    }
}

/// Adds a token that no server issued.
fn add_invalid_token(builder: &mut ScriptBuilder) {
    let encode_token = |version: &str, rv: i64, start: &str| {
        URL_SAFE_NO_PAD.encode(json!({"v": version, "rv": rv, "start": start}).to_string())
    };
    let (option, token) = match builder.rng.below(9) {
        0 => ("malformed token", "%25%25".to_owned()),
        1 => ("malformed token", URL_SAFE_NO_PAD.encode("{")),
        2 => ("malformed token", URL_SAFE_NO_PAD.encode("[]")),
        3 => ("malformed token", encode_token("v2", 1, "a")),
        4 => ("malformed token", encode_token("meta.k8s.io/v1", 0, "a")),
        5 => ("malformed token", encode_token("meta.k8s.io/v1", 7, "")),
        6 => ("malformed token", encode_token("meta.k8s.io/v1", 7, "../a")),
        7 => ("token of our own", encode_token("meta.k8s.io/v1", -1, "b\0")),
        _ => ("token of the future", encode_token("meta.k8s.io/v1", FUTURE_VERSION, "b\0")),
    };
    let kind = builder.kind();
    let step = Step::new("list", "GET", builder.collection(kind)).query(&format!("continue={token}"));
    let step = if builder.rng.percent(50) { step.query("limit=1") } else { step };
    builder.push(step.label(option));
}

/// Adds a list at a version.
fn list(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let collection = builder.collection(kind);
    let version = builder.version();
    let mut step = Step::new("list", "GET", collection.clone());
    let is_all_namespaces = builder.rng.percent(15);
    if is_all_namespaces {
        step.path = format!("{}/{}?labelSelector=script%3D{}", KINDS[kind].root, KINDS[kind].plural, builder.namespace);
        step = step.label("all namespaces");
    }
    if builder.rng.percent(20) {
        step.accept = TABLE;
    }
    let (query, option) = match builder.rng.below(12) {
        0..3 => (format!("resourceVersion={version}&resourceVersionMatch=Exact"), "exact"),
        3 if !is_all_namespaces => (format!("resourceVersion={version}&limit=2"), "version and limit"),
        4 => (format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"), "not older"),
        5 => (format!("resourceVersion={version}"), "version"),
        6 => ("resourceVersion=1&resourceVersionMatch=Exact".to_owned(), "the first version"),
        7 => {
            (format!("resourceVersion={FUTURE_VERSION}&resourceVersionMatch=NotOlderThan"), "not older than the future")
        }
        8 => (format!("resourceVersion={FUTURE_VERSION}&resourceVersionMatch=Exact"), "the future exactly"),
        9 => (format!("resourceVersion={FUTURE_VERSION}"), "version of the future"),
        10 => ("resourceVersion=0".to_owned(), "any version"),
        _ => ("pretty=false".to_owned(), "newest"),
    };
    step.wait_for_watch_cache = Some(collection);
    builder.push(step.query(&query).label(option));
}

fn get(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let collection = builder.collection(kind);
    let mut step = Step::new("get", "GET", format!("{collection}/{}", builder.rng.pick(NAMES)));
    step.wait_for_watch_cache = Some(collection);
    let version = builder.version();
    let (version, option) = match builder.rng.below(4) {
        0 => (FUTURE_VERSION.to_string(), "version of the future"),
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
    step.read_mode = ReadMode::UntilSentinel;
    step.wait_for_watch_cache = Some(collection);
    let version = builder.version();
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (query, option) = match builder.rng.below(16) {
        0..5 => (format!("resourceVersion={version}"), "version"),
        5 => ("resourceVersion=1".to_owned(), "the first version"),
        6 => (format!("{initial}&resourceVersion={version}"), "initial events, version"),
        7 => (format!("{initial}&resourceVersion=1"), "initial events, the first version"),
        8 => (format!("{initial}&resourceVersion=0"), "initial events, any version"),
        9 => (initial.to_owned(), "initial events"),
        10 => (format!("{initial}&resourceVersion={FUTURE_VERSION}"), "initial events, the future"),
        11 => {
            let without_initial_events = "sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
            (format!("{without_initial_events}&resourceVersion={version}"), "no initial events")
        }
        12 => ("resourceVersion=0".to_owned(), "any version"),
        13 => (format!("resourceVersion={version}&allowWatchBookmarks=true"), "bookmarks"),
        14 => ("fieldSelector=metadata.name%3Da&resourceVersion=1".to_owned(), "of one, the first version"),
        _ => ("allowWatchBookmarks=true".to_owned(), "newest"),
    };
    step.accept = builder.rng.pick(&["", "", "", "", METADATA, TABLE]);
    builder.push(step.query(&query).label(option));
}

fn delete_collection(builder: &mut ScriptBuilder) {
    let kind = builder.kind();
    let version = builder.version();
    let collection = builder.collection(kind);
    let mut step = Step::new("delete collection", "DELETE", collection.clone());
    step.wait_for_watch_cache = Some(collection);
    let (query, option) = match builder.rng.below(3) {
        0 => (format!("resourceVersion={version}&resourceVersionMatch=Exact"), "exact"),
        1 => ("labelSelector=app%3Ddb&resourceVersion=0".to_owned(), "any version"),
        _ => (format!("labelSelector=app%3Ddb&resourceVersion={version}"), "version"),
    };
    builder.push(step.query(&query).label(option));
}
