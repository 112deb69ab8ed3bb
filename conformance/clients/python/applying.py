"""Server-side apply by the typed, the custom and the dynamic client; patches by content type; tables."""

import json

from kubernetes import client, dynamic, watch
from kubernetes.client.exceptions import ApiException

from checks import GROUP, NAMESPACE, PATIENCE, Difference, config_map, equal, holds, refused

APPLY = "application/apply-patch+yaml"


def managers(metadata):
    """Returns the managers of an object with their operations and subresources."""
    fields = metadata.managed_fields if hasattr(metadata, "managed_fields") else None
    if fields is not None:
        return sorted((f.manager, f.operation, f.subresource or "") for f in fields)
    fields = metadata["managedFields"]
    return sorted((f["manager"], f["operation"], f.get("subresource") or "") for f in fields)


def patch_types(core):
    """The effect of each content type on the same list, and of an unknown one."""
    made = config_map("typed")
    made.metadata.finalizers = ["example.com/a"]
    core.create_namespaced_config_map(NAMESPACE, made)

    def finalizers(content_type, body):
        patched = core.patch_namespaced_config_map("typed", NAMESPACE, body, _content_type=content_type, dry_run="All")
        return sorted(patched.metadata.finalizers)

    other = {"metadata": {"finalizers": ["example.com/b"]}}
    equal("a strategic merge patch merges a list", finalizers("application/strategic-merge-patch+json", other),
          ["example.com/a", "example.com/b"])
    equal("a merge patch replaces it", finalizers("application/merge-patch+json", other), ["example.com/b"])
    equal("a JSON patch uses positions", finalizers("application/json-patch+json", [
        {"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/c"}]), ["example.com/a", "example.com/c"])
    equal("no patch was stored", core.read_namespaced_config_map("typed", NAMESPACE).metadata.finalizers,
          ["example.com/a"])
    refused("a patch of an unknown type", 415, "UnsupportedMediaType", lambda: finalizers("application/json", other))
    core.patch_namespaced_config_map("typed", NAMESPACE, {"metadata": {"finalizers": None}})
    core.delete_namespaced_config_map("typed", NAMESPACE)


def tables(api, core):
    """A list as a table, and as metadata only, selected by the Accept header."""
    for name in ("row-a", "row-b"):
        core.create_namespaced_config_map(NAMESPACE, config_map(name, value="1"))

    def listed(accept):
        answer = api.call_api("GET", f"{api.configuration.host}/api/v1/namespaces/{NAMESPACE}/configmaps?labelSelector="
                              "app+in+(row-a,row-b)", {"Accept": accept, **authorization(api)}, None, None)
        return json.loads(answer.read())

    table = listed("application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
    equal("a table", (table["kind"], [column["name"] for column in table["columnDefinitions"]]),
          ("Table", ["Name", "Data", "Age"]))
    equal("its rows", [(row["cells"][0], row["cells"][1], row["object"]["kind"]) for row in table["rows"]],
          [("row-a", 1, "PartialObjectMetadata"), ("row-b", 1, "PartialObjectMetadata")])
    half = listed("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    equal("metadata only", (half["kind"], [sorted(item) for item in half["items"]]),
          ("PartialObjectMetadataList", [["apiVersion", "kind", "metadata"]] * 2))
    refused("an unknown representation", 406, "NotAcceptable", lambda: checked(listed("application/xml")))
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="app in (row-a,row-b)")


def authorization(api):
    """The authentication headers, as the client itself would send them."""
    headers = {}
    api.update_params_for_auth(headers, [], ["BearerToken"], None, None, None)
    return headers


def checked(answer):
    """Converts a `Status` response into the exception of the client."""
    if answer.get("kind") == "Status" and answer["status"] == "Failure":
        error = ApiException(status=answer["code"])
        error.body = json.dumps(answer)
        raise error
    return answer


def apply_typed(api, core):
    """The typed client and the dynamic one, each with its own manager."""
    def apply(manager, data, **options):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": data}
        return core.patch_namespaced_config_map("applied", NAMESPACE, body, field_manager=manager,
                                                _content_type=APPLY, **options)

    start = core.list_namespaced_config_map(NAMESPACE).metadata.resource_version
    dry = apply("first", {"a": "0"}, dry_run="All")
    equal("apply in a dry run", dry.data, {"a": "0"})
    refused("it stores nothing", 404, "NotFound", lambda: core.read_namespaced_config_map("applied", NAMESPACE))
    made = apply("first", {"a": "1", "b": "1"})
    equal("apply creates", (made.data, managers(made.metadata)), ({"a": "1", "b": "1"}, [("first", "Apply", "")]))
    body = refused("apply a field of another manager", 409, "Conflict", lambda: apply("second", {"a": "2"}))
    equal("the conflict names its field", [(c["reason"], c["field"]) for c in body["details"]["causes"]],
          [("FieldManagerConflict", ".data.a")])
    taken = apply("second", {"a": "2"}, force=True)
    equal("force takes over the field", (taken.data, [name for name, _, _ in managers(taken.metadata)]),
          ({"a": "2", "b": "1"}, ["first", "second"]))

    maps = dynamic.DynamicClient(api).resources.get(api_version="v1", kind="ConfigMap")
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}, "data": {"c": "3"}}
    applied = maps.server_side_apply(body=wanted, name="applied", namespace=NAMESPACE, field_manager="dynamic")
    equal("server_side_apply by the dynamic client", applied.data.to_dict(), {"a": "2", "b": "1", "c": "3"})
    wanted["data"] = {"a": "4"}
    conflict("it returns conflicts too", lambda: maps.server_side_apply(
        body=wanted, name="applied", namespace=NAMESPACE, field_manager="dynamic"))
    forced = maps.server_side_apply(body=wanted, name="applied", namespace=NAMESPACE, field_manager="dynamic",
                                    force_conflicts=True)
    equal("and takes over by force, and removes fields that it no longer applies", forced.data.to_dict(),
          {"a": "4", "b": "1"})
    for content_type, change, value in (
            ("application/merge-patch+json", {"data": {"b": "5"}}, "5"),
            ("application/strategic-merge-patch+json", {"data": {"b": "6"}}, "6"),
            ("application/json-patch+json", [{"op": "replace", "path": "/data/b", "value": "7"}], "7")):
        patched = maps.patch(body=change, name="applied", namespace=NAMESPACE, content_type=content_type)
        equal(f"the dynamic client's {content_type}", patched.data.b, value)

    # Resumed at each event: a resumed watch must not repeat events.
    seen, version = [], start
    while len(seen) < 8:
        follower = watch.Watch()
        for event in follower.stream(core.list_namespaced_config_map, NAMESPACE, resource_version=version,
                                     timeout_seconds=PATIENCE, field_selector="metadata.name=applied"):
            seen.append((event["type"], event["object"].data))
            follower.stop()
        if follower.resource_version == version:
            raise Difference(f"a watch delivered nothing new within {PATIENCE} s, after {seen!r}")
        version = follower.resource_version
        if len(seen) == 7:
            core.delete_namespaced_config_map("applied", NAMESPACE)
    equal("a watch that is resumed at each event delivers each once", [kind for kind, _ in seen],
          ["ADDED"] + ["MODIFIED"] * 6 + ["DELETED"])
    equal("in order", [data["b"] for _, data in seen], ["1", "1", "1", "1", "5", "6", "7", "7"])


def conflict(name, call):
    """Checks for a conflict: the dynamic client has its own exceptions."""
    try:
        answer = call()
    except dynamic.exceptions.ConflictError as error:
        holds(name, "conflict with" in str(error.body), error.body)
        return
    raise Difference(f"{name}: not rejected: {answer!r}")


def apply_custom(api, place):
    """A custom object's apply, its status and its scale."""
    custom = client.CustomObjectsApi(api)
    found = dynamic.DynamicClient(api).resources.get(api_version=f"{GROUP}/v1", kind="Widget")
    wanted = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "x"}, "spec": {"size": 1, "replicas": 2}}
    made = found.server_side_apply(body=wanted, name="x", namespace=NAMESPACE, field_manager="first")
    equal("apply a custom object", (made.spec.to_dict(), managers(made.metadata.to_dict())),
          ({"size": 1, "replicas": 2}, [("first", "Apply", "")]))
    status = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "x"},
              "status": {"ready": True, "replicas": 2}}
    reported = found.status.server_side_apply(body=status, name="x", namespace=NAMESPACE, field_manager="controller")
    equal("apply its status", (reported.status.to_dict(), reported.metadata.generation,
          managers(reported.metadata.to_dict())), ({"ready": True, "replicas": 2}, 1,
          [("controller", "Apply", "status"), ("first", "Apply", "")]))
    patched = custom.patch_namespaced_custom_object_status(*place, "x", {"status": {"ready": False}})
    equal("patch its status", (patched["status"], patched["metadata"]["generation"]), ({"ready": False, "replicas": 2}, 1))
    scale = custom.get_namespaced_custom_object_scale(*place, "x")
    equal("its scale", (scale["kind"], scale["spec"], scale["status"]), ("Scale", {"replicas": 2}, {"replicas": 2}))
    scaled = custom.patch_namespaced_custom_object_scale(*place, "x", {"spec": {"replicas": 5}})
    equal("patch its scale", scaled["spec"], {"replicas": 5})
    read = custom.get_namespaced_custom_object(*place, "x")
    equal("the scale changes the generation", (read["spec"], read["metadata"]["generation"]),
          ({"size": 1, "replicas": 5}, 2))
    scale["spec"]["replicas"] = 6
    refused("replace the scale of an old version", 409, "Conflict",
            lambda: custom.replace_namespaced_custom_object_scale(*place, "x", scale))
    wanted["spec"] = {"size": 1, "replicas": 3}
    conflict("a scaled field is a conflict for its former manager", lambda: found.server_side_apply(
        body=wanted, name="x", namespace=NAMESPACE, field_manager="first"))
    custom.delete_namespaced_custom_object(*place, "x")
