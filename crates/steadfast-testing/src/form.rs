//! In which form objects come and are kept: the one parameter that tests take.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Kept, Lazy};

use crate::error::Error;

/// What informers keep of objects, and in what they request them.
///
/// `STEADFAST_FORM` says it to tests that know no better; its words are those of [`Display`](fmt::Display).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    /// Whether objects are kept as the server wrote them, and decoded when they are read.
    pub lazy: bool,
    /// Whether they are requested in protobuf, before JSON.
    pub protobuf: bool,
}

/// What is no form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoForm(String);

impl fmt::Display for NoForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth] = Form::ALL;
        write!(f, "{:?} is no form; those are {first}, {second}, {third} and {fourth}", self.0)
    }
}

impl std::error::Error for NoForm {}

impl Form {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [
        Self { lazy: false, protobuf: false },
        Self { lazy: true, protobuf: false },
        Self { lazy: false, protobuf: true },
        Self { lazy: true, protobuf: true },
    ];

    /// What `STEADFAST_FORM` says; none where it says nothing.
    ///
    /// # Errors
    ///
    /// Where it says what is no form.
    pub fn said() -> Result<Option<Self>, Error> {
        let said = std::env::var("STEADFAST_FORM").ok().filter(|form| !form.is_empty());
        said.map(|form| form.parse().map_err(|no_form: NoForm| format!("STEADFAST_FORM: {no_form}").into())).transpose()
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.lazy { "lazy" } else { "typed" };
        write!(f, "{kept}-{}", if self.protobuf { "protobuf" } else { "json" })
    }
}

impl FromStr for Form {
    type Err = NoForm;

    fn from_str(text: &str) -> Result<Self, NoForm> {
        let found = Self::ALL.into_iter().find(|form| form.to_string() == text);
        found.ok_or_else(|| NoForm(text.to_owned()))
    }
}

/// What informers keep of a config map.
pub trait Held: Kept<Resource = ConfigMap> {
    /// The config map, where it can be read.
    fn config_map(&self) -> Option<Arc<ConfigMap>>;

    /// One of its data.
    fn value(&self, key: &str) -> Option<String> {
        self.config_map()?.data.as_ref()?.get(key).cloned()
    }
}

impl Held for ConfigMap {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        Some(Arc::new(self.clone()))
    }
}

impl Held for Lazy<ConfigMap> {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        self.get().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn a_form_is_read_as_it_is_written() {
        for form in Form::ALL {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        let refused = "lazy".parse::<Form>().expect_err("half of one").to_string();
        assert!(refused.contains("lazy-protobuf"), "{refused}");
        assert_eq!(Form::default(), Form::ALL[0]);
    }
}
