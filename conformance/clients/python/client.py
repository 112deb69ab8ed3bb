"""The official Python client against any server: objects, watches, patches, apply, deletions, custom objects, errors.

    client.py KUBECONFIG

Exits with 1 and prints one line at the first difference from a real API server. Removes all its objects.
"""

import sys
import threading
import time

import kubernetes
from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException

from applying import apply_custom, apply_typed, patch_types, tables
from checks import GROUP, NAMESPACE, PATIENCE, Difference, config_map, equal, eventually, holds, refused


def prepare(core):
    try:
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=NAMESPACE)))
    except ApiException as error:
        if error.status != 409:
            raise
    # Removes the objects of an earlier, killed run.
    for left in core.list_namespaced_config_map(NAMESPACE).items:
        if left.metadata.finalizers:
            core.patch_namespaced_config_map(left.metadata.name, NAMESPACE, {"metadata": {"finalizers": None}})
    core.delete_collection_namespaced_config_map(NAMESPACE)


def objects(core):
    made = core.create_namespaced_config_map(NAMESPACE, config_map("one", value="1"))
    holds("create sets UID, version and time", made.metadata.uid and made.metadata.resource_version
          and made.metadata.creation_timestamp.tzinfo, made.metadata)
    body = refused("create it again", 409, "AlreadyExists",
                   lambda: core.create_namespaced_config_map(NAMESPACE, config_map("one")))
    equal("the error names the object", body["details"], {"name": "one", "kind": "configmaps"})
    equal("the error's message", body["message"], 'configmaps "one" already exists')
    read = core.read_namespaced_config_map("one", NAMESPACE)
    equal("read the created object", read.to_dict(), made.to_dict())
    refused("read a missing object", 404, "NotFound", lambda: core.read_namespaced_config_map("none", NAMESPACE))

    read.data["value"] = "2"
    replaced = core.replace_namespaced_config_map("one", NAMESPACE, read)
    holds("replace changes the version", replaced.metadata.resource_version != read.metadata.resource_version,
          replaced.metadata.resource_version)
    again = core.replace_namespaced_config_map("one", NAMESPACE, replaced)
    equal("a replacement that changes nothing keeps the version", again.metadata.resource_version,
          replaced.metadata.resource_version)
    refused("replace by an old version", 409, "Conflict",
            lambda: core.replace_namespaced_config_map("one", NAMESPACE, read))
    refused("an invalid name", 422, "Invalid",
            lambda: core.create_namespaced_config_map(NAMESPACE, config_map("Not A Name")))
    dry = core.create_namespaced_config_map(NAMESPACE, config_map("dry"), dry_run="All")
    equal("a dry run returns the object", dry.metadata.name, "dry")
    refused("a dry run stores nothing", 404, "NotFound", lambda: core.read_namespaced_config_map("dry", NAMESPACE))

    secret = client.V1Secret(metadata=client.V1ObjectMeta(generate_name="many-"), string_data={"key": "value"})
    secret = core.create_namespaced_secret(NAMESPACE, secret)
    holds("a generated name", secret.metadata.name.startswith("many-") and len(secret.metadata.name) == 10,
          secret.metadata.name)
    equal("a secret's text becomes data", (secret.type, secret.data, secret.string_data),
          ("Opaque", {"key": "dmFsdWU="}, None))
    core.delete_namespaced_secret(secret.metadata.name, NAMESPACE)


def patches(core):
    def patch(body, content_type):
        return core.patch_namespaced_config_map("one", NAMESPACE, body, _content_type=content_type)

    equal("strategic merge patch", patch({"data": {"more": "3"}}, "application/strategic-merge-patch+json").data,
          {"value": "2", "more": "3"})
    equal("merge patch", patch({"data": {"more": None, "value": "4"}}, "application/merge-patch+json").data,
          {"value": "4"})
    operations = [{"op": "test", "path": "/data/value", "value": "4"}, {"op": "add", "path": "/data/b", "value": "5"}]
    equal("JSON patch", patch(operations, "application/json-patch+json").data, {"value": "4", "b": "5"})
    refused("a JSON patch whose test fails", 422, "Invalid", lambda: patch([
        {"op": "test", "path": "/data/value", "value": "no"}], "application/json-patch+json"))
    refused("a patch for an old version", 409, "Conflict",
            lambda: patch({"metadata": {"resourceVersion": "1"}, "data": {"c": "6"}}, "application/merge-patch+json"))
    # The generated client selects the type of a patch: a JSON patch for a list, a strategic merge for an object.
    chosen = core.patch_namespaced_config_map("one", NAMESPACE, [{"op": "remove", "path": "/data/b"}])
    equal("a patch without a type", chosen.data, {"value": "4"})


def lists(core):
    for name in ("two", "three", "four", "five"):
        core.create_namespaced_config_map(NAMESPACE, config_map(name))
    seen, token, pages, versions = [], None, 0, set()
    while True:
        page = core.list_namespaced_config_map(NAMESPACE, limit=2, _continue=token,
                                               field_selector="metadata.name!=kube-root-ca.crt")
        seen += [item.metadata.name for item in page.items]
        versions.add(page.metadata.resource_version)
        pages += 1
        token = page.metadata._continue
        if not token:
            break
        equal("a page of a selection has no remaining count", page.metadata.remaining_item_count, None)
    equal("pages", (seen, pages, len(versions)), (["five", "four", "one", "three", "two"], 3, 1))
    first = core.list_namespaced_config_map(NAMESPACE, limit=2)
    remaining = len(core.list_namespaced_config_map(NAMESPACE).items) - 2
    equal("the remaining count", first.metadata.remaining_item_count, remaining)
    refused("an invalid token", 400, "BadRequest",
            lambda: core.list_namespaced_config_map(NAMESPACE, limit=2, _continue="nonsense"))

    def names(**options):
        return [item.metadata.name for item in core.list_namespaced_config_map(NAMESPACE, **options).items]

    equal("by label", names(label_selector="app in (one,two),app!=two"), ["one"])
    equal("by field", names(field_selector="metadata.name=five"), ["five"])
    everywhere = core.list_config_map_for_all_namespaces(label_selector="app=three").items
    equal("in all namespaces", [(i.metadata.namespace, i.metadata.name) for i in everywhere], [(NAMESPACE, "three")])
    refused("an invalid selector", 400, "BadRequest", lambda: names(label_selector="a=b=c"))


def told(stream, count):
    """Reads a number of events of a watch, as (type, name)."""
    events = []
    for event in stream:
        events.append((event["type"], event["object"].metadata.name))
        if len(events) == count:
            return events
    return events


def watches(core):
    def follow(version, count, **options):
        stream = watch.Watch()
        told_of = stream.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version,
                                timeout_seconds=PATIENCE, **options)
        events = told(told_of, count)
        version = stream.resource_version
        stream.stop()
        return events, version

    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version

    def change():
        time.sleep(0.3)
        core.create_namespaced_config_map(NAMESPACE, config_map("watched"))
        core.patch_namespaced_config_map("watched", NAMESPACE, {"data": {"value": "1"}})
        core.delete_namespaced_config_map("watched", NAMESPACE)

    changes = threading.Thread(target=change, daemon=True)
    changes.start()
    events, resume = follow(start, 2)
    equal("a watch delivers changes immediately", events, [("ADDED", "watched"), ("MODIFIED", "watched")])
    changes.join(PATIENCE)
    events, _ = follow(resume, 1)
    equal("a watch resumes at the end of the last one", events, [("DELETED", "watched")])
    events, _ = follow(start, 3)
    equal("a watch repeats from an old version", [kind for kind, _ in events], ["ADDED", "MODIFIED", "DELETED"])
    events, _ = follow("0", 2, label_selector="app in (one,two)")
    equal("a watch from any version starts with the existing objects", sorted(events), [("ADDED", "one"), ("ADDED", "two")])

    began = time.monotonic()
    quiet = watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=1, _request_timeout=10,
                                 resource_version=core.list_namespaced_config_map(NAMESPACE).metadata.resource_version)
    equal("a quiet watch delivers nothing", list(quiet), [])
    holds("it ends at the requested timeout", time.monotonic() - began < 8, time.monotonic() - began)


def deletions(core):
    made = core.read_namespaced_config_map("two", NAMESPACE)
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    refused("delete with the UID of another object", 409, "Conflict",
            lambda: core.delete_namespaced_config_map("two", NAMESPACE, body=wrong))
    wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(resource_version="1"))
    refused("delete another version", 409, "Conflict",
            lambda: core.delete_namespaced_config_map("two", NAMESPACE, body=wrong))
    dry = core.delete_namespaced_config_map("two", NAMESPACE, dry_run="All")
    equal("delete as a dry run", (dry["status"], core.read_namespaced_config_map("two", NAMESPACE).metadata.uid),
          ("Success", made.metadata.uid))
    right = client.V1DeleteOptions(
        propagation_policy="Background",
        preconditions=client.V1Preconditions(uid=made.metadata.uid, resource_version=made.metadata.resource_version))
    gone = core.delete_namespaced_config_map("two", NAMESPACE, body=right)
    equal("delete with the right UID", (gone["status"], gone["details"]["name"], gone["details"]["uid"]),
          ("Success", "two", made.metadata.uid))
    refused("it is deleted", 404, "NotFound", lambda: core.delete_namespaced_config_map("two", NAMESPACE))

    core.patch_namespaced_config_map("three", NAMESPACE, {"metadata": {"finalizers": ["example.com/held"]}})
    core.delete_namespaced_config_map("three", NAMESPACE)
    held = core.read_namespaced_config_map("three", NAMESPACE)
    holds("a finalizer keeps it", held.metadata.deletion_timestamp, held.metadata)
    core.patch_namespaced_config_map("three", NAMESPACE, {"metadata": {"finalizers": None}})
    refused("without the finalizer, it is deleted", 404, "NotFound", lambda: core.read_namespaced_config_map("three", NAMESPACE))
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app in (one,four)")
    left = core.list_namespaced_config_map(NAMESPACE, label_selector="app").items
    equal("delete a collection", [item.metadata.name for item in left], ["five"])


def definition():
    schema = client.V1JSONSchemaProps(
        type="object",
        properties={
            "spec": client.V1JSONSchemaProps(type="object", properties={
                "size": client.V1JSONSchemaProps(type="integer"),
                "replicas": client.V1JSONSchemaProps(type="integer")}),
            "status": client.V1JSONSchemaProps(type="object", properties={
                "ready": client.V1JSONSchemaProps(type="boolean"),
                "replicas": client.V1JSONSchemaProps(type="integer")}),
        })
    version = client.V1CustomResourceDefinitionVersion(
        name="v1", served=True, storage=True, schema=client.V1CustomResourceValidation(open_apiv3_schema=schema),
        subresources=client.V1CustomResourceSubresources(status={}, scale=client.V1CustomResourceSubresourceScale(
            spec_replicas_path=".spec.replicas", status_replicas_path=".status.replicas")))
    names = client.V1CustomResourceDefinitionNames(plural="widgets", singular="widget", kind="Widget")
    return client.V1CustomResourceDefinition(
        metadata=client.V1ObjectMeta(name=f"widgets.{GROUP}"),
        spec=client.V1CustomResourceDefinitionSpec(group=GROUP, scope="Namespaced", names=names, versions=[version]))


def drop_definition(definitions):
    try:
        definitions.delete_custom_resource_definition(f"widgets.{GROUP}")
    except ApiException as error:
        if error.status != 404:
            raise
        return

    def gone():
        try:
            definitions.read_custom_resource_definition(f"widgets.{GROUP}")
        except ApiException as error:
            return error.status == 404
        return False

    eventually("the definition is deleted", gone)


def custom_objects(api):
    definitions, custom = client.ApiextensionsV1Api(api), client.CustomObjectsApi(api)
    drop_definition(definitions)
    place = (GROUP, "v1", NAMESPACE, "widgets")
    definitions.create_custom_resource_definition(definition())
    try:
        eventually("a definition is established", lambda: [
            condition for condition in definitions.read_custom_resource_definition(f"widgets.{GROUP}").status.conditions
            or [] if condition.type == "Established" and condition.status == "True"])
        eventually("its resource is served", lambda: custom.list_namespaced_custom_object(*place)["kind"] == "WidgetList")
        widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
        made = custom.create_namespaced_custom_object(*place, widget)
        equal("create a custom object", (made["spec"], made["metadata"]["generation"]), ({"size": 1}, 1))
        changed = custom.patch_namespaced_custom_object(*place, "w", {"spec": {"size": 2}})
        equal("patch it", (changed["spec"], changed["metadata"]["generation"]), ({"size": 2}, 2))
        changed["status"] = {"ready": True}
        changed["spec"] = {"size": 99}
        status = custom.replace_namespaced_custom_object_status(*place, "w", changed)
        equal("its status is written separately from its spec", (status["spec"], status["status"],
              status["metadata"]["generation"]), ({"size": 2}, {"ready": True}, 2))
        read = custom.get_namespaced_custom_object(*place, "w")
        equal("read it", read, status)
        refused("a missing custom object", 404, "NotFound",
                lambda: custom.get_namespaced_custom_object(*place, "none"))

        events = []
        for event in watch.Watch().stream(custom.list_namespaced_custom_object, *place, timeout_seconds=PATIENCE,
                                          resource_version=made["metadata"]["resourceVersion"]):
            events.append((event["type"], event["object"]["metadata"]["generation"], "status" in event["object"]))
            if len(events) == 2:
                break
        equal("watch it", events, [("MODIFIED", 2, False), ("MODIFIED", 2, True)])

        found = dynamic.DynamicClient(api).resources.get(api_version=f"{GROUP}/v1", kind="Widget")
        equal("the dynamic client finds it by discovery", (found.name, found.namespaced, "status" in found.subresources),
              ("widgets", True, True))
        equal("and reads it", found.get(name="w", namespace=NAMESPACE).spec.size, 2)
        apply_custom(api, place)
        custom.delete_namespaced_custom_object(*place, "w")
        equal("delete it", custom.list_namespaced_custom_object(*place)["items"], [])
    finally:
        drop_definition(definitions)


def main():
    api = config.new_client_from_config(config_file=sys.argv[1])
    core = client.CoreV1Api(api)
    version = client.VersionApi(api).get_code().git_version
    print(f"kubernetes {kubernetes.__version__}, Python {sys.version.split()[0]}, server {version}", flush=True)
    prepare(core)
    for part in (objects, patches, lists, watches, deletions):
        part(core)
    patch_types(core)
    tables(api, core)
    apply_typed(api, core)
    custom_objects(api)
    prepare(core)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: client.py KUBECONFIG")
    try:
        main()
    except Difference as difference:
        sys.exit(f"FAILED  {difference}")
    except ApiException as error:
        sys.exit(f"FAILED  an unexpected error: {error.status} {error.reason}: {error.body}")
