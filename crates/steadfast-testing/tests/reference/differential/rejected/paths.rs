//! Invalid paths, and unsupported methods.

use crate::differential::generate::ScriptBuilder;
use crate::differential::kinds::KINDS;
use crate::differential::script::Step;

/// Adds a request to a path where it cannot succeed.
pub fn add_invalid_path(builder: &mut ScriptBuilder) {
    let index = builder.kind();
    let kind = KINDS[index];
    let at = builder.collection(index);
    let object = builder.path_of(index, "a");
    let missing_object = builder.path_of(index, "nowhere");
    let number = builder.rng.below(27);
    let (option, method, path) = match number {
        0 => ("missing object", "GET", missing_object),
        1 => ("missing object", "DELETE", missing_object),
        2 => ("missing object", "PATCH", missing_object),
        3 => ("unknown resource", "GET", format!("{}/namespaces/{}/nothings", kind.root, builder.namespace)),
        4 => ("unknown resource", "POST", format!("{}/nothings", kind.root)),
        5 => ("unknown group", "GET", "/apis/nothing.example.com/v1/things".to_owned()),
        6 => ("unknown group", "GET", "/apis/nothing.example.com".to_owned()),
        7 => ("unknown group", "GET", "/apis/nothing.example.com/v1".to_owned()),
        8 => ("unknown version", "GET", "/apis/coordination.k8s.io/v9/leases".to_owned()),
        9 => ("unknown version", "GET", "/apis/differential.steadfast.dev/v9/widgets".to_owned()),
        10 => ("unknown version", "GET", "/api/v2/configmaps".to_owned()),
        11 => ("unknown path", "GET", "/nothing/here".to_owned()),
        12 => ("unknown path", "POST", "/nothing/here".to_owned()),
        13 => ("unknown subresource", "GET", format!("{object}/nothing")),
        14 => ("unknown subresource", "PUT", format!("{object}/nothing")),
        15 => ("too deep", "GET", format!("{object}/status/more")),
        16 => ("creation at an object", "POST", object),
        17 => ("update of a collection", "PUT", at),
        18 => ("patch of a collection", "PATCH", at),
        19 => ("head", "HEAD", at),
        20 => ("head", "HEAD", object),
        21 => ("options", "OPTIONS", at),
        22 => ("unknown method", "BREW", at),
        23 => ("unknown method", "BREW", object),
        24 => (
            "method of discovery",
            "POST",
            builder.rng.pick(&["/api", "/api/v1", "/apis/coordination.k8s.io", "/apis/apps/v1"]).to_owned(),
        ),
        25 => ("other scope", "GET", format!("{}/{}/a", kind.root, kind.plural)),
        _ => ("missing namespace", "GET", format!("{}/namespaces/nowhere-at-all/{}", kind.root, kind.plural)),
    };
    // Cluster-scoped objects may belong to other scripts.
    if !kind.is_namespaced && matches!(number, 15 | 19 | 20 | 25 | 26) {
        return;
    }
    let mut step = Step::new("odd place", method, path).label(option);
    if method == "PATCH" {
        step.content_type = "application/merge-patch+json";
        step.body = "{}".into();
    } else if matches!(method, "POST" | "PUT") {
        let object = builder.object(index, "a");
        step = step.json(&object);
    }
    builder.push(step);
}
