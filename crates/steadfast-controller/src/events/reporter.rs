//! Reporter of events.

use super::names::{MAX_INSTANCE_BYTES, is_qualified, truncated};

/// Reporter of events: a controller and one of its instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reporter {
    pub(super) controller: String,
    pub(super) instance: String,
}

impl Reporter {
    pub(super) fn new(controller: String, instance: Option<String>) -> Result<Self, InvalidReporter> {
        if !is_qualified(&controller) {
            return Err(InvalidReporter { controller });
        }
        let instance =
            instance.filter(|instance| !instance.is_empty()).unwrap_or_else(|| default_instance(&controller));
        let instance = truncated(&instance, MAX_INSTANCE_BYTES).to_owned();
        Ok(Self { controller, instance })
    }
}

/// Returns the default instance like client-go: controller and host name. A container's host name is the pod's name.
fn default_instance(controller: &str) -> String {
    match hostname::get().ok().and_then(|host| host.into_string().ok()) {
        Some(host) if !host.is_empty() => format!("{controller}-{host}"),
        _ => controller.to_owned(),
    }
}

/// Error for a reporter's name that the API would reject. The name is checked before any request.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{controller:?} cannot be the name of a reporting controller: use at most 63 letters, digits, `-`, `_` and `.`, with \
     a letter or a digit at both ends, optionally after a domain and `/`, as in example.com/web-controller"
)]
#[non_exhaustive]
pub struct InvalidReporter {
    /// The rejected name.
    pub controller: String,
}

debug_as_message!(InvalidReporter);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_cut_to_limit() {
        let instance = |name: &str| Reporter::new("web".to_owned(), Some(name.to_owned())).map(|all| all.instance);
        assert_eq!(instance("web-7f9").as_deref(), Ok("web-7f9"));
        assert_eq!(instance(&"é".repeat(100)), Ok("é".repeat(64)));
        assert!(instance("").is_ok_and(|instance| instance.starts_with("web")), "an instance is required");
    }

    #[test]
    fn invalid_reporter_name_is_rejected() {
        let rejected = Reporter::new("web controller".to_owned(), None).expect_err("the name contains a blank");
        assert!(rejected.to_string().starts_with("\"web controller\" cannot be"), "{rejected}");
    }
}
