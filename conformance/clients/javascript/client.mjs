// The official JavaScript client against any server: objects, patches, lists, watches, informers, custom objects, errors.
//
//     client.mjs KUBECONFIG
//
// Exits with 1 and prints one line at the first difference from a real API server. Removes all its objects.

import { readFileSync } from "node:fs";

import * as k8s from "@kubernetes/client-node";

import { Difference, GROUP, NAMESPACE, configMap, equal, eventually, holds, rejected } from "./checks.mjs";

async function prepare(core) {
  try {
    await core.createNamespace({ body: { metadata: { name: NAMESPACE } } });
  } catch (error) {
    if (error.code !== 409) {
      throw error;
    }
  }
  // Removes the objects of an earlier run that was killed.
  await core.deleteCollectionNamespacedConfigMap({ namespace: NAMESPACE });
}

async function objects(core) {
  const at = { namespace: NAMESPACE, name: "one" };
  const made = await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap("one", { value: "1" }) });
  holds(
    "create sets UID, version and time",
    made.metadata.uid && made.metadata.resourceVersion && made.metadata.creationTimestamp instanceof Date,
    made.metadata,
  );
  const body = await rejected("create it again", 409, "AlreadyExists", () =>
    core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap("one") }),
  );
  equal("the error names the object", body.details, { name: "one", kind: "configmaps" });
  const read = await core.readNamespacedConfigMap(at);
  equal("read the created object", read, made);
  await rejected("read a missing object", 404, "NotFound", () =>
    core.readNamespacedConfigMap({ namespace: NAMESPACE, name: "none" }),
  );
  const before = structuredClone(read);
  read.data.value = "2";
  const replaced = await core.replaceNamespacedConfigMap({ ...at, body: read });
  holds("replace changes the version", replaced.metadata.resourceVersion !== made.metadata.resourceVersion, replaced);
  await rejected("replace by an old version", 409, "Conflict", () =>
    core.replaceNamespacedConfigMap({ ...at, body: before }),
  );
  await rejected("an invalid name", 422, "Invalid", () =>
    core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap("Not A Name") }),
  );
}

async function patches(core) {
  const patch = (body, type) =>
    core.patchNamespacedConfigMap(
      { namespace: NAMESPACE, name: "one", body },
      k8s.setHeaderOptions("Content-Type", type),
    );
  const strategic = await patch({ data: { more: "3" } }, k8s.PatchStrategy.StrategicMergePatch);
  equal("strategic merge patch", strategic.data, { value: "2", more: "3" });
  const merged = await patch({ data: { more: null, value: "4" } }, k8s.PatchStrategy.MergePatch);
  equal("merge patch", merged.data, { value: "4" });
  const operations = [
    { op: "test", path: "/data/value", value: "4" },
    { op: "add", path: "/data/b", value: "5" },
  ];
  equal("JSON patch", (await patch(operations, k8s.PatchStrategy.JsonPatch)).data, { value: "4", b: "5" });
  await rejected("a JSON patch whose test fails", 422, "Invalid", () =>
    patch([{ op: "test", path: "/data/value", value: "no" }], k8s.PatchStrategy.JsonPatch),
  );
}

// Server-side apply by the client for objects of any kind.
async function apply(config) {
  const objects = k8s.KubernetesObjectApi.makeApiClient(config);
  const wanted = { apiVersion: "v1", kind: "ConfigMap", ...configMap("applied", { a: "1" }) };
  wanted.metadata.namespace = NAMESPACE;
  const apply = (body, manager, force) =>
    objects.patch(body, undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply);
  const applied = await apply(wanted, "first", false);
  equal(
    "apply creates the object",
    applied.metadata.managedFields.map(({ manager, operation }) => [manager, operation]),
    [["first", "Apply"]],
  );
  const other = structuredClone(wanted);
  other.data.a = "2";
  await rejected("apply by another manager conflicts", 409, "Conflict", () => apply(other, "second", false));
  equal("a forced apply takes the field over", (await apply(other, "second", true)).data, { a: "2" });
  equal("read an object of any kind", (await objects.read(wanted)).data, { a: "2" });
  await objects.delete(wanted);
  await rejected("it is deleted", 404, "NotFound", () => objects.read(wanted));
}

async function lists(core) {
  for (const name of ["two", "three", "four", "five"]) {
    await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap(name) });
  }
  const seen = [];
  let token;
  do {
    const page = await core.listNamespacedConfigMap({
      namespace: NAMESPACE,
      limit: 2,
      _continue: token,
      fieldSelector: "metadata.name!=kube-root-ca.crt",
    });
    seen.push(...page.items.map((item) => item.metadata.name));
    token = page.metadata._continue;
  } while (token);
  equal("pages", seen, ["five", "four", "one", "three", "two"]);
  const chosen = await core.listNamespacedConfigMap({ namespace: NAMESPACE, labelSelector: "app in (one,two),app!=two" });
  equal("by label", chosen.items.map((item) => item.metadata.name), ["one"]);
  await rejected("an invalid selector", 400, "BadRequest", () =>
    core.listNamespacedConfigMap({ namespace: NAMESPACE, labelSelector: "a=b=c" }),
  );
}

// The client's informer: its initial list, and the changes in their order.
async function informer(config, core) {
  const path = `/api/v1/namespaces/${NAMESPACE}/configmaps`;
  const events = [];
  const informer = k8s.makeInformer(
    config,
    path,
    () => core.listNamespacedConfigMap({ namespace: NAMESPACE, labelSelector: "app" }),
    "app",
  );
  const failures = [];
  for (const kind of ["add", "update", "delete"]) {
    informer.on(kind, (object) => events.push(`${kind} ${object.metadata.name}`));
  }
  informer.on("error", (error) => failures.push(error));
  await informer.start();
  await eventually("an informer lists", () => informer.list(NAMESPACE).length === 5);
  events.length = 0;
  await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap("watched") });
  await core.patchNamespacedConfigMap(
    { namespace: NAMESPACE, name: "watched", body: { data: { value: "1" } } },
    k8s.setHeaderOptions("Content-Type", k8s.PatchStrategy.MergePatch),
  );
  await core.deleteNamespacedConfigMap({ namespace: NAMESPACE, name: "watched" });
  await eventually("an informer delivers changes", () => events.includes("delete watched"));
  equal("in their order", events, ["add watched", "update watched", "delete watched"]);
  // Stopping the informer aborts its watch, which the client reports as an error too.
  equal("without an error", failures, []);
  await informer.stop();
}

async function watches(config, core) {
  const start = (await core.listNamespacedConfigMap({ namespace: NAMESPACE })).metadata.resourceVersion;
  await core.createNamespacedConfigMap({ namespace: NAMESPACE, body: configMap("seen") });
  await core.deleteNamespacedConfigMap({ namespace: NAMESPACE, name: "seen" });
  const events = [];
  const watch = new k8s.Watch(config);
  const path = `/api/v1/namespaces/${NAMESPACE}/configmaps`;
  const ended = await new Promise((resolve, reject) => {
    watch
      .watch(
        path,
        { resourceVersion: start, timeoutSeconds: 1 },
        (kind, object) => events.push(`${kind} ${object.metadata.name}`),
        (error) => resolve(error ?? null),
      )
      .catch(reject);
  });
  equal("a watch repeats from an old version", events, ["ADDED seen", "DELETED seen"]);
  holds("it ends without an error", ended === null, `${ended}`);
}

function definition() {
  const schema = {
    type: "object",
    properties: {
      spec: { type: "object", properties: { size: { type: "integer", maximum: 9 } } },
      status: { type: "object", properties: { ready: { type: "boolean" } } },
    },
  };
  return {
    metadata: { name: `widgets.${GROUP}` },
    spec: {
      group: GROUP,
      scope: "Namespaced",
      names: { plural: "widgets", singular: "widget", kind: "Widget" },
      versions: [
        { name: "v1", served: true, storage: true, schema: { openAPIV3Schema: schema }, subresources: { status: {} } },
      ],
    },
  };
}

async function dropDefinition(definitions) {
  const name = `widgets.${GROUP}`;
  try {
    await definitions.deleteCustomResourceDefinition({ name });
  } catch (error) {
    if (error.code !== 404) {
      throw error;
    }
    return;
  }
  await eventually("the definition is deleted", async () => {
    try {
      await definitions.readCustomResourceDefinition({ name });
      return false;
    } catch (error) {
      return error.code === 404;
    }
  });
}

async function customObjects(config) {
  const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
  const custom = config.makeApiClient(k8s.CustomObjectsApi);
  const kind = { group: GROUP, version: "v1", namespace: NAMESPACE, plural: "widgets" };
  await dropDefinition(definitions);
  await definitions.createCustomResourceDefinition({ body: definition() });
  try {
    await eventually(
      "its resource is served",
      async () => (await custom.listNamespacedCustomObject(kind)).kind === "WidgetList",
    );
    const widget = { apiVersion: `${GROUP}/v1`, kind: "Widget", metadata: { name: "w" }, spec: { size: 1 } };
    const made = await custom.createNamespacedCustomObject({ ...kind, body: widget });
    equal("create a custom object", [made.spec, made.metadata.generation], [{ size: 1 }, 1]);
    const large = { ...widget, metadata: { name: "large" }, spec: { size: 10 } };
    await rejected("a value that its schema excludes", 422, "Invalid", () =>
      custom.createNamespacedCustomObject({ ...kind, body: large }),
    );
    const changed = { ...made, spec: { size: 5 }, status: { ready: true } };
    const status = await custom.replaceNamespacedCustomObjectStatus({ ...kind, name: "w", body: changed });
    equal(
      "its status is written separately from its spec",
      [status.spec, status.status, status.metadata.generation],
      [{ size: 1 }, { ready: true }, 1],
    );
    await custom.deleteNamespacedCustomObject({ ...kind, name: "w" });
    equal("delete it", (await custom.listNamespacedCustomObject(kind)).items, []);
  } finally {
    await dropDefinition(definitions);
  }
}

async function main(kubeconfig) {
  const config = new k8s.KubeConfig();
  config.loadFromFile(kubeconfig);
  const core = config.makeApiClient(k8s.CoreV1Api);
  const server = (await config.makeApiClient(k8s.VersionApi).getCode()).gitVersion;
  const manifest = JSON.parse(
    readFileSync(new URL("./node_modules/@kubernetes/client-node/package.json", import.meta.url), "utf8"),
  );
  console.log(`@kubernetes/client-node ${manifest.version}, Node.js ${process.version}, server ${server}`);
  await prepare(core);
  await objects(core);
  await patches(core);
  await apply(config);
  await lists(core);
  await informer(config, core);
  await watches(config, core);
  await customObjects(config);
  await prepare(core);
}

if (process.argv.length !== 3) {
  console.error("usage: client.mjs KUBECONFIG");
  process.exit(2);
}
try {
  await main(process.argv[2]);
  process.exit(0);
} catch (error) {
  const reason = error instanceof Difference ? error.message : `an unexpected error: ${error.stack ?? error}`;
  console.error(`FAILED  ${reason}`);
  process.exit(1);
}
