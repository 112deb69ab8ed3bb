use serde_json::json;

use super::*;

/// Returns a reduced document in the format of a real API server.
fn schemas() -> Schemas {
    let kind = |group: &str, version: &str, kind: &str| json!([{"group": group, "version": version, "kind": kind}]);
    let reference = |name: &str| json!({"allOf": [{"$ref": format!("#/components/schemas/{name}")}], "default": {}});
    let text = json!({"type": "string"});
    let document = json!({"components": {"schemas": {
        "io.k8s.api.apps.v1.Deployment": {
            "type": "object",
            "properties": {
                "apiVersion": text, "kind": text,
                "metadata": reference("ObjectMeta"), "spec": reference("DeploymentSpec"),
            },
            "x-kubernetes-group-version-kind": kind("apps", "v1", "Deployment"),
        },
        "ObjectMeta": {"type": "object", "properties": {
            "name": text, "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }},
        "DeploymentSpec": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "paused": {"type": "boolean"},
            "containers": {"type": "array", "items": reference("Container")},
            "maxSurge": {"x-kubernetes-int-or-string": true},
        }},
        "Container": {"type": "object", "properties": {"name": text, "image": text}},
        "com.example.v1.Widget": {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                "status": {
                    "type": "object", "properties": {"phase": text}, "x-kubernetes-preserve-unknown-fields": true,
                },
                "raw": {"type": "object"},
            },
            "x-kubernetes-group-version-kind": kind("example.com", "v1", "Widget"),
        },
    }}});
    Schemas::read(document).expect("schemas")
}

/// Returns the reports of `check` for a rule with this `when` and `send`.
fn reported_problems(kinds: &[(&str, &str, &str)], when: &str, send: &str) -> Vec<String> {
    let resources: Vec<&str> = kinds.iter().map(|(resource, ..)| *resource).collect();
    let text = format!(
        "[sinks.log.stdout]\n[[rules]]\nname = \"r\"\nresources = {resources:?}\nto = [\"log\"]\nwhen = '''{when}'''\nsend = '''{send}'''\n"
    );
    let plan = Plan::read("a.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let schemas = schemas();
    let typed = kinds.iter().map(|&(resource, group, kind)| TypedResource {
        resource,
        group,
        version: "v1",
        kind,
        schemas: &schemas,
    });
    let problems = plan.unknown_fields(&plan.rules[0], &typed.collect::<Vec<_>>());
    problems.iter().map(ToString::to_string).collect()
}

const DEPLOYMENTS: (&str, &str, &str) = ("deployments.apps", "apps", "Deployment");
const WIDGETS: (&str, &str, &str) = ("widgets.example.com", "example.com", "Widget");

#[test]
fn unknown_field_has_position_and_suggestion() {
    for (when, place, description) in [
        ("object.spec.replcas > 1", "6:23", "no field `spec.replcas`, did you mean `replicas`?"),
        ("has(object.spec.Replicas)", "6:27", "did you mean `replicas`?"),
        ("changed('spec.replica')", "6:25", "did you mean `replicas`?"),
        ("object.?spec.?pausd.orValue(false)", "6:25", "did you mean `paused`?"),
        ("object['spec'].other == 1", "6:26", "no field `spec.other`; correct"),
        (
            "object.spec.containers.exists(c, c.imge == 'a')",
            "6:46",
            "no field `spec.containers[].imge`, did you mean `image`?",
        ),
        (
            "object.spec.?containers.orValue([]).filter(c, c.name != '').map(c, c.imge).size() > 0",
            "6:80",
            "no field `spec.containers[].imge`, did you mean `image`?",
        ),
        ("object.spec.containers[0].nam == 'a'", "6:37", "did you mean `name`?"),
        ("object.spec.containers.image == 'a'", "6:34", "`spec.containers` is a list"),
        ("object.spec.replicas.x == 1", "6:32", "`spec.replicas` is of type integer"),
        ("old != null && old.spce == null", "6:30", "no field `spce`, did you mean `spec`?"),
    ] {
        let reported_problems = reported_problems(&[DEPLOYMENTS], when, "true");
        assert_eq!(reported_problems.len(), 1, "{when}: {reported_problems:?}");
        assert!(
            reported_problems[0].starts_with(&format!("a.toml:{place}: when: deployments.apps: ")),
            "{when}: {reported_problems:?}"
        );
        assert!(reported_problems[0].contains(description), "{when}: {reported_problems:?}");
    }
}

#[test]
fn known_and_open_fields_are_accepted() {
    for (kind, when) in [
        (DEPLOYMENTS, "object.metadata.labels['a.b/c'] == 'd' && object.metadata.labels.app == 'x'"),
        (DEPLOYMENTS, "object.kind == 'x' && object.spec.containers.all(c, c.image.startsWith(c.name))"),
        (DEPLOYMENTS, "object.spec.maxSurge == 1 || event.namespace == 'a'"),
        (DEPLOYMENTS, "object.metadata.labels.exists(key, key.startsWith('a'))"),
        (WIDGETS, "object.status.anything.there == 1 && object.status.phase == 'x' && object.raw.x == 1"),
    ] {
        assert_eq!(reported_problems(&[kind], when, "{'x': object.spec}"), [""; 0], "{when}");
    }
    assert_eq!(reported_problems(&[WIDGETS], "object.spec.sise == 1", "object.spec.size").len(), 1);
}

#[test]
fn field_of_any_resource_is_accepted() {
    assert_eq!(
        reported_problems(&[DEPLOYMENTS, WIDGETS], "object.spec.size == 1 || object.spec.replicas == 1", "true"),
        [""; 0]
    );
    assert_eq!(reported_problems(&[DEPLOYMENTS, WIDGETS], "object.spec.sizes == 1", "true").len(), 1);
}
