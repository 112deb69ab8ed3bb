//! Precedence of the credentials for the header `Authorization`.

use kube::config::{AuthInfo, AuthProviderConfig, ExecConfig};
use secrecy::SecretString;

use crate::transport::Login;

/// Source of the value of `Authorization`.
#[derive(Clone, Copy)]
pub enum AuthorizationSource<'a> {
    /// Auth provider of the user.
    AuthProvider(&'a AuthProviderConfig),
    /// Name of the user, and the user's password.
    Password(&'a str),
    /// Token file of the user. The user's token is the fallback.
    TokenFile(&'a str),
    /// Token of the user.
    Token(&'a SecretString),
    /// Exec plugin of the user.
    Plugin(&'a ExecConfig),
    /// Name and password in the URL of the server.
    Url,
}

impl<'a> AuthorizationSource<'a> {
    /// Returns the source that is used with `config`, or `None` if no source is configured.
    ///
    /// `config` must be in [normal form](super::normal::normalize), in which no value is empty.
    pub fn of(config: &'a kube::Config) -> Option<Self> {
        Self::of_user(&config.auth_info).or_else(|| Login::of(&config.cluster_url).map(|_| Self::Url))
    }

    /// Returns the source that is used with the user `info`, which is in normal form.
    ///
    /// An auth provider takes precedence. The order of the others is that of client-go.
    pub(super) fn of_user(info: &'a AuthInfo) -> Option<Self> {
        (info.auth_provider.as_ref().map(Self::AuthProvider))
            .or_else(|| info.username.as_deref().map(Self::Password))
            .or_else(|| info.token_file.as_deref().map(Self::TokenFile))
            .or_else(|| info.token.as_ref().map(Self::Token))
            .or_else(|| info.exec.as_ref().map(Self::Plugin))
    }

    /// Returns true if the source can provide new credentials.
    pub(super) fn can_renew(self) -> bool {
        matches!(self, Self::AuthProvider(_) | Self::TokenFile(_) | Self::Plugin(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::normal::normalize;
    use super::*;

    fn source(config: &kube::Config) -> &'static str {
        match AuthorizationSource::of(&normalize(config.clone())) {
            None => "none",
            Some(AuthorizationSource::AuthProvider(_)) => "auth provider",
            Some(AuthorizationSource::Password(_)) => "password",
            Some(AuthorizationSource::TokenFile(_)) => "token file",
            Some(AuthorizationSource::Token(_)) => "token",
            Some(AuthorizationSource::Plugin(_)) => "plugin",
            Some(AuthorizationSource::Url) => "URL",
        }
    }

    #[test]
    fn first_source_takes_precedence() {
        let mut config = kube::Config::new("https://user:password@localhost".parse().expect("a URL"));
        config.auth_info.token = Some(String::new().into());
        assert_eq!(source(&config), "URL", "an empty token is absent");
        // Each step adds the next higher source.
        config.auth_info.exec = serde_json::from_str(r#"{"command": "login"}"#).expect("a plugin");
        assert_eq!(source(&config), "plugin");
        config.auth_info.token = Some("token".to_owned().into());
        assert_eq!(source(&config), "token");
        config.auth_info.token_file = Some("/run/token".to_owned());
        assert_eq!(source(&config), "token file");
        config.auth_info.username = Some("user".to_owned());
        assert_eq!(source(&config), "password");
        config.auth_info.auth_provider = serde_json::from_str(r#"{"name": "oidc", "config": {}}"#).expect("a provider");
        assert_eq!(source(&config), "auth provider");
        let anonymous = kube::Config::new("https://localhost".parse().expect("a URL"));
        assert_eq!(source(&anonymous), "none");
    }
}
