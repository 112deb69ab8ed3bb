//! Check `authentication`: source of the credentials, expiry of a token, and the user that the server recognizes.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::{Value, json};
use steadfast::kube::Config;
use steadfast::unstable::credentials::{AuthorizationSource, normalize};

use super::context::CheckContext;
use super::finding::Finding;
use super::requests::{RequestError, post_json};

/// Name of the check.
pub(super) const CHECK: &str = "authentication";

const EFFECT: &str = "the server rejects lists and watches of a client that it cannot authenticate";

/// Asks the server for the user of the credentials.
pub(super) async fn check(context: &CheckContext) -> Vec<Finding> {
    let config = normalize(context.config.clone());
    let credentials = Credentials::of(&config);
    let subject = &context.source;
    let mut findings: Vec<Finding> = token_finding(&config, Timestamp::now()).into_iter().collect();
    findings.push(match user_review(context).await {
        Ok(response) => identified(subject, &credentials, response),
        Err(error) if error.status() == Some(401) => Finding::failure(
            CHECK,
            subject,
            format!("the server rejects the credentials ({}): {error}", credentials.kind),
            EFFECT,
            credentials.remedy,
        ),
        // Before Kubernetes 1.28 the server has no such review, and works nevertheless.
        Err(error) if error.is_missing_or_forbidden() => {
            let message = format!("{}; the server does not report the user ({error})", credentials.kind);
            Finding::ok(CHECK, subject, message)
        }
        Err(error) => Finding::not_checked(CHECK, subject, error),
    });
    findings
}

/// Returns the user of the credentials, which is requested once.
async fn user_review(context: &CheckContext) -> &Result<Value, RequestError> {
    let request = async || {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        post_json(&context.connection, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await
    };
    context.user_review.get_or_init(request).await
}

fn identified(source: &str, credentials: &Credentials, response: &Value) -> Finding {
    let user = response.pointer("/status/userInfo/username").and_then(Value::as_str).unwrap_or_default();
    let groups = response.pointer("/status/userInfo/groups").and_then(Value::as_array);
    let groups: Vec<&str> = groups.into_iter().flatten().filter_map(Value::as_str).collect();
    let data = json!({"user": user, "groups": groups, "credentials": credentials.kind});
    if user == "system:anonymous" {
        return Finding::failure(
            CHECK,
            source,
            format!("the server treats requests as anonymous; credentials: {}", credentials.kind),
            "an anonymous user may usually list and watch nothing",
            credentials.remedy,
        )
        .with_data(data);
    }
    let in_groups = if groups.is_empty() { String::new() } else { format!(" in {}", groups.join(", ")) };
    Finding::ok(CHECK, source, format!("user {user}{in_groups}; credentials: {}", credentials.kind)).with_data(data)
}

/// Returns the name of the user of the credentials; `None` if the server does not report the user.
pub(super) async fn user_name(context: &CheckContext) -> Option<String> {
    let response = user_review(context).await.as_ref().ok()?;
    response.pointer("/status/userInfo/username").and_then(Value::as_str).map(str::to_owned)
}

/// Kind of credentials, without any secret.
struct Credentials {
    kind: String,
    remedy: &'static str,
}

impl Credentials {
    /// Returns the credentials that the library sends with `config`, which is in normal form. The order of the sources is
    /// the library's. A client certificate is sent in addition to each of them.
    fn of(config: &Config) -> Self {
        const PASSWORD_REMEDY: &str = "use a token or a client certificate; Kubernetes has no passwords since 1.19";

        let has_certificate = has_client_certificate(config);
        let source = AuthorizationSource::of(config);
        let (mut kind, remedy) = match source {
            Some(AuthorizationSource::AuthProvider(_)) => {
                ("auth-provider".to_owned(), "replace the auth-provider by an exec plugin; kubectl removed it in 1.26")
            }
            Some(AuthorizationSource::Password(_)) => ("user name and password".to_owned(), PASSWORD_REMEDY),
            Some(AuthorizationSource::TokenFile(file)) => {
                (format!("token file {file}"), "check that the file has a current token of this cluster")
            }
            Some(AuthorizationSource::Token(_)) => {
                ("token".to_owned(), "put a current token into the kubeconfig; tokens expire or are revoked")
            }
            Some(AuthorizationSource::Plugin(exec)) => (
                format!("exec plugin {}", exec.command.as_deref().unwrap_or("without a command")),
                "run the plugin's login again, and check its output with `kubectl get ns`",
            ),
            Some(AuthorizationSource::Url) => {
                ("user name and password in the URL of the server".to_owned(), PASSWORD_REMEDY)
            }
            None if has_certificate => (
                "client certificate".to_owned(),
                "renew the client certificate, and check that the server trusts its issuer (--client-ca-file)",
            ),
            None => (
                "none".to_owned(),
                "add a user with a token, certificate or exec plugin to the context of the kubeconfig",
            ),
        };
        if has_certificate && source.is_some() {
            kind.push_str(" and client certificate");
        }
        Self { kind, remedy }
    }
}

fn has_client_certificate(config: &Config) -> bool {
    let user = &config.auth_info;
    user.client_certificate.is_some() || user.client_certificate_data.is_some()
}

/// Judges the expiry of a token in the kubeconfig, if the library sends this token and the token is a JWT.
fn token_finding(config: &Config, now: Timestamp) -> Option<Finding> {
    // Other sources are read again before the expiry, or take precedence over the token.
    let Some(AuthorizationSource::Token(token)) = AuthorizationSource::of(config) else { return None };
    let expires = token_expiry(secrecy::ExposeSecret::expose_secret(token))?;
    let remedy = "use a token file or an exec plugin, which renew the token, or request a longer-lived token";
    Some(if expires <= now && has_client_certificate(config) {
        // kube-apiserver checks the certificate first, and ignores the token if it accepts the certificate.
        let effect = "lists and watches succeed only while the server accepts the client certificate";
        Finding::warning(CHECK, "token", format!("the token expired at {expires}"), effect, remedy)
    } else if expires <= now {
        Finding::failure(CHECK, "token", format!("the token expired at {expires}"), EFFECT, remedy)
    } else {
        let minutes = expires.duration_since(now).as_mins();
        let message =
            format!("the token in the kubeconfig expires at {expires}, in {minutes} min, and cannot be renewed");
        if minutes < 60 {
            Finding::warning(CHECK, "token", message, EFFECT, remedy)
        } else {
            Finding::ok(CHECK, "token", message)
        }
    })
}

/// Returns the expiry of a JWT (RFC 7519, `exp`); `None` for other tokens. The signature is not verified.
fn token_expiry(token: &str) -> Option<Timestamp> {
    let claims = token.split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?).ok()?;
    Timestamp::from_second(claims.get("exp")?.as_i64()?).ok()
}

#[cfg(test)]
mod tests {
    use steadfast::kube::config::{AuthInfo, ExecConfig};

    use super::super::finding::FindingSeverity;
    use super::*;

    fn config(user: AuthInfo) -> Config {
        let mut config = Config::new("https://localhost".parse().expect("a URL"));
        config.auth_info = user;
        config
    }

    fn exec() -> ExecConfig {
        serde_json::from_value(json!({"command": "login"})).expect("a plugin")
    }

    fn jwt(expires: i64) -> String {
        let claims = URL_SAFE_NO_PAD.encode(json!({"exp": expires}).to_string());
        format!("e30.{claims}.c2lnbmF0dXJl")
    }

    #[test]
    fn token_expiry_is_judged() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        for (offset, severity) in
            [(-1, FindingSeverity::Failure), (600, FindingSeverity::Warning), (90_000, FindingSeverity::Ok)]
        {
            let user = AuthInfo { token: Some(jwt(1_800_000_000 + offset).into()), ..AuthInfo::default() };
            let finding = token_finding(&config(user), now).expect("a finding");
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(!format!("{finding:?}").contains("c2lnbmF0dXJl"), "{finding:?}");
        }
        let with_certificate = AuthInfo {
            token: Some(jwt(1_700_000_000).into()),
            client_certificate: Some("/run/client.pem".to_owned()),
            ..AuthInfo::default()
        };
        let finding = token_finding(&config(with_certificate), now).expect("a finding");
        assert_eq!(finding.severity, FindingSeverity::Warning, "{finding:?}");
        let opaque = AuthInfo { token: Some("hunter2".to_owned().into()), ..AuthInfo::default() };
        assert_eq!(token_finding(&config(opaque), now), None);
    }

    #[test]
    fn token_next_to_other_credentials_is_judged_if_sent() {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let expired = AuthInfo { token: Some(jwt(1_700_000_000).into()), ..AuthInfo::default() };
        let with_plugin = AuthInfo { exec: Some(exec()), ..expired.clone() };
        assert!(token_finding(&config(with_plugin), now).is_some(), "a token takes precedence over a plugin");
        let with_user = AuthInfo { username: Some("user".to_owned()), ..expired.clone() };
        assert_eq!(token_finding(&config(with_user), now), None);
        let with_file = AuthInfo { token_file: Some("/run/token".to_owned()), ..expired };
        assert_eq!(token_finding(&config(with_file), now), None);
    }

    #[test]
    fn credentials_name_their_source() {
        let kind = |user: &AuthInfo| Credentials::of(&config(user.clone())).kind;
        let mut user = AuthInfo::default();
        assert_eq!(kind(&user), "none");
        let certificate = Some("certificate".to_owned());
        assert_eq!(
            kind(&AuthInfo { client_certificate_data: certificate.clone(), ..user.clone() }),
            "client certificate"
        );
        let assert_kind = |user: &AuthInfo, expected: &str| {
            assert_eq!(kind(user), expected);
            let with_certificate = AuthInfo { client_certificate_data: certificate.clone(), ..user.clone() };
            assert_eq!(kind(&with_certificate), format!("{expected} and client certificate"));
        };
        user.exec = Some(exec());
        assert_kind(&user, "exec plugin login");
        user.token = Some("hunter2".to_owned().into());
        assert_kind(&user, "token");
        user.token_file = Some("/run/token".to_owned());
        assert_kind(&user, "token file /run/token");
        user.username = Some("user".to_owned());
        assert_kind(&user, "user name and password");
    }
}
