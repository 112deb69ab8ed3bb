//! Who reports events.

use super::names::{LONGEST_INSTANCE, cut, is_qualified};

/// Who reports events: the same controller may run more than once.
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
        let instance = instance.filter(|instance| !instance.is_empty()).unwrap_or_else(|| of_this_host(&controller));
        let instance = cut(&instance, LONGEST_INSTANCE).to_owned();
        Ok(Self { controller, instance })
    }
}

/// The instance on this host, as client-go names it; a container's host has the name of its pod.
fn of_this_host(controller: &str) -> String {
    match hostname::get().ok().and_then(|host| host.into_string().ok()) {
        Some(host) if !host.is_empty() => format!("{controller}-{host}"),
        _ => controller.to_owned(),
    }
}

/// A reporter's name is none that the API takes.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{controller:?} cannot be the name of a reporting controller: name it with at most 63 letters, digits, `-`, `_` and `.`, \
     beginning and ending with a letter or a digit, and maybe a domain and `/` before them, as in example.com/web-controller"
)]
pub struct InvalidReporter {
    /// The name.
    pub controller: String,
}

debug_as_message!(InvalidReporter);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_what_was_said_as_far_as_it_fits() {
        let instance = |said: &str| Reporter::new("web".to_owned(), Some(said.to_owned())).map(|all| all.instance);
        assert_eq!(instance("web-7f9").as_deref(), Ok("web-7f9"));
        assert_eq!(instance(&"é".repeat(100)), Ok("é".repeat(64)));
        assert!(instance("").is_ok_and(|instance| instance.starts_with("web")), "there has to be one");
    }

    #[test]
    fn a_name_that_the_api_refuses_is_refused_at_once() {
        let refused = Reporter::new("web controller".to_owned(), None).expect_err("it has a blank");
        assert!(refused.to_string().starts_with("\"web controller\" cannot be"), "{refused}");
    }
}
