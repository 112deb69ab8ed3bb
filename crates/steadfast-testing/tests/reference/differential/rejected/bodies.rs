//! Bodies and representations.

use serde_json::json;

use crate::differential::generate::ScriptBuilder;
use crate::differential::script::Step;

/// Size above the limit of a request, in bytes.
const TOO_LARGE: usize = 3 * 1024 * 1024 + 1;

/// Adds a request with an invalid body, or for an unsupported representation.
pub fn add_invalid_body(builder: &mut ScriptBuilder) {
    let index = builder.kind();
    let at = builder.collection(index);
    let object = builder.path_of(index, "a");
    let step = |option, method, path: &String, content_type: &'static str, body: &str| {
        let mut step = Step::new("odd body", method, path.clone()).label(option);
        step.content_type = content_type;
        body.clone_into(&mut step.body);
        step
    };
    let get = |accept: &'static str| {
        let mut get = Step::new("odd body", "GET", object.clone()).label("unacceptable");
        get.accept = accept;
        get
    };
    let json = "application/json";
    let merge = "application/merge-patch+json";
    let strategic = "application/strategic-merge-patch+json";
    let operations = "application/json-patch+json";
    let request = match builder.rng.below(26) {
        0 => step("no JSON", "POST", &at, json, "{\"kind\":"),
        1 => step("no JSON", "PUT", &object, json, "nonsense"),
        2 => step("no JSON", "PATCH", &object, merge, "{"),
        3 => step("no JSON", "PATCH", &object, strategic, "{"),
        4 => step("no JSON", "PATCH", &object, operations, "["),
        5 => step("no object", "POST", &at, json, "[]"),
        6 => step("no object", "POST", &at, json, "\"text\""),
        7 => step("no object", "PATCH", &object, merge, "[]"),
        8 => step("no object", "PATCH", &object, strategic, "7"),
        9 => step("no operations", "PATCH", &object, operations, "{}"),
        10 => step("nothing", "POST", &at, json, ""),
        11 => step("nothing", "PUT", &object, json, ""),
        12 => step("nothing", "PATCH", &object, merge, ""),
        13 => step("unknown content type", "POST", &at, "text/plain", "x"),
        14 => step("unknown content type", "PUT", &object, "text/plain", "x"),
        15 => step("unknown content type", "POST", &at, "application/xml", "<a/>"),
        16 => step("unknown patch", "PATCH", &object, json, "{}"),
        17 => step("unknown patch", "PATCH", &object, "text/plain", "{}"),
        18 => {
            let object = builder.object(index, "bad");
            let body = object.to_string();
            step("no content type", "POST", &at, "", &body).query("dryRun=All")
        }
        19 => {
            let object = builder.object(index, "bad").to_string();
            step("content type with a parameter", "POST", &at, "application/json; charset=utf-8", &object)
                .query("dryRun=All")
        }
        20 => get("text/html"),
        21 => get("application/xml, text/html"),
        22 => get("application/json;as=Nonsense;v=v1;g=meta.k8s.io"),
        23 => get("application/json;as=Table;v=v9;g=meta.k8s.io"),
        24 => {
            let mut object = builder.object(index, "bad");
            object["metadata"]["annotations"] = json!({"a": ""});
            let body = object.to_string().replace("\"a\":\"\"", &too_large());
            step("too large", "POST", &at, json, &body)
        }
        _ => {
            let body = format!("{{\"metadata\":{{\"annotations\":{{{}}}}}}}", too_large());
            step("too large", "PATCH", &object, merge, &body)
        }
    };
    builder.push(request);
}

/// Returns a string of this size. Without optimizations, structured JSON of this size would be slow.
fn too_large() -> String {
    format!("\"a\":\"{}\"", "x".repeat(TOO_LARGE))
}
