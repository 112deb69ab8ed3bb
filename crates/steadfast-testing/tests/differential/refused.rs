//! Requests that no server takes.

use serde_json::json;

use crate::generate::{KINDS, Plot};
use crate::script::Step;

/// A request that is wrong in one way.
pub fn request(plot: &mut Plot) {
    let index = plot.kind();
    let kind = KINDS[index];
    let at = plot.collection(kind);
    let number = plot.chance.below(34);
    let step =
        |option: &'static str, method: &'static str, path: String| Step::new("refused", method, path).with(option);
    let get = |option: &'static str, query: &str| step(option, "GET", format!("{at}?{query}"));
    let mut object = plot.object(index, "bad");
    let mut create = |option: &'static str, field: &str, value: serde_json::Value| {
        if let Some(place) = object.pointer_mut(field) {
            *place = value;
        }
        step(option, "POST", at.clone()).json(&object)
    };
    let made = match number {
        0 => step("missing object", "GET", format!("{at}/nowhere")),
        1 => step("missing object", "DELETE", format!("{at}/nowhere")),
        2 => {
            let mut patch = step("missing object", "PATCH", format!("{at}/nowhere"));
            patch.content_type = "application/merge-patch+json";
            patch.body = "{}".into();
            patch
        }
        3 => step("unknown resource", "GET", format!("{}/namespaces/{}/nothings", kind.root, plot.namespace)),
        4 => step("unknown group", "GET", "/apis/nothing.example.com/v1/things".to_owned()),
        5 => step("unknown version", "GET", "/apis/coordination.k8s.io/v9/leases".to_owned()),
        6 => step("unknown path", "GET", "/nothing/here".to_owned()),
        7 => step("unknown subresource", "GET", format!("{at}/a/nothing")),
        8 => get("bad limit", "limit=many"),
        9 => get("bad version", "resourceVersion=abc"),
        10 => get("match without version", "resourceVersionMatch=Exact"),
        11 => get("exact zero", "resourceVersion=0&resourceVersionMatch=Exact"),
        12 => get("unknown match", "resourceVersion=5&resourceVersionMatch=Roughly"),
        13 => get("bad continue", "limit=1&continue=abc"),
        14 => get("bad label selector", "labelSelector=app%3D%3D%3Dx"),
        15 => get("bad label selector", "labelSelector=app+in+web"),
        16 => get("bad field selector", "fieldSelector=spec.nothing%3Dx"),
        17 => get("bad field selector", "fieldSelector=nonsense"),
        18 => get("initial events of a list", "sendInitialEvents=true"),
        19 => get("initial events without match", "watch=true&sendInitialEvents=true&timeoutSeconds=2"),
        20 => get("watch from a bad version", "watch=true&resourceVersion=abc&timeoutSeconds=2"),
        21 => create("invalid name", "/metadata/name", "Not_Valid".into()),
        22 => create("wrong kind", "/kind", "Nonsense".into()),
        23 => create("wrong version", "/apiVersion", "nothing.example.com/v1".into()),
        24 => create("other namespace", "/metadata", json!({"name": "bad", "namespace": "default"})),
        25 => create("no name", "/metadata", json!({})),
        26 => create("version given", "/metadata", json!({"name": "bad", "resourceVersion": "5"})),
        27 => create("invalid label", "/metadata/labels", json!({"app": "not valid!"})),
        28 => create("dry run of another kind", "/metadata/name", "dry".into()).query("dryRun=Some"),
        29 => {
            let mut create = step("body that is no JSON", "POST", at.clone());
            create.content_type = "application/json";
            create.body = "{\"kind\":".into();
            create
        }
        30 => {
            let mut create = step("unknown content type", "POST", at.clone());
            create.content_type = "text/plain";
            create.body = "x".into();
            create
        }
        31 => {
            let mut get = step("unacceptable", "GET", at.clone());
            get.accept = "text/html";
            get
        }
        32 => {
            let put = step("other name", "PUT", format!("{at}/another"));
            put.json(&object)
        }
        _ => {
            let mut patch = step("unknown patch", "PATCH", format!("{at}/a"));
            patch.content_type = "application/json";
            patch.body = "{}".into();
            patch
        }
    };
    plot.push(made);
}
