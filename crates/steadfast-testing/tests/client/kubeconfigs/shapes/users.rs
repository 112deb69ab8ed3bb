//! Variants of users: tokens, files, passwords, certificates, keys, plugins, providers.

use serde_json::{Value, json};

use super::{Shape, ShapeFixtures};
use crate::kubeconfigs::support::{SECRET, base64};

/// Returns the script of a plugin that prints an `ExecCredential` with this status.
pub(super) fn plugin_script(status: &Value) -> String {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
    });
    format!("#!/bin/sh\necho '{credential}'\n")
}

/// Returns a plugin's configuration with additional fields.
fn exec(fields: &Value) -> Value {
    let mut exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "command": "./login.sh", "interactiveMode": "Never",
    });
    for (name, value) in fields.as_object().expect("an object") {
        exec[name] = value.clone();
    }
    json!({ "exec": exec })
}

fn tokens() -> Vec<(&'static str, Value)> {
    vec![
        ("token", json!({"token": SECRET})),
        ("token is wrong", json!({"token": "wrong"})),
        ("token is a number", json!({"token": 12345})),
        ("token with an end of line", json!({"token": format!("{SECRET}\n")})),
        ("token with a blank behind", json!({"token": format!("{SECRET} ")})),
        ("token is empty", json!({"token": ""})),
        ("token is null", json!({"token": null})),
        ("token, file is empty", json!({"token": SECRET, "tokenFile": ""})),
        ("token, file is missing", json!({"token": SECRET, "tokenFile": "missing"})),
        ("token, file without content", json!({"token": SECRET, "tokenFile": "empty"})),
        ("token is right, file is wrong", json!({"token": SECRET, "tokenFile": "wrong"})),
        ("token is wrong, file is right", json!({"token": "wrong", "tokenFile": "token"})),
        ("token file", json!({"tokenFile": "token"})),
        ("token file below", json!({"tokenFile": "below/token"})),
        ("token file by dots", json!({"tokenFile": "./below/../token"})),
        ("token file with blanks", json!({"tokenFile": "spaced"})),
        ("token file is missing", json!({"tokenFile": "missing"})),
        ("token file without content", json!({"tokenFile": "empty"})),
        ("no user", json!({})),
        ("basic", json!({"username": "basil", "password": SECRET})),
        ("basic, wrong", json!({"username": "basil", "password": "wrong"})),
        ("name without password", json!({"username": "basil"})),
        ("name is empty, and a token", json!({"username": "", "password": "", "token": SECRET})),
        ("password alone, and a token", json!({"password": SECRET, "token": SECRET})),
        ("basic and token", json!({"username": "basil", "password": SECRET, "token": SECRET})),
        ("basic and token file", json!({"username": "basil", "password": SECRET, "tokenFile": "token"})),
        ("as", json!({"token": SECRET, "as": "jane"})),
        ("as is empty", json!({"token": SECRET, "as": "", "as-uid": "", "as-groups": [], "as-user-extra": {}})),
        (
            "as with all",
            json!({
                "token": SECRET, "as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"x": ["y"]},
            }),
        ),
        ("as groups alone", json!({"token": SECRET, "as-groups": ["a"]})),
        ("as groups is null", json!({"token": SECRET, "as-groups": null, "as-user-extra": null})),
        ("unknown fields", json!({"token": SECRET, "x": 1, "y": {"z": [true]}})),
        ("extensions", json!({"token": SECRET, "extensions": [{"name": "x", "extension": {"a": 1}}]})),
        ("exec is null", json!({"token": SECRET, "exec": null, "auth-provider": null})),
        ("provider is removed", json!({"auth-provider": {"name": "gcp"}})),
        (
            "provider is removed, and a token",
            json!({"token": SECRET, "auth-provider": {"name": "gcp", "config": {
                "cmd-path": "/bin/echo", "cmd-args": "{}", "token-key": "{.a}", "expiry-key": "{.b}",
            }}}),
        ),
        ("provider is unknown", json!({"auth-provider": {"name": "else"}})),
    ]
}

fn certificates(fixtures: &ShapeFixtures) -> Vec<(&'static str, Value)> {
    let (certificate, key) = (fixtures.carol.certificate_pem.as_str(), fixtures.carol.key_pem.as_str());
    let data = |certificate: &str, key: &str| json!({"client-certificate-data": base64(certificate), "client-key-data": base64(key)});
    let wrapped = |pem: &str| {
        let text = base64(pem);
        text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n")
    };
    vec![
        ("certificate", data(certificate, key)),
        (
            "certificate wrapped",
            json!({"client-certificate-data": wrapped(certificate), "client-key-data": wrapped(key)}),
        ),
        ("certificate files", json!({"client-certificate": "carol.crt", "client-key": "carol.key"})),
        ("certificate and key in one file", json!({"client-certificate": "both.pem", "client-key": "both.pem"})),
        ("certificate file, key data", json!({"client-certificate": "carol.crt", "client-key-data": base64(key)})),
        (
            "certificate data and file",
            json!({
                "client-certificate-data": base64(certificate), "client-certificate": "carol.crt", "client-key": "carol.key",
            }),
        ),
        ("certificate with text around it", data(&format!("mine\n{certificate}\n"), &format!("mine\n{key}\n"))),
        ("certificate with CR LF", data(&certificate.replace('\n', "\r\n"), &key.replace('\n', "\r\n"))),
        ("certificate with a chain", data(&format!("{certificate}{}", fixtures.authority), key)),
        ("certificate behind its key", data(&format!("{key}{certificate}"), key)),
        ("certificate without key", json!({"client-certificate-data": base64(certificate)})),
        ("key without certificate, and a token", json!({"client-key-data": base64(key), "token": SECRET})),
        (
            "certificate and token",
            json!({
                "client-certificate-data": base64(certificate), "client-key-data": base64(key), "token": SECRET,
            }),
        ),
        (
            "certificate is empty, and a token",
            json!({
                "client-certificate": "", "client-key": "", "client-certificate-data": "", "client-key-data": "", "token": SECRET,
            }),
        ),
        ("key of another", data(certificate, include_str!("../keys/p384.key"))),
        ("key is encrypted", data(include_str!("../keys/rsa.crt"), include_str!("../keys/enc8.key"))),
        ("key is encrypted, as before", data(include_str!("../keys/rsa.crt"), include_str!("../keys/enc1.key"))),
    ]
}

/// Returns certificates and keys that only the server of `permissive_server` accepts.
fn keys() -> Vec<(&'static str, String, String)> {
    let pair = |certificate: &str, key: &str| (certificate.to_owned(), key.to_owned());
    let v1 = pair(include_str!("../keys/v1.crt"), include_str!("../keys/v1.key"));
    [
        ("certificate of version 1, parameters before the key", v1),
        ("P-384", pair(include_str!("../keys/p384.crt"), include_str!("../keys/p384.key"))),
        ("P-521", pair(include_str!("../keys/p521.crt"), include_str!("../keys/p521.key"))),
        ("Ed25519", pair(include_str!("../keys/ed.crt"), include_str!("../keys/ed.key"))),
        ("RSA, PKCS #1", pair(include_str!("../keys/rsa.crt"), include_str!("../keys/rsa1.key"))),
        ("RSA, PKCS #8", pair(include_str!("../keys/rsa.crt"), include_str!("../keys/rsa8.key"))),
    ]
    .into_iter()
    .map(|(name, (certificate, key))| (name, certificate, key))
    .collect()
}

/// Returns plugins: names, configurations and scripts.
fn plugins(fixtures: &ShapeFixtures) -> Vec<(&'static str, Value, String)> {
    let valid = plugin_script(&json!({"token": SECRET}));
    let printing = |text: &str| format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n");
    let certificate_status =
        json!({"clientCertificateData": fixtures.carol.certificate_pem, "clientKeyData": fixtures.carol.key_pem});
    let file = |status: &Value| {
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status,
        });
        printing(&credential.to_string())
    };
    let mut with_token = exec(&json!({"command": "./missing.sh"}));
    with_token["token"] = SECRET.into();
    let checks = |check: &str| valid.replace("echo", &format!("{check} && echo"));
    vec![
        ("plugin", exec(&json!({})), valid.clone()),
        ("plugin, null fields", exec(&json!({"args": null, "env": null, "installHint": null})), valid.clone()),
        ("plugin, empty fields", exec(&json!({"args": [], "env": [], "installHint": ""})), valid.clone()),
        ("plugin with arguments", exec(&json!({"args": ["one", "two"]})), checks("[ \"$1$2\" = onetwo ]")),
        ("plugin with variables", exec(&json!({"env": [{"name": "ONE", "value": "1"}]})), checks("[ \"$ONE\" = 1 ]")),
        (
            "plugin with an empty variable",
            exec(&json!({"env": [{"name": "ONE", "value": ""}]})),
            checks("[ -z \"$ONE\" ]"),
        ),
        ("plugin with its input", exec(&json!({})), checks("[ -n \"$KUBERNETES_EXEC_INFO\" ]")),
        (
            "plugin with the cluster",
            exec(&json!({"provideClusterInfo": true})),
            checks("case \"$KUBERNETES_EXEC_INFO\" in *https://127.0.0.1*) true;; *) false;; esac"),
        ),
        ("plugin with a hint", exec(&json!({"installHint": "install it\nwith care"})), valid.clone()),
        ("plugin if available", exec(&json!({"interactiveMode": "IfAvailable"})), valid.clone()),
        ("plugin always interactive", exec(&json!({"interactiveMode": "Always"})), valid.clone()),
        ("plugin of an unknown mode", exec(&json!({"interactiveMode": "Sometimes"})), valid.clone()),
        ("plugin without mode", exec(&json!({"interactiveMode": null})), valid.clone()),
        (
            "plugin of v1beta1 without mode",
            exec(&json!({
                "apiVersion": "client.authentication.k8s.io/v1beta1", "interactiveMode": null,
            })),
            valid.replace("k8s.io/v1", "k8s.io/v1beta1"),
        ),
        ("plugin of v1alpha1", exec(&json!({"apiVersion": "client.authentication.k8s.io/v1alpha1"})), valid.clone()),
        ("plugin without version", exec(&json!({"apiVersion": null})), valid.clone()),
        ("plugin without command", exec(&json!({"command": null})), valid.clone()),
        ("plugin is missing", exec(&json!({"command": "./missing.sh"})), valid.clone()),
        ("plugin is missing, and a token", with_token, valid.clone()),
        ("plugin fails", exec(&json!({})), "#!/bin/sh\nexit 3\n".to_owned()),
        ("plugin prints nothing", exec(&json!({})), "#!/bin/sh\n".to_owned()),
        ("plugin without status", exec(&json!({})), file(&Value::Null)),
        ("plugin with neither", exec(&json!({})), file(&json!({}))),
        ("plugin with a certificate", exec(&json!({})), file(&certificate_status)),
        ("plugin with half a certificate", exec(&json!({})), file(&json!({"clientKeyData": fixtures.carol.key_pem}))),
        ("plugin with both", exec(&json!({})), {
            let mut both = certificate_status.clone();
            both["token"] = SECRET.into();
            file(&both)
        }),
        (
            "plugin with an expiry",
            exec(&json!({})),
            plugin_script(&json!({"token": SECRET, "expirationTimestamp": "2100-01-01T00:00:00Z"})),
        ),
        (
            "plugin with a past expiry",
            exec(&json!({})),
            plugin_script(&json!({"token": SECRET, "expirationTimestamp": "2020-01-01T00:00:00Z"})),
        ),
        (
            "plugin with a null expiry",
            exec(&json!({})),
            plugin_script(&json!({"token": SECRET, "expirationTimestamp": null})),
        ),
        ("plugin with unknown fields", exec(&json!({"x": 1})), plugin_script(&json!({"token": SECRET, "x": 1}))),
        (
            "plugin that prints YAML",
            exec(&json!({})),
            printing(&format!(
                "apiVersion: client.authentication.k8s.io/v1\nkind: ExecCredential\nstatus:\n  token: {SECRET}"
            )),
        ),
        ("plugin that prints errors too", exec(&json!({})), valid.replace("echo", "echo well >&2; echo")),
        ("plugin on the path", exec(&json!({"command": "sh", "args": ["-c", valid.lines().nth(1)]})), String::new()),
    ]
}

/// Returns each variant with the plain cluster.
pub(super) fn shapes(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for (form, user) in tokens().into_iter().chain(certificates(fixtures)) {
        let shape = Shape::from_json(format!("user: {form}"), &fixtures.kubeconfig_with(&json!({}), &user))
            .with_file("token", format!("{SECRET}\n"))
            .with_file("below/token", SECRET)
            .with_file("spaced", format!("\n  {SECRET}\r\n\n"))
            .with_file("wrong", "wrong\n")
            .with_file("empty", "\n")
            .with_file("carol.crt", fixtures.carol.certificate_pem.as_str())
            .with_file("carol.key", fixtures.carol.key_pem.as_str())
            .with_file("both.pem", format!("{}{}", fixtures.carol.key_pem, fixtures.carol.certificate_pem));
        shapes.push(shape);
    }
    for (form, user, script) in plugins(fixtures) {
        shapes.push(
            Shape::from_json(format!("user: {form}"), &fixtures.kubeconfig_with(&json!({}), &user))
                .with_file("login.sh", script),
        );
    }
    for (form, certificate, key) in keys() {
        let cluster = json!({
            "server": fixtures.permissive_url, "certificate-authority-data": null, "insecure-skip-tls-verify": true,
        });
        let user = json!({"client-certificate-data": base64(&certificate), "client-key-data": base64(&key)});
        let mut shape = Shape::from_json(format!("key: {form}"), &fixtures.kubeconfig_with(&cluster, &user));
        shape.requests_certificate = true;
        shapes.push(shape);
    }
    shapes
}
