//! Form in which objects are transferred and cached: one parameter of the tests.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::core::v1::ConfigMap;
use steadfast::{Cacheable, InformerBuilder, InformerFactory, Lazy, Scope};
use steadfast_core::decode::{DecodeError, Decoder, RawObject};

use crate::error::TestkitError;

/// Form in which informers request and cache objects.
///
/// `STEADFAST_FORM` sets the form for tests that do not choose one. Its values are those of [`Display`](fmt::Display).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedForm {
    /// True if objects are cached in the server's encoding, and decoded when they are read.
    pub lazy: bool,
    /// True if objects are requested in protobuf, with JSON as the second choice.
    pub protobuf: bool,
}

/// Error for a text that is not a valid form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidForm(String);

impl fmt::Display for InvalidForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third, fourth] = CachedForm::ALL;
        write!(f, "{:?} is not a valid form; use {first}, {second}, {third} or {fourth}", self.0)
    }
}

impl std::error::Error for InvalidForm {}

impl CachedForm {
    /// All forms, the default first.
    pub const ALL: [Self; 4] = [
        Self { lazy: false, protobuf: false },
        Self { lazy: true, protobuf: false },
        Self { lazy: false, protobuf: true },
        Self { lazy: true, protobuf: true },
    ];

    /// Returns the form that `STEADFAST_FORM` specifies, or `None` if the variable is not set.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is not a valid form.
    pub fn from_env() -> Result<Option<Self>, TestkitError> {
        let value = std::env::var("STEADFAST_FORM").ok().filter(|form| !form.is_empty());
        value
            .map(|form| form.parse().map_err(|error: InvalidForm| format!("STEADFAST_FORM: {error}").into()))
            .transpose()
    }

    /// Returns the form of this run: that of `STEADFAST_FORM`, or the default.
    ///
    /// # Panics
    ///
    /// Panics if `STEADFAST_FORM` is not a valid form. Otherwise a run could pass without a test in the requested form.
    pub fn current() -> Self {
        // Read once: all informers of a process must have the same form, or a test would mix forms.
        static FORM: LazyLock<CachedForm> =
            LazyLock::new(|| CachedForm::from_env().unwrap_or_else(|error| panic!("{error}")).unwrap_or_default());
        *FORM
    }
}

/// Returns a builder for an informer of config maps in the [form of this run](CachedForm::current). Lists are streamed in
/// each form, although paged JSON lists cost a server less.
pub fn builder_with_form(factory: &InformerFactory, scope: Scope) -> InformerBuilder<'_, ConfigMapInForm> {
    factory.builder(scope).protobuf(CachedForm::current().protobuf).streamed_lists(true)
}

impl fmt::Display for CachedForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = if self.lazy { "lazy" } else { "typed" };
        write!(f, "{storage}-{}", if self.protobuf { "protobuf" } else { "json" })
    }
}

impl FromStr for CachedForm {
    type Err = InvalidForm;

    fn from_str(text: &str) -> Result<Self, InvalidForm> {
        let form = Self::ALL.into_iter().find(|form| form.to_string() == text);
        form.ok_or_else(|| InvalidForm(text.to_owned()))
    }
}

/// Cached representation of a config map.
pub trait CachedConfigMap: Cacheable<Resource = ConfigMap> {
    /// Returns the config map, or `None` if it does not decode.
    fn config_map(&self) -> Option<Arc<ConfigMap>>;

    /// Returns the value under `key` in the data of the config map.
    fn value(&self, key: &str) -> Option<String> {
        self.config_map()?.data.as_ref()?.get(key).cloned()
    }
}

impl CachedConfigMap for ConfigMap {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        Some(Arc::new(self.clone()))
    }
}

impl CachedConfigMap for Lazy<ConfigMap> {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        self.get().ok()
    }
}

/// Config map, cached in the [form of this run](CachedForm::current). Tests that do not depend on the form can use this
/// type for all forms.
///
/// An informer uses only the [`Cacheable`] implementation of its objects, so this type behaves like the types in
/// its variants.
pub enum ConfigMapInForm {
    /// Decoded on arrival.
    Typed(Box<ConfigMap>),
    /// Cached in the server's encoding.
    Lazy(Lazy<ConfigMap>),
}

impl Cacheable for ConfigMapInForm {
    type Resource = ConfigMap;

    fn decode(raw: &RawObject, decoder: &mut Decoder) -> Result<Self, DecodeError> {
        if CachedForm::current().lazy {
            Lazy::decode(raw, decoder).map(Self::Lazy)
        } else {
            <ConfigMap as Cacheable>::decode(raw, decoder).map(Box::new).map(Self::Typed)
        }
    }

    fn read_whole<T>(&self, read: impl FnOnce(&ConfigMap) -> T) -> Result<T, DecodeError> {
        match self {
            Self::Typed(object) => (**object).read_whole(read),
            Self::Lazy(object) => object.read_whole(read),
        }
    }

    fn metadata_only() -> bool {
        <ConfigMap as Cacheable>::metadata_only()
    }

    fn is_costly() -> bool {
        if CachedForm::current().lazy { Lazy::<ConfigMap>::is_costly() } else { ConfigMap::is_costly() }
    }

    fn labels(&self) -> Option<Cow<'_, BTreeMap<String, String>>> {
        match self {
            Self::Typed(object) => Cacheable::labels(&**object),
            Self::Lazy(object) => Cacheable::labels(object),
        }
    }
}

impl CachedConfigMap for ConfigMapInForm {
    fn config_map(&self) -> Option<Arc<ConfigMap>> {
        match self {
            Self::Typed(object) => object.config_map(),
            Self::Lazy(object) => object.config_map(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CachedForm;

    #[test]
    fn form_parses_its_own_text() {
        for form in CachedForm::ALL {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        let rejected = "lazy".parse::<CachedForm>().expect_err("half of one").to_string();
        assert!(rejected.contains("lazy-protobuf"), "{rejected}");
        assert_eq!(CachedForm::default(), CachedForm::ALL[0]);
    }
}
