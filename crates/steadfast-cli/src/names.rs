//! Names on the command line: resources and single objects. Empty and invalid names are rejected.

use std::str::FromStr;

/// Argument of the command line that names a resource, or one object of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceArg {
    /// The resource, verbatim: `deploy`, `pods`, `widgets.v1.example.com`.
    pub(crate) resource: String,
    /// The name of the object, if given: `web` of `deploy/web`.
    pub(crate) object: Option<String>,
}

impl FromStr for ResourceArg {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        let (resource, object) = match argument.split_once('/') {
            None => (argument, None),
            Some((resource, object)) => (resource, Some(object)),
        };
        let location = if object.is_some() { format!(" in {argument:?}") } else { String::new() };
        if resource.trim().is_empty() {
            return Err(format!("a resource's name is empty{location}; name one, as in `pods` or `deploy/web`"));
        }
        let Some(object) = object else { return Ok(Self { resource: resource.to_owned(), object: None }) };
        if object.trim().is_empty() {
            return Err(format!("the object's name is empty{location}; leave out the slash for all of them"));
        }
        // No object's name contains these characters, and all but the slash have a meaning in field selectors.
        if let Some(character) =
            object.chars().find(|character| "/,=!\\".contains(*character) || character.is_whitespace())
        {
            return Err(format!(
                "an object's name cannot contain {character:?}, as in {argument:?}; write it as in `deploy/web`"
            ));
        }
        Ok(Self { resource: resource.to_owned(), object: Some(object.to_owned()) })
    }
}

/// Rejects an empty name, which is probably an unset shell variable.
pub(crate) fn not_empty(name: &str) -> Result<String, String> {
    if name.trim().is_empty() {
        return Err("the name is empty; leave the flag out if none is meant".to_owned());
    }
    Ok(name.to_owned())
}

/// Parses the value of `--token`.
pub(crate) fn token(text: &str) -> Result<String, String> {
    if text.is_empty() || !text.chars().all(|character| character.is_ascii_graphic()) {
        return Err("a token is visible ASCII without spaces; leave the flag out for a random one".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource_arg(resource: &str, object: Option<&str>) -> ResourceArg {
        ResourceArg { resource: resource.to_owned(), object: object.map(str::to_owned) }
    }

    #[test]
    fn word_parses_as_resource_or_object() {
        assert_eq!("pods".parse(), Ok(resource_arg("pods", None)));
        assert_eq!("deployments.v1.apps".parse(), Ok(resource_arg("deployments.v1.apps", None)));
        assert_eq!("deploy/web".parse(), Ok(resource_arg("deploy", Some("web"))));
        assert_eq!("clusterroles/system:node".parse(), Ok(resource_arg("clusterroles", Some("system:node"))));
    }

    #[test]
    fn invalid_name_is_rejected_with_reason() {
        for (argument, reason) in [
            ("", "resource's name is empty"),
            (" ", "resource's name is empty"),
            ("/web", "resource's name is empty in \"/web\""),
            ("deploy/", "object's name is empty in \"deploy/\""),
            ("deploy/web/x", "cannot contain '/'"),
            ("deploy/a=b", "cannot contain '='"),
        ] {
            let error = argument.parse::<ResourceArg>().unwrap_err();
            assert!(error.contains(reason), "{argument:?}: {error}");
        }
        assert!(not_empty("").is_err() && not_empty(" ").is_err());
        assert_eq!(not_empty("shop"), Ok("shop".to_owned()));
    }

    #[test]
    fn token_is_visible_ascii() {
        assert_eq!(token("a.b-c/d+e="), Ok("a.b-c/d+e=".to_owned()));
        for text in ["", "a b", "a\n", "ü"] {
            assert!(token(text).is_err(), "{text:?}");
        }
    }
}
