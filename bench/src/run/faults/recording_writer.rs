//! The writer of a scenario, which also records the objects that a client should have.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steadfast_apiserver::ApiServer;

use crate::BenchError;

/// Namespace of all objects.
const NAMESPACE: &str = "default";

/// UIDs and versions by name.
pub(super) type Objects = BTreeMap<String, (String, u64)>;

/// Writer that records the expected objects. It writes the same sequence in each run.
pub(super) struct RecordingWriter {
    objects: Objects,
    next_number: usize,
    write_count: usize,
}

impl RecordingWriter {
    /// Creates the `count` initial objects.
    pub(super) fn create_initial(server: &ApiServer, count: usize) -> Result<Self, BenchError> {
        let mut writer = Self { objects: Objects::new(), next_number: 0, write_count: 0 };
        for _ in 0..count {
            writer.create_another(server)?;
        }
        Ok(writer)
    }

    /// Returns the expected objects.
    pub(super) fn expected_objects(&self) -> &Objects {
        &self.objects
    }

    /// Resets the expected objects to `objects` after a restore.
    pub(super) fn restore(&mut self, objects: Objects) {
        self.objects = objects;
    }

    /// Changes one object.
    pub(super) fn change(&mut self, server: &ApiServer, name: &str) -> Result<(), BenchError> {
        self.write_count += 1;
        let patch = json!({ "data": { "value": self.write_count.to_string() } });
        let object = server.merge_patch("configmaps", NAMESPACE, name, patch)?;
        self.record(&object)
    }

    /// Deletes one object.
    pub(super) fn delete(&mut self, server: &ApiServer, name: &str) -> Result<(), BenchError> {
        server.delete_named("configmaps", NAMESPACE, name)?;
        self.objects.remove(name);
        Ok(())
    }

    /// Creates an object with this name.
    pub(super) fn create(&mut self, server: &ApiServer, name: &str) -> Result<(), BenchError> {
        self.write_count += 1;
        let object = server.create(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": NAMESPACE },
            "data": { "value": self.write_count.to_string(), "ballast": "x".repeat(300) },
        }))?;
        self.record(&object)
    }

    /// Creates an object with a new name.
    pub(super) fn create_another(&mut self, server: &ApiServer) -> Result<(), BenchError> {
        self.next_number += 1;
        self.create(server, &format!("c-{:04}", self.next_number))
    }

    /// Makes one write. Of ten calls, seven change an object, one creates, one deletes, and one recreates an object.
    pub(super) fn write(&mut self, server: &ApiServer) -> Result<(), BenchError> {
        let names: Vec<&String> = self.objects.keys().collect();
        // A prime factor spreads the writes over the objects, independently of the kinds of writes.
        let name = names.get(self.write_count * 31 % names.len().max(1)).map(|name| (*name).clone());
        let Some(name) = name else { return self.create_another(server) };
        // The number of writes determines the kind of the next write, so that each library sees the same sequence.
        match self.write_count % 10 {
            3 => self.create_another(server),
            6 => {
                // A deletion counts as a write, or the sequence would repeat this step forever.
                self.write_count += 1;
                self.delete(server, &name)
            }
            8 => {
                self.delete(server, &name)?;
                self.create(server, &name)
            }
            _ => self.change(server, &name),
        }
    }

    fn record(&mut self, object: &Value) -> Result<(), BenchError> {
        let field = |key: &str| object["metadata"][key].as_str().map(str::to_owned).ok_or("the object has no metadata");
        let version = field("resourceVersion")?.parse()?;
        self.objects.insert(field("name")?, (field("uid")?, version));
        Ok(())
    }
}
