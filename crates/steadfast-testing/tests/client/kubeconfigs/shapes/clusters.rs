//! Variants of clusters: authorities, URLs, names, and empty or unknown fields.

use serde_json::{Value, json};

use super::{Shape, ShapeFixtures};
use crate::kubeconfigs::support::{SECRET, base64};

/// Wraps `text` after each `width` characters.
fn wrapped(text: &str, width: usize, end: &str) -> String {
    let lines: Vec<&str> = text.as_bytes().chunks(width).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    lines.join(end)
}

/// Returns the variants of clusters, independent of users.
pub(super) fn forms(fixtures: &ShapeFixtures) -> Vec<(&'static str, Value)> {
    let url = fixtures.server.url(0);
    let host = url.trim_start_matches("https://").to_owned();
    let port = host.rsplit(':').next().unwrap_or_default().to_owned();
    let authority = fixtures.authority.as_str();
    let data = base64(authority);
    let with_data = |pem: &str| json!({"certificate-authority-data": base64(pem)});
    let other = &fixtures.carol.certificate_pem;
    let server = |url: String| json!({"server": url});
    let without = json!({"certificate-authority-data": null});
    let and = |added: Value| {
        let mut fields = without.clone();
        for (name, value) in added.as_object().expect("an object") {
            fields[name] = value.clone();
        }
        fields
    };
    vec![
        ("plain", json!({})),
        ("authority in a file", and(json!({"certificate-authority": "ca.crt"}))),
        (
            "authority in a file, empty data",
            json!({"certificate-authority-data": "", "certificate-authority": "ca.crt"}),
        ),
        ("authority in a file that is missing", and(json!({"certificate-authority": "missing.crt"}))),
        ("authority as data and as a file", json!({"certificate-authority": "ca.crt"})),
        ("authority wrapped by LF", json!({"certificate-authority-data": wrapped(&data, 76, "\n")})),
        ("authority wrapped by CR LF", json!({"certificate-authority-data": wrapped(&data, 64, "\r\n")})),
        ("authority wrapped by blanks", json!({"certificate-authority-data": wrapped(&data, 64, " ")})),
        ("authority with an end of line", json!({"certificate-authority-data": format!("{data}\n")})),
        (
            "authority without padding",
            json!({"certificate-authority-data": base64(&format!("{authority}\n")).trim_end_matches('=')}),
        ),
        ("authority with text around it", with_data(&format!("the authority\n{authority}\nand more\n"))),
        ("authority with CR LF", with_data(&authority.replace('\n', "\r\n"))),
        ("authority without the last end of line", with_data(authority.trim_end())),
        ("authority twice", with_data(&format!("{authority}{authority}"))),
        ("authority after another one", with_data(&format!("{other}{authority}"))),
        (
            "authority beside a broken one",
            with_data(&format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{authority}")),
        ),
        ("authority next to a key", with_data(&format!("{}{authority}", fixtures.carol.key_pem))),
        ("authority of another server", with_data(other)),
        ("authority that is not PEM", with_data("nothing")),
        ("no authority", without.clone()),
        ("insecure", and(json!({"insecure-skip-tls-verify": true}))),
        ("insecure, with an authority", json!({"insecure-skip-tls-verify": true})),
        ("insecure, as a text", and(json!({"insecure-skip-tls-verify": "true"}))),
        ("secure, said", json!({"insecure-skip-tls-verify": false})),
        ("insecure is null", json!({"insecure-skip-tls-verify": null})),
        ("name is empty", json!({"tls-server-name": ""})),
        ("name is localhost", json!({"tls-server-name": "localhost"})),
        ("name of the service", json!({"tls-server-name": "kubernetes.default.svc"})),
        ("name is an address", json!({"tls-server-name": "127.0.0.1"})),
        ("name of another", json!({"tls-server-name": "else.example"})),
        ("proxy is empty", json!({"proxy-url": ""})),
        ("proxy of an unknown kind", json!({"proxy-url": "ftp://proxy"})),
        ("compression disabled", json!({"disable-compression": true})),
        ("unknown fields", json!({"x": 1, "y": {"z": [true]}})),
        ("extensions", json!({"extensions": [{"name": "x", "extension": {"last-update": "today"}}]})),
        ("api-version", json!({"api-version": "v1"})),
        ("server with a slash", server(format!("{url}/"))),
        ("server with upper-case scheme", server(format!("HTTPS://{host}"))),
        ("server without scheme", server(host.clone())),
        ("server by name", server(format!("https://localhost:{port}"))),
        ("server by name without scheme", server(format!("localhost:{port}"))),
        ("server by name in upper case", server(format!("https://LOCALHOST:{port}"))),
        ("server with an absolute name", server(format!("https://localhost.:{port}"))),
        ("server with a query", server(format!("{url}?x=y"))),
        ("server with a user in the URL", server(format!("https://basil:{SECRET}@{host}"))),
        ("server with a path", server(format!("{url}/nowhere"))),
        ("server with a path and no scheme", server(format!("{host}/nowhere"))),
        ("server is empty", server(String::new())),
        ("server is not a URL", server("https://[::1".to_owned())),
        ("server with blanks", server(format!(" {url} "))),
        ("server without port", server("https://127.0.0.1".to_owned())),
    ]
}

/// Returns the variants of a server without TLS, to which kubectl sends no credentials.
fn plain(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let url = fixtures.plain_server.url(0);
    let host = url.trim_start_matches("http://").to_owned();
    let port = host.rsplit(':').next().unwrap_or_default();
    let none = json!({});
    let token = json!({"token": SECRET});
    let missing = json!({"tokenFile": "missing"});
    let plugin = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "./missing.sh", "interactiveMode": "Never",
    }});
    let with_authority = json!({"server": host});
    let bare = |server: &str| json!({"server": server, "certificate-authority-data": null});
    let forms = [
        ("http", bare(&url), &none),
        ("http, token", bare(&url), &token),
        ("http, authority", json!({"server": url}), &token),
        ("http with a slash", bare(&format!("{url}/")), &none),
        ("no scheme", bare(&host), &none),
        ("no scheme, by name", bare(&format!("localhost:{port}")), &none),
        ("no scheme, token", bare(&host), &token),
        ("no scheme, token file is missing", bare(&host), &missing),
        ("no scheme, plugin is missing", bare(&host), &plugin),
        ("no scheme, authority", with_authority.clone(), &none),
        ("no scheme, authority, token", with_authority, &token),
        (
            "no scheme, insecure",
            json!({
                "server": host, "certificate-authority-data": null, "insecure-skip-tls-verify": true,
            }),
            &none,
        ),
        ("unreadable token file", bare(&url), &missing),
        ("unreadable plugin", bare(&url), &plugin),
    ];
    let shape = |(form, cluster, user): (&str, Value, &Value)| {
        Shape::from_json(format!("plain: {form}"), &fixtures.kubeconfig_with(&cluster, user))
    };
    forms.into_iter().map(shape).collect()
}

/// Returns each variant with a token user, and selected variants with each of several other users.
pub(super) fn shapes(fixtures: &ShapeFixtures) -> Vec<Shape> {
    let mut shapes = plain(fixtures);
    let token = json!({"token": SECRET});
    let crossed = [
        "plain",
        "authority in a file",
        "authority in a file, empty data",
        "authority wrapped by LF",
        "authority after another one",
        "insecure",
        "name is empty",
        "server with a slash",
        "unknown fields",
    ];
    let users = [
        ("basic", json!({"username": "basil", "password": SECRET})),
        ("token file", json!({"tokenFile": "token"})),
        ("token and file", json!({"token": "wrong", "tokenFile": "token"})),
        (
            "certificate",
            json!({
                "client-certificate-data": base64(&fixtures.carol.certificate_pem), "client-key-data": base64(&fixtures.carol.key_pem),
            }),
        ),
        ("certificate files", json!({"client-certificate": "carol.crt", "client-key": "carol.key"})),
        (
            "plugin",
            json!({"exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "./login.sh", "interactiveMode": "Never",
            }}),
        ),
        (
            "token, and empty fields",
            json!({"token": SECRET, "tokenFile": "", "username": "", "as": "", "client-key": ""}),
        ),
        ("wrong token", json!({"token": "wrong"})),
    ];
    let server = fixtures.server.url(0).replace("https://", &format!("https://basil:{SECRET}@"));
    shapes.push(Shape::from_json(
        "cluster: user in the URL alone",
        &fixtures.kubeconfig_with(&json!({"server": server}), &json!({})),
    ));
    for (form, cluster) in forms(fixtures) {
        let name = format!("cluster: {form}");
        shapes.push(
            Shape::from_json(name, &fixtures.kubeconfig_with(&cluster, &token))
                .with_file("ca.crt", fixtures.authority.as_str()),
        );
        for (user_form, user) in users.iter().filter(|_| crossed.contains(&form)) {
            let shape = Shape::from_json(
                format!("cluster: {form}; user: {user_form}"),
                &fixtures.kubeconfig_with(&cluster, user),
            );
            shapes.push(
                shape
                    .with_file("ca.crt", fixtures.authority.as_str())
                    .with_file("token", format!("{SECRET}\n"))
                    .with_file("carol.crt", fixtures.carol.certificate_pem.as_str())
                    .with_file("carol.key", fixtures.carol.key_pem.as_str())
                    .with_file("login.sh", super::users::plugin_script(&json!({"token": SECRET}))),
            );
        }
    }
    shapes
}
