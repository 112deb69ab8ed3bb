//! Custom resource definitions: a pool of twelve that all scripts share, and dry runs of invalid ones.

use serde_json::{Value, json};
use steadfast_testing::TestError;

use crate::differential::client::TestServer;
use crate::differential::rng::SeededRng;
use crate::differential::schemas;
use crate::differential::script::{Script, Step};

/// Group of the pool.
pub const GROUP: &str = "pool.steadfast.dev";
/// Number of definitions in the pool.
pub const POOL_SIZE: u64 = 12;
/// Path of definitions.
pub const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns the schema of a version of a definition in the pool.
pub fn schema_of(number: u64, version: &str) -> Value {
    // Both versions of an even definition have the same schema. In odd definitions, v2 has another schema.
    let seed = if version == "v2" && number % 2 == 1 { number + 1000 } else { number };
    let mut rng = SeededRng::new(seed);
    let mut spec = schemas::schema(&mut rng);
    spec["properties"]["replicas"] = json!({"type": "integer"});
    spec["properties"]["marks"] = json!({"type": "array", "items": {"type": "object", "properties": {
        "type": {"type": "string", "enum": ["Ready", "Lit"]}, "n": {"type": "integer"}, "on": {"type": "boolean"},
        "ratio": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "string", "enum": ["2020-02-29T00:00:00Z", "9999-01-01T00:00:00Z", "soon", ""]},
    }}});
    spec["properties"]["ruled"] = field_with_rules(number);
    let status = json!({"type": "object", "properties": {
        "phase": {"type": "string", "enum": ["A", "B"]}, "replicas": {"type": "integer"},
        "selector": {"type": "string"}, "more": schemas::schema(&mut rng),
    }});
    json!({"type": "object", "properties": {"spec": spec, "status": status}})
}

/// Returns all CEL rules. [`field_with_rules`] spreads them over the definitions of the pool.
fn all_rules() -> Vec<Value> {
    vec![
        json!({"rule": "!has(self.n) || !has(self.m) || self.n <= self.m", "message": " n is above m "}),
        json!({"rule": "has(self.n) || has(self.m)", "messageExpression": "'no ' + 'number'"}),
        json!({"rule": "!has(self.word) || self.word.matches('^[a-c]+$')", "fieldPath": ".word"}),
        json!({"rule": "!has(self.ratio) || self.ratio / 2.0 < 3.0", "reason": "FieldValueRequired", "message": "r"}),
        json!({"rule": "!has(self.at) || self.at > timestamp('2025-01-01T00:00:00Z')"}),
        json!({"rule": "!has(self.either) || (type(self.either) == int ? self.either > 2 : self.either == 'ab')"}),
        json!({"rule": "!has(self.__namespace__) || self.__namespace__ != 'abc'"}),
        json!({"rule": "!has(self.x__dash__y) || self.x__dash__y % 4 == 0", "reason": "FieldValueDuplicate"}),
        json!({"rule": "!has(self.set) || 'abc' in self.set || size(self.set) < 2"}),
        json!({"rule": "!has(self.map) || self.map.exists(e, e.k == 'one')", "message": "one is missing"}),
        json!({"rule": "!has(self.sizes) || self.sizes.all(k, self.sizes[k] > 2)"}),
        json!({"rule": "self.n + self.m < 8"}),
        json!({"rule": "has(oldSelf.n) == has(self.n)", "message": "n stays"}),
        json!({"rule": "!oldSelf.hasValue() || self == oldSelf.value() || self.?n.orValue(3) > 2", "optionalOldSelf": true}),
        json!({"rule": "!has(self.set) || !has(oldSelf.set) || self.set == oldSelf.set", "message": "set stays"}),
        json!({"rule": "!has(self.set) || sets.intersects(self.set, ['ab', 'abcd'])"}),
        json!({"rule": "!has(self.word) || self.word.startsWith('ab') && self.word.size() > 2"}),
        json!({"rule": "!has(self.set) || self.set.isSorted()"}),
        json!({"rule": "!has(self.word) || self.word.find('[0-9]') == ''"}),
        json!({"rule": "!has(self.n) || [1, 2, self.n].sum() > 5 && [self.n, 3].max() == 4"}),
        json!({"rule": "[self.?n, self.?m].all(o, o.hasValue())"}),
        json!({"rule": "!has(self.map) || self.map[0].v > 0"}),
        json!({"rule": "1 / (has(self.n) ? self.n - 2 : 1) < 1"}),
        json!({"rule": "!has(self.n) || quantity(self.n > 2 ? '3Ki' : '1Ki').compareTo(quantity('2048')) <= 0"}),
        json!({"rule": "!has(self.word) || !format.dns1123Label().validate(self.word).hasValue()",
            "messageExpression": "format.dns1123Label().validate(self.word).value()[0]"}),
        json!({"rule": "!has(self.word) || !isURL('/' + self.word) || url('/' + self.word).getEscapedPath() != '/ab'"}),
        json!({"rule": "!has(self.n) || cidr('10.0.0.0/30').containsIP(self.n > 2 ? '10.0.0.7' : '10.0.0.1')",
            "messageExpression": "'address %d'.format([self.n])"}),
        json!({"rule": "!has(self.m) || semver(self.m > 2 ? '1.10.0' : '1.2.3-rc.1').isLessThan(semver('1.2.3'))"}),
        json!({"rule": "!has(self.map) || self.map.all(e, !has(e.v) || e.v > 2)", "messageExpression": "'small, ' + (self.map.size() > 1 ? 'many' : 'one')"}),
    ]
}

/// Returns the schema of the field `ruled`, with the CEL rules that belong to this definition.
fn field_with_rules(number: u64) -> Value {
    let set = json!({"type": "array", "maxItems": 4, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 9}});
    let map = json!({"type": "array", "maxItems": 4, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
    "items": {"type": "object", "required": ["k"], "properties": {
        "k": {"type": "string", "maxLength": 9, "enum": ["one", "two"]},
        "v": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "v grows"}]},
    }}});
    let own_rules = all_rules().into_iter().enumerate().filter(|(index, _)| *index as u64 % POOL_SIZE == number);
    json!({
        "type": "object", "properties": {
            "n": {"type": "integer", "x-kubernetes-validations": [
                {"rule": "self < 4", "reason": "FieldValueForbidden", "message": "n must be below 4"},
            ]},
            "m": {"type": "integer"}, "ratio": {"type": "number"}, "word": {"type": "string", "maxLength": 9},
            "fixed": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "fixed is immutable"},
            ]},
            "at": {"type": "string", "format": "date-time"}, "either": {"x-kubernetes-int-or-string": true},
            "namespace": {"type": "string", "maxLength": 9}, "x-y": {"type": "integer"}, "set": set, "map": map,
            "sizes": {"type": "object", "maxProperties": 4, "additionalProperties": {"type": "integer"}},
        },
        "x-kubernetes-validations": own_rules.map(|(_, rule)| rule).collect::<Vec<_>>(),
    })
}

/// Printer columns: paths from public definitions, and paths that cover client-go's `JSONPath` grammar.
const COLUMNS: &[(&str, &str)] = &[
    ("string", r#".spec.marks[?(@.type=="Ready")].on"#),
    ("boolean", r#".spec.marks[?(@.type=="Ready")].on"#),
    ("integer", ".spec.marks[?(@.type!='Lit')].n"),
    ("string", ".spec.marks[?(@.n>2)].type"),
    ("string", ".spec.marks[?(@.n<=2)].type"),
    ("string", ".spec.marks[?(@.on==true)]"),
    ("string", ".spec.marks[?(@.ratio>=1.5)].n"),
    ("string", ".spec.marks[?(@.tags)].type"),
    ("string", ".spec.marks[?(@.tags[0]==\"ab\")].type"),
    ("string", ".spec.marks[*].type"),
    ("integer", ".spec.marks[*].n"),
    ("number", ".spec.marks[*].ratio"),
    ("string", ".spec.marks[*].ratio"),
    ("string", ".spec.marks[0]"),
    ("string", ".spec.marks[-1].type"),
    ("string", ".spec.marks[1:].type"),
    ("string", ".spec.marks[:2:2].type"),
    ("string", ".spec.marks[0,1].type"),
    ("string", ".spec.marks[0]['type','n']"),
    ("string", "..type"),
    ("string", ".spec..tags[0]"),
    ("string", ".spec.marks[0].type.*"),
    ("integer", ".spec.marks[0].type.*"),
    ("string", ".metadata.labels.a"),
    ("string", r".metadata.labels.app\.kubernetes\.io/name"),
    ("string", r".metadata.labels['app\.kubernetes\.io/name']"),
    ("date", ".spec.marks[0].at"),
    ("date", ".metadata.creationTimestamp"),
    ("string", ".metadata.name}{.spec"),
    ("string", "."),
    ("string", ".spec.replicas"),
    ("date", ".spec.replicas"),
    ("integer", ".spec.marks[0].tags"),
    ("string", ".spec.marks[0].tags"),
    ("string", ".spec.marks[?(@.n)].at"),
    ("string", ".spec.a"),
    ("string", ".spec.b"),
    ("string", ".spec.c.a"),
    // The paths from here on are invalid. The first invalid path ends the columns of a table.
    ("string", ".spec.marks[?(@.type==\"Ready\")"),
    ("string", ".spec.marks[x]"),
    ("string", ".spec.marks["),
    ("string", ".spec....a"),
    ("string", ".spec 'a"),
];

/// Returns the printer columns of a definition. The entries of [`COLUMNS`] are spread over the pool; each column list
/// has its invalid paths last.
fn columns(number: u64) -> Vec<Value> {
    let mut columns = vec![
        json!({"name": "A", "type": "string", "jsonPath": ".spec.a"}),
        json!({"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1}),
        json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "the age"}),
    ];
    let own_columns = COLUMNS.iter().enumerate().filter(|(index, _)| *index as u64 % POOL_SIZE == number);
    columns.extend(own_columns.map(|(index, (kind, path))| {
        json!({"name": format!("P{index}"), "type": kind, "jsonPath": path, "description": "a path"})
    }));
    columns
}

/// Returns a definition of the pool. Every third has no subresources, and every second has a deprecated version.
pub fn definition(number: u64) -> Value {
    let version = |name: &str, storage: bool| {
        let mut version = json!({
            "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema_of(number, name)},
            "additionalPrinterColumns": columns(number),
        });
        if !number.is_multiple_of(3) {
            version["subresources"] = json!({"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }});
        }
        if number.is_multiple_of(2) && name == "v1" {
            version["deprecated"] = true.into();
        }
        version
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("pool{number}s.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": format!("pool{number}s"), "kind": kind(number)},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

/// Returns the kind of a definition in the pool.
pub fn kind(number: u64) -> String {
    format!("Pool{number}")
}

/// Creates the pool, and waits until all of it is served.
pub async fn prepare(server: &TestServer) -> Result<(), TestError> {
    let create = |number| Step::new("create", "POST", PATH.to_owned()).json(&definition(number));
    let responses = server.run(&Script { seed: 0, steps: (0..POOL_SIZE).map(create).collect() }).await?;
    if let Some(rejected) = responses.iter().find(|response| response.code != 201) {
        return Err(format!("a definition of the pool was rejected: {}", rejected.body).into());
    }
    for _ in 0..300 {
        let list = |number, version| Step::new("list", "GET", format!("/apis/{GROUP}/{version}/pool{number}s"));
        let steps = (0..POOL_SIZE).flat_map(|number| [list(number, "v1"), list(number, "v2")]).collect();
        let responses = server.run(&Script { seed: 0, steps }).await?;
        if responses.iter().all(|response| response.code == 200) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    Err("the pool is not served".into())
}

/// Returns a dry run that creates a definition with errors in at most one place.
pub fn random_definition_attempt(rng: &mut SeededRng) -> Step {
    let mut definition = definition(0);
    definition["metadata"]["name"] = "attempts.attempt.steadfast.dev".into();
    definition["spec"]["group"] = "attempt.steadfast.dev".into();
    definition["spec"]["names"] = json!({"plural": "attempts", "kind": "Attempt"});
    if let Some(versions) = definition["spec"]["versions"].as_array_mut() {
        versions.truncate(1);
    }
    let fields = [
        ("/metadata/name", json!("other.attempt.steadfast.dev")),
        ("/spec/group", json!("nodots")),
        ("/spec/scope", json!("Everywhere")),
        ("/spec/names/plural", json!("UPPER")),
        ("/spec/names/kind", json!("kind-")),
        ("/spec/versions/0/name", json!("V1")),
        ("/spec/versions/0/schema", json!({})),
        ("/spec/versions/0/schema/openAPIV3Schema", json!({"type": "string"})),
        ("/spec/versions/0/additionalPrinterColumns/0/type", json!("odd")),
    ];
    let specs = [
        json!({}),
        json!({"type": "odd"}),
        json!({"type": "array"}),
        json!({"type": "array", "items": {}}),
        json!({"type": "string", "anyOf": [{"type": "string"}]}),
        json!({"type": "object", "oneOf": [{"description": "x", "default": {}}]}),
        json!({"type": "integer", "default": "x"}),
        json!({"type": "object", "default": {"unknown": 1}}),
        json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
        json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
        json!({"type": "string", "x-kubernetes-list-type": "set"}),
        json!({"type": "object", "x-kubernetes-map-type": "odd"}),
        json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        json!({"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        json!({"type": "string"}),
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self == 'x'"}]}),
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self", "message": "m"}]}),
        json!({"type": "object", "x-kubernetes-validations": [{"rule": "has(self.unknown)"}]}),
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "messageExpression": "self"}]}),
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1", "optionalOldSelf": true}]}),
        json!({"type": "integer", "allOf": [{"x-kubernetes-validations": [{"rule": "self > 1"}]}]}),
        json!({"type": "array", "maxItems": 3, "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]}}),
        json!({"type": "integer", "x-kubernetes-validations": [
            {"rule": "self == 'x' && self.foo() == 1 || nope"}, {"rule": "self > 1 && 'ab'.contains('a', 'b')"},
            {"rule": "odd(self) && lists.odd(1)", "messageExpression": "self + 1"},
        ]}),
        json!({"type": "string", "maxLength": 9, "x-kubernetes-validations": [
            {"rule": "self.trim(1) == '' && self.replace('a') == '' && self.getHours() == 1", "message": "m"},
            {"rule": "self.matches('[') && duration('x') == duration('1s')"}, {"rule": "self in [1, 'a', 2]"},
            {"rule": "self == 'é' &&\n\tself.size() == 'x'", "message": "m", "messageExpression": "self.size() + quantity()"},
        ]}),
        json!({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 9}, "x-kubernetes-validations": [
            {"rule": "self.filter(x, x).size() == 1 && self.all(x, x.size()) && self.map(x, y, 1) == [1]"},
            {"rule": "self.sortBy(x, [x]) == self || self.sum() == 1"}, {"rule": "self.sortBy(x, x.size()) == self"},
        ]}),
    ];
    let index = rng.below(fields.len() + specs.len());
    let (pointer, value) = match fields.get(index) {
        Some((pointer, value)) => (*pointer, value),
        None => ("/spec/versions/0/schema/openAPIV3Schema/properties/spec", &specs[index - fields.len()]),
    };
    if let Some(field) = definition.pointer_mut(pointer) {
        *field = value.clone();
    }
    Step::new("define", "POST", PATH.to_owned()).query("dryRun=All").json(&definition).label("dry run")
}
