//! Variants of whole files: contexts, names, YAML styles, and several files.

use serde_json::{Value, json};

use super::{Shape, ShapeFixtures};
use crate::kubeconfigs::support::SECRET;

/// Formats `value` as YAML in block style, like kubectl.
fn block_yaml(value: &Value) -> String {
    lines(value).join("\n") + "\n"
}

/// Returns the lines of `value`, without indentation.
fn lines(value: &Value) -> Vec<String> {
    let indented =
        |value: &Value, indent: &str| lines(value).into_iter().map(|line| format!("{indent}{line}")).collect();
    let mut yaml_lines: Vec<String> = Vec::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let inner: Vec<String> = match value {
                    Value::Object(inner) if !inner.is_empty() => indented(value, "  "),
                    Value::Array(inner) if !inner.is_empty() => lines(value),
                    // JSON scalars are valid YAML scalars.
                    scalar => {
                        yaml_lines.push(format!("{name}: {scalar}"));
                        continue;
                    }
                };
                yaml_lines.push(format!("{name}:"));
                yaml_lines.extend(inner);
            }
        }
        Value::Array(items) => {
            for item in items {
                let inner: Vec<String> = indented(item, "  ");
                yaml_lines.extend(inner.iter().enumerate().map(|(number, line)| match number {
                    0 => format!("- {}", line.trim_start()),
                    _ => line.clone(),
                }));
            }
        }
        scalar => yaml_lines.push(scalar.to_string()),
    }
    yaml_lines
}

/// Returns the valid kubeconfig after `change`.
fn changed(fixtures: &ShapeFixtures, change: impl FnOnce(&mut Value)) -> Value {
    let mut kubeconfig_file = fixtures.valid_kubeconfig();
    change(&mut kubeconfig_file);
    kubeconfig_file
}

fn contexts(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let context = |fields: Value| {
        changed(fixtures, |kubeconfig| {
            for (name, value) in fields.as_object().expect("an object") {
                kubeconfig["contexts"][0]["context"][name] = value.clone();
            }
        })
    };
    let set = |name: &'static str, value: Value| changed(fixtures, |kubeconfig| kubeconfig[name] = value);
    let add = |list: &'static str, entry: Value| {
        changed(fixtures, |kubeconfig| kubeconfig[list].as_array_mut().expect("a list").insert(0, entry))
    };
    let renamed = |name: &str| {
        changed(fixtures, |kubeconfig| {
            for list in ["clusters", "users", "contexts"] {
                kubeconfig[list][0]["name"] = name.into();
            }
            kubeconfig["contexts"][0]["context"] = json!({"cluster": name, "user": name});
            kubeconfig["current-context"] = name.into();
        })
    };
    let without =
        |name: &str| changed(fixtures, |kubeconfig| drop(kubeconfig.as_object_mut().expect("an object").remove(name)));
    let forms = [
        ("namespace is empty", context(json!({"namespace": ""}))),
        ("namespace is null", context(json!({"namespace": null}))),
        ("namespace is another", context(json!({"namespace": "shop"}))),
        ("namespace has no objects", context(json!({"namespace": "nothing-here"}))),
        ("namespace is a number", context(json!({"namespace": 7}))),
        ("context with unknown fields", context(json!({"x": 1, "extensions": [{"name": "x", "extension": {"a": 1}}]}))),
        ("user of the context is missing", context(json!({"user": "missing"}))),
        ("user of the context is empty", context(json!({"user": ""}))),
        ("cluster of the context is missing", context(json!({"cluster": "missing"}))),
        ("cluster of the context is empty", context(json!({"cluster": ""}))),
        ("current context is empty", set("current-context", json!(""))),
        ("current context is null", set("current-context", json!(null))),
        ("current context is missing", set("current-context", json!("missing"))),
        ("no current context", without("current-context")),
        ("no kind", without("kind")),
        ("no apiVersion", without("apiVersion")),
        ("kind is empty", set("kind", json!(""))),
        ("kind of another", set("kind", json!("Pod"))),
        ("apiVersion of another", set("apiVersion", json!("v2"))),
        ("apiVersion is empty", set("apiVersion", json!(""))),
        ("preferences", set("preferences", json!({"colors": true}))),
        ("preferences is null", set("preferences", json!(null))),
        ("preferences is a text", set("preferences", json!("none"))),
        ("extensions", set("extensions", json!([{"name": "x", "extension": {"a": [1]}}]))),
        ("extensions is null", set("extensions", json!(null))),
        ("unknown fields", set("x", json!({"y": [1, 2]}))),
        ("another context without a cluster", add("contexts", json!({"name": "half", "context": {"user": "u"}}))),
        ("another context without a user", add("contexts", json!({"name": "half", "context": {"cluster": "c"}}))),
        ("another context without anything", add("contexts", json!({"name": "half"}))),
        ("another context is null", add("contexts", json!({"name": "half", "context": null}))),
        ("another cluster without a server", add("clusters", json!({"name": "half", "cluster": {}}))),
        ("another cluster is null", add("clusters", json!({"name": "half", "cluster": null}))),
        (
            "another cluster with a missing file",
            add(
                "clusters",
                json!({"name": "half", "cluster": {
                    "server": "https://else.example", "certificate-authority": "missing.crt",
                }}),
            ),
        ),
        (
            "another cluster with broken data",
            add(
                "clusters",
                json!({"name": "half", "cluster": {
                    "server": "https://else.example", "certificate-authority-data": "!!",
                }}),
            ),
        ),
        ("another user is null", add("users", json!({"name": "half", "user": null}))),
        ("another user without anything", add("users", json!({"name": "half"}))),
        (
            "another user with two methods",
            add("users", json!({"name": "half", "user": {"token": "a", "username": "b"}})),
        ),
        (
            "another user with a missing plugin",
            add("users", json!({"name": "half", "user": {"exec": {"command": "no"}}})),
        ),
        (
            "another user with a removed provider",
            add("users", json!({"name": "half", "user": {"auth-provider": {"name": "gcp"}}})),
        ),
        ("two contexts of a name", add("contexts", json!({"name": "here", "context": {"cluster": "c", "user": "u"}}))),
        ("two users of a name", add("users", json!({"name": "u", "user": {"token": SECRET}}))),
        ("names with signs", renamed("arn:aws:eks:eu-west-1:123456789012:cluster/prod@x")),
        ("names with blanks", renamed("my own cluster")),
        ("names in another script", renamed("großer-Würfel-集群")),
        ("names like numbers", renamed("0123")),
        ("names like truths", renamed("yes")),
        ("users is null", set("users", json!(null))),
        ("users is empty", set("users", json!([]))),
        ("clusters is null", set("clusters", json!(null))),
        ("contexts is a map", set("contexts", json!({"here": {}}))),
    ];
    forms.into_iter().map(|(name, kubeconfig)| Shape::from_json(format!("file: {name}"), &kubeconfig)).collect()
}

fn syntax(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let valid = fixtures.valid_kubeconfig();
    let (json, yaml) = (valid.to_string(), block_yaml(&valid));
    let pretty = serde_json::to_string_pretty(&valid).expect("JSON");
    let utf16 = |mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| {
        let mut text = mark.to_vec();
        text.extend(yaml.encode_utf16().flat_map(bytes));
        text
    };
    let url = fixtures.server.url(0);
    let data = crate::kubeconfigs::support::base64(&fixtures.authority);
    let chunks = data.as_bytes().chunks(70).map(String::from_utf8_lossy);
    let literal = chunks.map(|line| format!("      {line}\n")).collect::<Vec<_>>().concat();
    let hand_written = |authority: &str, user: &str| {
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {authority}\nusers:\n- name: u\n  user:\n{user}contexts:\n- name: here\n  \
             context: {{cluster: c, user: u}}\ncurrent-context: here\n"
        )
    };
    let token = format!("    token: {SECRET}\n");
    let plain = hand_written(&data, &token);
    let texts: Vec<(&str, Vec<u8>)> = vec![
        ("JSON", json.clone().into()),
        ("JSON, indented", pretty.clone().into()),
        ("JSON, indented by tabs", pretty.replace("  ", "\t").into()),
        ("JSON, a comma too much", json.replacen("[{", "[{}, {", 0).replace("}]}", "}],}").into()),
        ("YAML in blocks", yaml.clone().into()),
        ("YAML by hand", plain.clone().into()),
        ("CR LF", plain.replace('\n', "\r\n").into()),
        ("a mark of UTF-8", format!("\u{feff}{plain}").into()),
        ("UTF-16, little end first", utf16([0xff, 0xfe], u16::to_le_bytes)),
        ("UTF-16, big end first", utf16([0xfe, 0xff], u16::to_be_bytes)),
        ("a document's start", format!("---\n{plain}").into()),
        ("a document's end", format!("{plain}...\n").into()),
        ("a directive", format!("%YAML 1.1\n---\n{plain}").into()),
        ("comments", format!("# mine\n{}", plain.replace("users:", "users: # all of them")).into()),
        ("an empty second document", format!("{plain}---\n").into()),
        ("a second document of something else", format!("{plain}---\na: b\n").into()),
        ("indented by tabs", plain.replace("    ", "\t").into()),
        ("no end of the last line", plain.trim_end().to_owned().into()),
        ("blanks at the ends of lines", plain.replace('\n', "  \n").into()),
        ("broken", plain.replace("users:", "users: [").into()),
        ("no text", vec![0xc3, 0x28, 0xa0, 0xa1]),
        ("empty", Vec::new()),
        ("blank", b"\n\n".to_vec()),
        ("null", b"null\n".to_vec()),
        ("a list", b"- a\n".to_vec()),
        ("data in a literal block", hand_written(format!("|\n{literal}").trim_end(), &token).into()),
        ("data in a literal block, stripped", hand_written(format!("|-\n{literal}").trim_end(), &token).into()),
        ("data in a folded block", hand_written(format!(">-\n{literal}").trim_end(), &token).into()),
        ("data in quotes", hand_written(&format!("\"{data}\""), &token).into()),
        ("data in single quotes", hand_written(&format!("'{data}'"), &token).into()),
        ("token in quotes", hand_written(&data, &format!("    token: \"{SECRET}\"\n")).into()),
        ("token in a literal block", hand_written(&data, &format!("    token: |\n      {SECRET}\n")).into()),
        ("token in a stripped block", hand_written(&data, &format!("    token: |-\n      {SECRET}\n")).into()),
        ("token in a folded block", hand_written(&data, &format!("    token: >-\n      {SECRET}\n")).into()),
        ("token with a tag", hand_written(&data, &format!("    token: !!str {SECRET}\n")).into()),
        ("token twice", hand_written(&data, &format!("    token: wrong\n    token: {SECRET}\n")).into()),
        ("token twice, wrong at last", hand_written(&data, &format!("    token: {SECRET}\n    token: wrong\n")).into()),
        ("current context twice", format!("{plain}current-context: here\n").into()),
        ("current context twice, another first", format!("current-context: other\n{plain}").into()),
        ("users twice", format!("users: []\n{plain}").into()),
        ("an anchor and an alias", hand_written(&data, &format!("    x: &a {SECRET}\n    token: *a\n")).into()),
        ("a merge key", hand_written(&data, &format!("    <<: {{token: {SECRET}}}\n")).into()),
        ("quoted keys", plain.replace("current-context:", "\"current-context\":").into()),
        ("keys in another case", plain.replace("current-context:", "Current-Context:").into()),
        ("long keys", plain.replace("current-context: here", "? current-context\n: here").into()),
    ];
    texts.into_iter().map(|(name, text)| Shape::from_text(format!("text: {name}"), text)).collect()
}

fn shape(name: &str, files: &[(&str, String)], listed: &[&str]) -> Shape {
    let mut shape = Shape {
        name: format!("list: {name}"),
        files: Vec::new(),
        listed_files: Vec::new(),
        requests_certificate: false,
    };
    for (name, content) in files {
        shape = shape.with_file(name, content.as_str());
    }
    shape.with_listed_files(listed)
}

fn lists(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let valid = fixtures.valid_kubeconfig();
    let partial = |names: &[&str]| {
        let mut partial = json!({"apiVersion": "v1", "kind": "Config"});
        for name in names {
            partial[*name] = valid[*name].clone();
        }
        partial.to_string()
    };
    let complete_text = valid.to_string();
    let empty = json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": [], "current-context": ""});
    let other = changed(fixtures, |kubeconfig_file| {
        kubeconfig_file["users"][0]["user"]["token"] = "wrong".into();
        kubeconfig_file["contexts"][0]["context"]["namespace"] = "shop".into();
    });
    let missing_context = changed(fixtures, |kubeconfig_file| kubeconfig_file["current-context"] = "missing".into());
    let one = ("one", complete_text.clone());
    vec![
        shape("one", std::slice::from_ref(&one), &["one"]),
        shape("a missing file first", std::slice::from_ref(&one), &["missing", "one"]),
        shape("a missing file at last", std::slice::from_ref(&one), &["one", "missing"]),
        shape("a missing folder", std::slice::from_ref(&one), &["missing/file", "one"]),
        shape("a file below a file", std::slice::from_ref(&one), &["one/below", "one"]),
        shape("only missing files", std::slice::from_ref(&one), &["missing", "neither"]),
        shape("an empty name first", std::slice::from_ref(&one), &["", "one"]),
        shape("an empty name at last", std::slice::from_ref(&one), &["one", ""]),
        shape("the same file twice", std::slice::from_ref(&one), &["one", "one"]),
        shape("a folder", &[one.clone(), ("folder/file", String::new())], &["folder", "one"]),
        shape("an empty file first", &[("empty", String::new()), one.clone()], &["empty", "one"]),
        shape("an empty file at last", &[("empty", String::new()), one.clone()], &["one", "empty"]),
        shape("no entries first", &[("nothing", empty.to_string()), one.clone()], &["nothing", "one"]),
        shape("no entries at last", &[("nothing", empty.to_string()), one.clone()], &["one", "nothing"]),
        shape(
            "null lists first",
            &[("nothing", "clusters:\nusers:\ncontexts:\n".to_owned()), one.clone()],
            &["nothing", "one"],
        ),
        shape("a broken file first", &[("broken", "users: [".to_owned()), one.clone()], &["broken", "one"]),
        shape("a broken file at last", &[("broken", "users: [".to_owned()), one.clone()], &["one", "broken"]),
        shape("another user first", &[("other", other.to_string()), one.clone()], &["other", "one"]),
        shape("another user at last", &[("other", other.to_string()), one.clone()], &["one", "other"]),
        shape(
            "another current context first",
            &[("elsewhere", missing_context.to_string()), one.clone()],
            &["elsewhere", "one"],
        ),
        shape(
            "another current context at last",
            &[("elsewhere", missing_context.to_string()), one.clone()],
            &["one", "elsewhere"],
        ),
        shape(
            "each list in a file",
            &[
                ("clusters", partial(&["clusters"])),
                ("users", partial(&["users"])),
                ("contexts", partial(&["contexts"])),
                ("current", partial(&["current-context"])),
            ],
            &["clusters", "users", "contexts", "current"],
        ),
        shape(
            "each list in a file, reversed",
            &[
                ("clusters", partial(&["clusters"])),
                ("users", partial(&["users"])),
                ("contexts", partial(&["contexts", "current-context"])),
            ],
            &["contexts", "users", "clusters"],
        ),
        shape("users are nowhere", &[("most", partial(&["clusters", "contexts", "current-context"]))], &["most"]),
    ]
}

/// Returns shapes with paths relative to their own file.
fn relative(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let with_file = fixtures.kubeconfig_with(
        &json!({"certificate-authority-data": null, "certificate-authority": "ca.crt"}),
        &json!({"tokenFile": "../token"}),
    );
    let valid = fixtures.valid_kubeconfig();
    let first = json!({"contexts": valid["contexts"], "current-context": valid["current-context"]});
    vec![
        shape(
            "relative paths of a file in a folder",
            &[
                ("folder/one", with_file.to_string()),
                ("folder/ca.crt", fixtures.authority.clone()),
                ("token", SECRET.to_owned()),
            ],
            &["missing", "folder/one"],
        ),
        shape(
            "relative paths of the second file",
            &[
                ("first", first.to_string()),
                ("folder/one", with_file.to_string()),
                ("folder/ca.crt", fixtures.authority.clone()),
                ("token", SECRET.to_owned()),
            ],
            &["first", "folder/one"],
        ),
    ]
}

/// Returns all forms of whole files.
pub(super) fn shapes(fixtures: &ShapeFixtures) -> Vec<Shape> {
    [contexts(fixtures), syntax(fixtures), lists(fixtures), relative(fixtures)].into_iter().flatten().collect()
}
