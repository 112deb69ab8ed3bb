//! Objects as lazy mappings over the cached bytes.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use pyo3::IntoPyObjectExt;
use pyo3::PyClass;
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyKeyError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyIterator, PyList, PyString};
use serde::Serialize;
use steadfast::kube::Resource;
use steadfast::{Lazy, ObjectKey, ResourceVersion, Uid};

use crate::errors;
use crate::finalization;
use crate::path::Path;
use crate::tree::{JsonTree, Map, Node};

/// Object in the cache.
pub(crate) type Cached = steadfast::Object<Lazy<JsonTree>>;

/// Type of an object. Items of a list do not contain it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
}

/// An object of Kubernetes: an immutable mapping with Kubernetes' names. Members are attributes, too.
///
/// The object is decoded at the first access to a member. `key`, `name`, `namespace`, `uid` and `resource_version` need
/// no decoding.
#[pyclass(frozen, mapping, weakref, module = "steadfast_kube", name = "Object")]
pub(crate) struct Object {
    source: ObjectSource,
    kind: Kind,
    root: OnceLock<Map>,
}

enum ObjectSource {
    /// In the cached form.
    Cached(Cached),
    /// Created from JSON by `from_json`, which also restores pickles.
    Restored { key: ObjectKey, uid: Uid, version: ResourceVersion },
}

impl Object {
    pub(crate) fn new(object: Cached, kind: Kind) -> Self {
        Self { source: ObjectSource::Cached(object), kind, root: OnceLock::new() }
    }

    fn identity(&self) -> (&ObjectKey, &Uid, &ResourceVersion) {
        match &self.source {
            ObjectSource::Cached(object) => {
                let identity = object.identity();
                (&identity.key, &identity.uid, &identity.version)
            }
            ObjectSource::Restored { key, uid, version } => (key, uid, version),
        }
    }

    /// Returns the members, decoded without the GIL at the first call.
    fn root(&self, py: Python<'_>) -> PyResult<&Map> {
        if let Some(root) = self.root.get() {
            return Ok(root);
        }
        let ObjectSource::Cached(object) = &self.source else {
            return Err(PyValueError::new_err("a restored object has no content"));
        };
        let decoded = finalization::detach(py, || object.get().map(|tree| with_kind(&tree.root, &self.kind)));
        match decoded {
            // Another thread may have decoded the object in the meantime; both results are equal.
            Ok(root) => Ok(self.root.get_or_init(|| root)),
            Err(error) => Err(errors::undecodable(py, object.key(), object.version(), Some(&error.to_string()))),
        }
    }

    fn is_same_state(&self, other: &Self) -> bool {
        matches!((&self.source, &other.source), (ObjectSource::Cached(one), ObjectSource::Cached(other)) if one.is(other))
    }
}

/// Returns the members with `apiVersion` and `kind`, which the items of lists lack.
fn with_kind(root: &Map, kind: &Kind) -> Map {
    let members = root.members().iter().filter(|(name, _)| !matches!(&**name, "apiVersion" | "kind"));
    let types = [("apiVersion", &kind.api_version), ("kind", &kind.kind)];
    let types = types.map(|(name, value)| (Arc::from(name), Node::Text(value.clone())));
    Map::new(types.into_iter().chain(members.cloned()).collect())
}

#[pymethods]
impl Object {
    /// The namespace and the name: `shop/web-0`, or `node-1` for a cluster-scoped object.
    #[getter]
    fn key(&self) -> String {
        self.identity().0.to_string()
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        self.identity().0.name()
    }

    /// The namespace; `None` for a cluster-scoped object.
    #[getter]
    fn namespace(&self) -> Option<&str> {
        self.identity().0.namespace()
    }

    /// The UID; `None` if the server provides none.
    #[getter]
    fn uid(&self) -> Option<&str> {
        Some(self.identity().1).filter(|uid| uid.is_from_server()).map(Uid::as_str)
    }

    /// The version of this state; `None` if the server provides none.
    #[getter]
    fn resource_version(&self) -> Option<&str> {
        Some(self.identity().2).filter(|version| version.is_from_server()).map(ResourceVersion::as_str)
    }

    /// Reads one field without decoding the rest: `pod.read("spec.nodeName")`. Returns `default` if it is missing.
    #[pyo3(signature = (path, default=None))]
    fn read(&self, py: Python<'_>, path: &str, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        let path = Path::parse(path).map_err(PyValueError::new_err)?;
        let first = match (&self.source, self.root.get()) {
            (ObjectSource::Cached(object), None) => {
                let read = finalization::detach(py, || object.read::<Node>(path.prefix()));
                // Every JSON value decodes to a `Node`. An error therefore means that the object is malformed.
                read.map_err(|error| errors::undecodable(py, object.key(), object.version(), Some(&error.to_string())))?
            }
            (_, Some(root)) => path.value(root).filter(|node| **node != Node::Null).cloned(),
            (ObjectSource::Restored { .. }, None) => None,
        };
        let mut found = Vec::new();
        if let Some(node) = &first {
            path.visit(node, &mut |node| found.push(node.clone()));
        }
        if path.is_plural() {
            return Ok(views(py, &found)?.into_any().unbind());
        }
        match found.first() {
            Some(node) => node.to_python(py),
            None => Ok(default.unwrap_or_else(|| py.None())),
        }
    }

    /// Returns a copy of the whole object as plain dictionaries and lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict(py, self.root(py)?)
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        item(py, self.root(py)?, name)
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        attribute(py, "Object", name, || self.root(py))
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.root(py)?.members().len())
    }

    fn __contains__(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        contains(self.root(py)?, name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        names(py, self.root(py)?)?.try_iter()
    }

    #[pyo3(signature = (name, default=None))]
    fn get(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        get(py, self.root(py)?, name, default)
    }

    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "KeysView")
    }

    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ValuesView")
    }

    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ItemsView")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        if let Ok(other) = other.cast::<Self>() {
            let other = other.get();
            return Ok(self.is_same_state(other) || self.root(py)? == other.root(py)?);
        }
        equals(py, self.root(py)?, other)
    }

    /// Equal objects have equal identities and versions.
    fn __hash__(&self) -> u64 {
        let (key, uid, version) = self.identity();
        let mut hasher = DefaultHasher::new();
        (key.to_string(), uid.as_str(), version.as_str()).hash(&mut hasher);
        hasher.finish()
    }

    /// The output omits the content, because the object may be a Secret.
    fn __repr__(&self) -> String {
        let (key, _, version) = self.identity();
        format!("<Object {} {} {key} at version {version}>", self.kind.api_version, self.kind.kind)
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut all: Vec<Bound<'py, PyAny>> = slf.get_type().dir()?.iter().collect();
        all.extend(names(slf.py(), slf.get().root(slf.py())?)?.iter());
        Ok(all)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: Py<PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let py = slf.py();
        let root = slf.get().root(py)?;
        let json = finalization::detach(py, || json(root))?;
        Ok((slf.get_type().getattr("from_json")?, (PyBytes::new(py, &json),)))
    }

    /// Creates an object from JSON, outside of any cache.
    #[staticmethod]
    fn from_json(py: Python<'_>, json: &Bound<'_, PyAny>) -> PyResult<Self> {
        let json = JsonSource::new(json)?;
        let json = json.bytes();
        let tree: JsonTree = finalization::detach(py, || serde_json::from_slice(json))
            .map_err(|error| PyValueError::new_err(format!("the JSON is not an object of Kubernetes: {error}")))?;
        let text = |name: &str| match tree.root.get(name) {
            Some(Node::Text(text)) => text.clone(),
            _ => Arc::from(""),
        };
        let kind = Kind { api_version: text("apiVersion"), kind: text("kind") };
        let meta = tree.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        let key = match &meta.namespace {
            Some(namespace) => ObjectKey::namespaced(namespace, name),
            None => ObjectKey::cluster(name),
        };
        let uid = match meta.uid.as_deref().unwrap_or_default() {
            "" => Uid::by_name(&key),
            uid => Uid::from(uid),
        };
        let version = match meta.resource_version.as_deref().unwrap_or_default() {
            "" => ResourceVersion::substitute_for(json),
            version => ResourceVersion::from(version),
        };
        let root = OnceLock::from(with_kind(&tree.root, &kind));
        Ok(Self { source: ObjectSource::Restored { key, uid, version }, kind, root })
    }
}

/// A part of an object: an immutable mapping. Members are attributes, too.
#[pyclass(frozen, mapping, module = "steadfast_kube", name = "Fields")]
pub(crate) struct Fields(Map);

#[pymethods]
impl Fields {
    /// Returns a copy as plain dictionaries and lists.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict(py, &self.0)
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        item(py, &self.0, name)
    }

    fn __getattr__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        attribute(py, "Fields", name, || Ok(&self.0))
    }

    fn __len__(&self) -> usize {
        self.0.members().len()
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> PyResult<bool> {
        contains(&self.0, name)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        names(py, &self.0)?.try_iter()
    }

    #[pyo3(signature = (name, default=None))]
    fn get(&self, py: Python<'_>, name: &str, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        get(py, &self.0, name, default)
    }

    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "KeysView")
    }

    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ValuesView")
    }

    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        view(slf, "ItemsView")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<Self>() {
            Ok(other) => Ok(self.0 == other.get().0),
            Err(_) => equals(py, &self.0, other),
        }
    }

    /// The output contains only the names, because the values may be those of a Secret.
    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.0.members().iter().map(|(name, _)| &**name).collect();
        format!("<Fields {}>", names.join(", "))
    }

    fn __dir__<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut all: Vec<Bound<'py, PyAny>> = slf.get_type().dir()?.iter().collect();
        all.extend(names(slf.py(), &slf.get().0)?.iter());
        Ok(all)
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: Py<PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        Ok((slf.get_type().getattr("from_json")?, (PyBytes::new(slf.py(), &json(&slf.get().0)?),)))
    }

    /// Creates a mapping from JSON.
    #[staticmethod]
    fn from_json(json: &Bound<'_, PyAny>) -> PyResult<Self> {
        match serde_json::from_slice(JsonSource::new(json)?.bytes()) {
            Ok(Node::Map(map)) => Ok(Self(map)),
            Ok(_) => Err(PyValueError::new_err("the JSON is not an object")),
            Err(error) => Err(PyValueError::new_err(error.to_string())),
        }
    }
}

/// A list in an object: an immutable sequence.
#[pyclass(frozen, sequence, module = "steadfast_kube", name = "Items")]
pub(crate) struct Items(Arc<[Node]>);

#[pymethods]
impl Items {
    /// Returns a copy as a plain list.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        list(py, &self.0)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(index) = index.extract::<isize>() else {
            // A slice, with the rules of lists.
            return Ok(views(py, &self.0)?.as_any().get_item(index)?.unbind());
        };
        let length = self.0.len().cast_signed();
        let position = if index < 0 { index + length } else { index };
        match usize::try_from(position).ok().and_then(|position| self.0.get(position)) {
            Some(node) => node.to_python(py),
            None => Err(PyIndexError::new_err(format!("index {index} of {length} elements"))),
        }
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        views(py, &self.0)?.try_iter()
    }

    fn __contains__(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        for node in &*self.0 {
            if node.to_python(py)?.bind(py).eq(value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        match other.cast::<Self>() {
            Ok(other) => Ok(self.0 == other.get().0),
            Err(_) if other.is_instance_of::<PyList>() => list(py, &self.0)?.eq(other),
            Err(_) => Ok(false),
        }
    }

    fn __repr__(&self) -> String {
        format!("<Items: {}>", self.0.len())
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: Py<PyAny>) -> Py<Self> {
        slf
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let json = json(&Node::List(slf.get().0.clone()))?;
        Ok((slf.get_type().getattr("from_json")?, (PyBytes::new(slf.py(), &json),)))
    }

    /// Creates a sequence from JSON.
    #[staticmethod]
    fn from_json(json: &Bound<'_, PyAny>) -> PyResult<Self> {
        match serde_json::from_slice(JsonSource::new(json)?.bytes()) {
            Ok(Node::List(elements)) => Ok(Self(elements)),
            Ok(_) => Err(PyValueError::new_err("the JSON is not a list")),
            Err(error) => Err(PyValueError::new_err(error.to_string())),
        }
    }
}

/// JSON of an argument, which can be read without the GIL.
enum JsonSource {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl JsonSource {
    /// Reads the JSON of a `str`, `bytes` or `bytearray`.
    fn new(argument: &Bound<'_, PyAny>) -> PyResult<Self> {
        if argument.is_instance_of::<PyString>() {
            return Ok(Self::Text(argument.extract()?));
        }
        argument.extract().map(Self::Bytes).map_err(|_| {
            let class = argument.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
            PyTypeError::new_err(format!("the JSON must be str or bytes, not {class}"))
        })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Node {
    /// Returns the value: a scalar, or a view of a mapping or list.
    fn to_python(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Null => Ok(py.None()),
            Self::Bool(value) => value.into_py_any(py),
            Self::Int(value) => value.into_py_any(py),
            Self::Unsigned(value) => value.into_py_any(py),
            Self::Float(value) => value.into_py_any(py),
            Self::Text(value) => Ok(PyString::new(py, value).into_any().unbind()),
            Self::List(elements) => Items(elements.clone()).into_py_any(py),
            Self::Map(map) => Fields(map.clone()).into_py_any(py),
        }
    }

    /// Returns a copy that consists of plain dictionaries and lists.
    fn to_plain(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::List(elements) => Ok(list(py, elements)?.into_any().unbind()),
            Self::Map(map) => Ok(dict(py, map)?.into_any().unbind()),
            scalar => scalar.to_python(py),
        }
    }
}

/// Returns a list of the values, with views of mappings and lists.
fn views<'py>(py: Python<'py>, nodes: &[Node]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, nodes.iter().map(|node| node.to_python(py)).collect::<PyResult<Vec<_>>>()?)
}

fn json(value: &impl Serialize) -> PyResult<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn dict<'py>(py: Python<'py>, map: &Map) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in map.members() {
        dict.set_item(&**name, value.to_plain(py)?)?;
    }
    Ok(dict)
}

fn list<'py>(py: Python<'py>, elements: &[Node]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, elements.iter().map(|node| node.to_plain(py)).collect::<PyResult<Vec<_>>>()?)
}

fn item(py: Python<'_>, map: &Map, name: &str) -> PyResult<Py<PyAny>> {
    match map.get(name) {
        Some(value) => value.to_python(py),
        None => Err(PyKeyError::new_err(match similar_name(map, name) {
            Some(similar) => format!("{name}; did you mean '{similar}'?"),
            None => name.to_owned(),
        })),
    }
}

/// Returns a member whose name differs only in case or underscores. Other Python clients use such names: `node_name`
/// for `nodeName`.
fn similar_name<'a>(map: &'a Map, name: &str) -> Option<&'a str> {
    fn letters(name: &str) -> impl Iterator<Item = char> {
        name.chars().filter(|letter| *letter != '_').map(|letter| letter.to_ascii_lowercase())
    }
    map.members().iter().map(|(member, _)| &**member).find(|member| letters(member).eq(letters(name)))
}

fn get(py: Python<'_>, map: &Map, name: &str, default: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
    match map.get(name) {
        Some(value) => value.to_python(py),
        None => Ok(default.unwrap_or_else(|| py.None())),
    }
}

/// Returns a member as an attribute. Python looks for names such as `__array__` and `_ipython_display_` everywhere, so
/// that names with a leading underscore are never members.
fn attribute<'a>(
    py: Python<'_>,
    class: &str,
    name: &str,
    map: impl FnOnce() -> PyResult<&'a Map>,
) -> PyResult<Py<PyAny>> {
    let missing =
        |hint: &str| PyAttributeError::new_err(format!("'{class}' object has no attribute or member '{name}'{hint}"));
    if name.starts_with('_') {
        return Err(missing(""));
    }
    let map = map()?;
    let Some(value) = map.get(name) else {
        let Some(similar) = similar_name(map, name) else { return Err(missing("")) };
        let error = missing(&format!("; did you mean '{similar}'?"));
        // CPython adds a suggestion of its own only if the exception has both `name` and `obj`. Only `name` is set, so
        // that the message has one suggestion.
        error.value(py).setattr("name", name)?;
        return Err(error);
    };
    value.to_python(py)
}

fn contains(map: &Map, name: &Bound<'_, PyAny>) -> PyResult<bool> {
    match name.cast::<PyString>() {
        Ok(name) => Ok(map.get(&name.to_cow()?).is_some()),
        Err(_) => Ok(false),
    }
}

fn names<'py>(py: Python<'py>, map: &Map) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, map.members().iter().map(|(name, _)| PyString::new(py, name)))
}

/// Returns a view of a mapping, as a `dict` does.
fn view<'py, T: PyClass>(mapping: &Bound<'py, T>, class: &str) -> PyResult<Bound<'py, PyAny>> {
    mapping.py().import("collections.abc")?.getattr(class)?.call1((mapping,))
}

/// Returns true if `other` is a dictionary of the same content.
fn equals(py: Python<'_>, map: &Map, other: &Bound<'_, PyAny>) -> PyResult<bool> {
    if other.is_instance_of::<PyDict>() { dict(py, map)?.eq(other) } else { Ok(false) }
}

/// Returns the JSON of an argument: a mapping of this package, or a value that `json.dumps` accepts.
pub(crate) fn json_of(argument: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let py = argument.py();
    if let Ok(object) = argument.cast::<Object>() {
        return json(object.get().root(py)?);
    }
    let text = py.import("json")?.call_method1("dumps", (argument,)).map_err(|error| {
        PyTypeError::new_err(format!("the object must consist of dictionaries, lists and scalars: {error}"))
    })?;
    Ok(text.extract::<String>()?.into_bytes())
}
