//! Precedence of the credentials for the header `Authorization`.

use kube::config::AuthInfo;

use super::normal::normalize;
use crate::transport::Login;

/// Source of the value of `Authorization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationSource {
    /// Auth provider of the user.
    AuthProvider,
    /// Name and password of the user.
    Password,
    /// Token file of the user. The user's token is the fallback.
    TokenFile,
    /// Token of the user.
    Token,
    /// Exec plugin of the user.
    Plugin,
    /// Name and password in the URL of the server.
    Url,
}

impl AuthorizationSource {
    /// Returns the source that is used with `config`, or `None` if no source is configured. Empty values count as
    /// absent.
    pub fn of(config: &kube::Config) -> Option<Self> {
        Self::of_normal(&normalize(config.clone()))
    }

    /// Returns the source that is used with `config`, which is in normal form.
    pub(super) fn of_normal(config: &kube::Config) -> Option<Self> {
        Self::of_user(&config.auth_info).or_else(|| Login::of(&config.cluster_url).map(|_| Self::Url))
    }

    /// Returns the source that is used with the user `info`, which is in normal form.
    ///
    /// An auth provider takes precedence. The order of the others is that of client-go.
    pub(super) fn of_user(info: &AuthInfo) -> Option<Self> {
        let sources = [
            (info.auth_provider.is_some(), Self::AuthProvider),
            (info.username.is_some(), Self::Password),
            (info.token_file.is_some(), Self::TokenFile),
            (info.token.is_some(), Self::Token),
            (info.exec.is_some(), Self::Plugin),
        ];
        sources.into_iter().find_map(|(is_configured, source)| is_configured.then_some(source))
    }

    /// Returns true if the source can provide new credentials.
    pub(super) fn can_renew(self) -> bool {
        matches!(self, Self::AuthProvider | Self::TokenFile | Self::Plugin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_source_takes_precedence() {
        let mut config = kube::Config::new("https://user:password@localhost".parse().expect("a URL"));
        config.auth_info.token = Some(String::new().into());
        assert_eq!(AuthorizationSource::of(&config), Some(AuthorizationSource::Url), "an empty token is absent");
        // Each step adds the next higher source.
        config.auth_info.exec = serde_json::from_str(r#"{"command": "login"}"#).expect("a plugin");
        assert_eq!(AuthorizationSource::of(&config), Some(AuthorizationSource::Plugin));
        config.auth_info.token = Some("token".to_owned().into());
        assert_eq!(AuthorizationSource::of(&config), Some(AuthorizationSource::Token));
        config.auth_info.token_file = Some("/run/token".to_owned());
        assert_eq!(AuthorizationSource::of(&config), Some(AuthorizationSource::TokenFile));
        config.auth_info.username = Some("user".to_owned());
        assert_eq!(AuthorizationSource::of(&config), Some(AuthorizationSource::Password));
        config.auth_info.auth_provider = serde_json::from_str(r#"{"name": "oidc", "config": {}}"#).expect("a provider");
        assert_eq!(AuthorizationSource::of(&config), Some(AuthorizationSource::AuthProvider));
        let anonymous = kube::Config::new("https://localhost".parse().expect("a URL"));
        assert_eq!(AuthorizationSource::of(&anonymous), None);
    }
}
