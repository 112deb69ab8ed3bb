//! Requests before and after a compaction.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::{NAMES, Plot};
use crate::differential::kinds::KINDS;
use crate::differential::reads::{METADATA, TABLE};
use crate::differential::script::{Reading, Step};

/// Minimum number of pairs of verb and option in the scripts.
pub const PAIRS: usize = 42;
/// Version that no server reaches.
const FUTURE: i64 = 9_000_000_000;

/// Adds a page of a list, and possibly the next one. Later steps use their tokens.
pub fn page(plot: &mut Plot, kind: usize) {
    let limit = plot.chance.pick(&["limit=1", "limit=2"]);
    let mut step = Step::new("list", "GET", plot.collection(kind)).query(limit).with("limit");
    if plot.chance.percent(20) {
        step = step.query("labelSelector=app%3Dweb").with("label equal");
    }
    step.accept = plot.chance.pick(&["", "", "", TABLE]);
    let mut last = plot.push(step.clone());
    if plot.chance.percent(30) {
        let next = step.clone().query(&format!("continue=<<continue:{last}>>")).with("continue");
        last = plot.push(next);
    }
    plot.pages.push((last, step));
}

/// Adds one or several requests after a compaction.
pub fn after(plot: &mut Plot) {
    // A server waits for three seconds before the rejection of a future version. One such request per script is enough.
    let steps = plot.steps.len();
    match plot.chance.below(100) {
        0..22 => old_page(plot),
        22..28 => strange_token(plot),
        28..48 => list(plot),
        48..54 => get(plot),
        54..80 => watch(plot),
        80..84 => delete_collection(plot),
        _ => {
            let kind = plot.kind();
            plot.change(kind);
        }
    }
    let future = FUTURE.to_string();
    let (before, new) = plot.steps.split_at(steps);
    if new.iter().any(|step| step.path.contains(&future)) && before.iter().any(|step| step.path.contains(&future)) {
        plot.steps.truncate(steps);
    }
}

/// Continues an expired list, which fails, and then uses the token of the error.
fn old_page(plot: &mut Plot) {
    let (page, request) = plot.pages[plot.chance.below(plot.pages.len())].clone();
    let (path, query) = request.path.split_once('?').unwrap_or_default();
    let mut elsewhere = request.clone();
    elsewhere.options.clear();
    let token = format!("continue=<<continue:{page}>>");
    match plot.chance.below(10) {
        0 => {
            let kind = plot.kind();
            let other = plot.collection(kind);
            plot.push(Step { path: other, ..elsewhere }.query(query).query(&token).with("token of another resource"));
        }
        1 => {
            let beside = path.replace(&plot.namespace, &format!("{}-b", plot.namespace));
            let step = Step { path: beside, ..elsewhere }.query("limit=5").query(&token);
            let refused = plot.push(step.with("token of another namespace"));
            go_on(plot, &request, refused, "another namespace");
        }
        2 => {
            plot.push(elsewhere.query(&token).query("resourceVersion=<<version:2>>").with("token and version"));
        }
        _ => {
            elsewhere = elsewhere.query(&token).with("expired token");
            let refused = plot.push(elsewhere);
            go_on(plot, &request, refused, "");
        }
    }
}

fn go_on(plot: &mut Plot, request: &Step, refused: usize, elsewhere: &str) {
    if plot.chance.percent(20) {
        let kind = plot.kind();
        plot.change(kind);
    }
    let mut rest = request.clone();
    if !elsewhere.is_empty() {
        rest.path = rest.path.replacen(&plot.namespace, &format!("{}-b", plot.namespace), 1);
    }
    rest.options.clear();
    let step = rest.clone().query(&format!("continue=<<continue:{refused}>>")).with("the rest as it is now");
    let next = plot.push(step);
    if plot.chance.percent(60) {
        plot.push(rest.query(&format!("continue=<<continue:{next}>>")).with("continue"));
    }
}

/// Adds a token that no server issued.
fn strange_token(plot: &mut Plot) {
    let of = |version: &str, rv: i64, start: &str| {
        URL_SAFE_NO_PAD.encode(json!({"v": version, "rv": rv, "start": start}).to_string())
    };
    let (option, token) = match plot.chance.below(9) {
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
    let kind = plot.kind();
    let step = Step::new("list", "GET", plot.collection(kind)).query(&format!("continue={token}"));
    let step = if plot.chance.percent(50) { step.query("limit=1") } else { step };
    plot.push(step.with(option));
}

/// Adds a list at a version.
fn list(plot: &mut Plot) {
    let kind = plot.kind();
    let collection = plot.collection(kind);
    let version = plot.version();
    let mut step = Step::new("list", "GET", collection.clone());
    let all = plot.chance.percent(15);
    if all {
        step.path = format!("{}/{}?labelSelector=script%3D{}", KINDS[kind].root, KINDS[kind].plural, plot.namespace);
        step = step.with("all namespaces");
    }
    if plot.chance.percent(20) {
        step.accept = TABLE;
    }
    let (query, option) = match plot.chance.below(12) {
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
    step.after_cache = Some(collection);
    plot.push(step.query(&query).with(option));
}

fn get(plot: &mut Plot) {
    let kind = plot.kind();
    let collection = plot.collection(kind);
    let mut step = Step::new("get", "GET", format!("{collection}/{}", plot.chance.pick(NAMES)));
    step.after_cache = Some(collection);
    let version = plot.version();
    let (version, option) = match plot.chance.below(4) {
        0 => (FUTURE.to_string(), "version of the future"),
        1 => ("1".to_owned(), "the first version"),
        _ => (version, "version"),
    };
    plot.push(step.query(&format!("resourceVersion={version}")).with(option));
}

fn watch(plot: &mut Plot) {
    let kind = plot.kind();
    plot.watched.insert(kind);
    let collection = plot.collection(kind);
    let mut step = Step::new("watch", "GET", collection.clone()).query("watch=1").query("timeoutSeconds=60");
    step.reading = Reading::UntilSentinel;
    step.after_cache = Some(collection);
    let version = plot.version();
    let initial = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let (query, option) = match plot.chance.below(16) {
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
    step.accept = plot.chance.pick(&["", "", "", "", METADATA, TABLE]);
    plot.push(step.query(&query).with(option));
}

fn delete_collection(plot: &mut Plot) {
    let kind = plot.kind();
    let version = plot.version();
    let collection = plot.collection(kind);
    let mut step = Step::new("delete collection", "DELETE", collection.clone());
    step.after_cache = Some(collection);
    let (query, option) = match plot.chance.below(3) {
        0 => (format!("resourceVersion={version}&resourceVersionMatch=Exact"), "exact"),
        1 => ("labelSelector=app%3Ddb&resourceVersion=0".to_owned(), "any version"),
        _ => (format!("labelSelector=app%3Ddb&resourceVersion={version}"), "version"),
    };
    plot.push(step.query(&query).with(option));
}
