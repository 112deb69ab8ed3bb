// The fabric8 client against any server: objects, patches, lists, watches and informers over WebSockets, custom objects.
//
//     Client.java KUBECONFIG
//
// Exits with 1 and prints one line at the first difference from a real API server. Removes all its objects.

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceBuilder;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.NamespaceBuilder;
import io.fabric8.kubernetes.api.model.apiextensions.v1.CustomResourceDefinition;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.File;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

public final class Client {
    static final String NAMESPACE = "fabric8-conformance";
    static final String GROUP = "fabric8.conformance.example.com";
    // Timeout for an event of a watch, and until a definition is served.
    static final long TIMEOUT_MS = 20_000;

    static final class Difference extends RuntimeException {
        Difference(String message) {
            super(message);
        }
    }

    static void equal(String name, Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new Difference(name + ": got " + got + ", wanted " + wanted);
        }
        System.out.println("ok      " + name);
    }

    static void rejected(String name, int code, String reason, Runnable request) {
        try {
            request.run();
        } catch (KubernetesClientException error) {
            var status = error.getStatus();
            equal(name, List.of(error.getCode(), status == null ? "" : status.getReason()), List.of(code, reason));
            return;
        }
        throw new Difference(name + ": not rejected");
    }

    static void eventually(String name, Callable<Boolean> attempt) throws Exception {
        var end = System.currentTimeMillis() + TIMEOUT_MS;
        Object last = false;
        while (System.currentTimeMillis() < end) {
            try {
                if (attempt.call()) {
                    System.out.println("ok      " + name);
                    return;
                }
            } catch (KubernetesClientException error) {
                last = error;
            }
            Thread.sleep(100);
        }
        throw new Difference(name + ": not met within " + TIMEOUT_MS + " ms: " + last);
    }

    static ConfigMap configMap(String name, Map<String, String> data) {
        return new ConfigMapBuilder().withNewMetadata().withName(name).withNamespace(NAMESPACE).addToLabels("app", name)
            .endMetadata().withData(data).build();
    }

    static Resource<ConfigMap> named(KubernetesClient client, String name) {
        return client.configMaps().inNamespace(NAMESPACE).withName(name);
    }

    static void prepare(KubernetesClient client) {
        var namespace = new NamespaceBuilder().withNewMetadata().withName(NAMESPACE).endMetadata().build();
        if (client.namespaces().withName(NAMESPACE).get() == null) {
            client.resource(namespace).create();
        }
        // Removes the objects of an earlier run that was killed.
        client.configMaps().inNamespace(NAMESPACE).delete();
    }

    static void objects(KubernetesClient client) {
        var made = client.resource(configMap("one", Map.of("value", "1"))).create();
        equal("create sets UID and version",
            made.getMetadata().getUid() != null && made.getMetadata().getResourceVersion() != null, true);
        rejected("create it again", 409, "AlreadyExists", () -> client.resource(configMap("one", Map.of())).create());
        equal("read the created object", named(client, "one").get(), made);
        equal("a missing object is null", named(client, "none").get(), null);
        rejected("an invalid name", 422, "Invalid", () -> client.resource(configMap("Not A Name", Map.of())).create());
        var edited = named(client, "one").edit(one -> new ConfigMapBuilder(one).addToData("more", "2").build());
        equal("edit sends a JSON patch", edited.getData(), Map.of("value", "1", "more", "2"));
        var stale = new ConfigMapBuilder(made).addToData("value", "3").build();
        rejected("update by an old version", 409, "Conflict", () -> client.resource(stale).update());
        var merged = named(client, "one").patch(PatchContext.of(PatchType.JSON_MERGE), "{\"data\":{\"more\":null}}");
        equal("merge patch", merged.getData(), Map.of("value", "1"));
        var strategic = named(client, "one")
            .patch(PatchContext.of(PatchType.STRATEGIC_MERGE), "{\"data\":{\"value\":\"4\"}}");
        equal("strategic merge patch", strategic.getData(), Map.of("value", "4"));
        var applied = client.resource(configMap("applied", Map.of("a", "1"))).serverSideApply();
        equal("apply creates the object", applied.getMetadata().getManagedFields().get(0).getOperation(), "Apply");
        client.resource(applied).delete();
        equal("it is deleted", named(client, "applied").get(), null);
    }

    static void lists(KubernetesClient client) {
        for (var name : List.of("two", "three", "four", "five")) {
            client.resource(configMap(name, Map.of())).create();
        }
        var seen = new ArrayList<String>();
        String token = null;
        do {
            var options = new ListOptionsBuilder().withLimit(2L).withContinue(token)
                .withFieldSelector("metadata.name!=kube-root-ca.crt").build();
            var page = client.configMaps().inNamespace(NAMESPACE).list(options);
            page.getItems().forEach(item -> seen.add(item.getMetadata().getName()));
            token = page.getMetadata().getContinue();
        } while (token != null && !token.isEmpty());
        equal("pages", seen, List.of("five", "four", "one", "three", "two"));
        var chosen = client.configMaps().inNamespace(NAMESPACE).withLabel("app", "one").list().getItems();
        equal("by label", chosen.stream().map(item -> item.getMetadata().getName()).toList(), List.of("one"));
    }

    static void change(KubernetesClient client) {
        client.resource(configMap("watched", Map.of())).create();
        named(client, "watched").edit(one -> new ConfigMapBuilder(one).addToData("value", "1").build());
        named(client, "watched").delete();
    }

    static void watches(KubernetesClient client) throws Exception {
        var start = client.configMaps().inNamespace(NAMESPACE).list().getMetadata().getResourceVersion();
        var events = Collections.synchronizedList(new ArrayList<String>());
        var closed = new CountDownLatch(1);
        var options = new ListOptionsBuilder().withResourceVersion(start).build();
        var watch = client.configMaps().inNamespace(NAMESPACE).watch(options, new Watcher<ConfigMap>() {
            @Override
            public void eventReceived(Action action, ConfigMap object) {
                events.add(action + " " + object.getMetadata().getName());
            }

            @Override
            public void onClose(WatcherException cause) {
                closed.countDown();
            }

            @Override
            public void onClose() {
                closed.countDown();
            }
        });
        change(client);
        eventually("a watch over a WebSocket delivers changes", () -> events.size() == 3);
        equal("in their order", events, List.of("ADDED watched", "MODIFIED watched", "DELETED watched"));
        watch.close();
        equal("it can be closed", closed.await(TIMEOUT_MS, TimeUnit.MILLISECONDS), true);
    }

    static void informer(KubernetesClient client) throws Exception {
        var events = Collections.synchronizedList(new ArrayList<String>());
        SharedIndexInformer<ConfigMap> informer = client.configMaps().inNamespace(NAMESPACE).withLabel("app")
            .inform(new ResourceEventHandler<ConfigMap>() {
                @Override
                public void onAdd(ConfigMap object) {
                    events.add("add " + object.getMetadata().getName());
                }

                @Override
                public void onUpdate(ConfigMap old, ConfigMap object) {
                    events.add("update " + object.getMetadata().getName());
                }

                @Override
                public void onDelete(ConfigMap object, boolean unknown) {
                    events.add("delete " + object.getMetadata().getName());
                }
            });
        eventually("an informer lists", () -> informer.hasSynced() && informer.getStore().list().size() == 5);
        eventually("its handler has all objects", () -> events.size() == 5);
        events.clear();
        change(client);
        eventually("an informer delivers changes", () -> events.size() == 3);
        equal("in their order too", events, List.of("add watched", "update watched", "delete watched"));
        informer.close();
    }

    static CustomResourceDefinition definition() {
        return Serialization.unmarshal("""
            apiVersion: apiextensions.k8s.io/v1
            kind: CustomResourceDefinition
            metadata: {name: widgets.%1$s}
            spec:
              group: %1$s
              scope: Namespaced
              names: {plural: widgets, singular: widget, kind: Widget}
              versions:
                - name: v1
                  served: true
                  storage: true
                  subresources: {status: {}}
                  schema:
                    openAPIV3Schema:
                      type: object
                      properties:
                        spec: {type: object, properties: {size: {type: integer, maximum: 9}}}
                        status: {type: object, properties: {ready: {type: boolean}}}
            """.formatted(GROUP), CustomResourceDefinition.class);
    }

    static GenericKubernetesResource widget(String name, int size) {
        return new GenericKubernetesResourceBuilder().withApiVersion(GROUP + "/v1").withKind("Widget")
            .withNewMetadata().withName(name).withNamespace(NAMESPACE).endMetadata()
            .addToAdditionalProperties("spec", Map.of("size", size)).build();
    }

    static void customObjects(KubernetesClient client) throws Exception {
        var definitions = client.apiextensions().v1().customResourceDefinitions();
        var context = new ResourceDefinitionContext.Builder().withGroup(GROUP).withVersion("v1").withKind("Widget")
            .withPlural("widgets").withNamespaced(true).build();
        var widgets = client.genericKubernetesResources(context).inNamespace(NAMESPACE);
        dropDefinition(client);
        client.resource(definition()).create();
        try {
            eventually("its resource is served", () -> widgets.list().getKind().equals("WidgetList"));
            var made = widgets.resource(widget("w", 1)).create();
            equal("create a custom object", made.getMetadata().getGeneration(), 1L);
            rejected("a value that its schema excludes", 422, "Invalid", () -> widgets.resource(widget("large", 10)).create());
            made.setAdditionalProperty("status", Map.of("ready", true));
            var status = widgets.resource(made).updateStatus();
            equal("its status is written separately", status.getAdditionalProperties().get("status"), Map.of("ready", true));
            widgets.withName("w").delete();
            equal("delete it", widgets.list().getItems(), List.<HasMetadata>of());
        } finally {
            dropDefinition(client);
        }
    }

    static void dropDefinition(KubernetesClient client) throws Exception {
        var definition = client.apiextensions().v1().customResourceDefinitions().withName("widgets." + GROUP);
        definition.delete();
        eventually("no definition is left", () -> definition.get() == null);
    }

    public static void main(String[] arguments) {
        if (arguments.length != 1) {
            System.err.println("usage: Client.java KUBECONFIG");
            System.exit(2);
        }
        try (var client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(new File(arguments[0]))).build()) {
            System.out.println("fabric8 " + io.fabric8.kubernetes.client.Version.clientVersion() + ", Java "
                + Runtime.version() + ", server " + client.getKubernetesVersion().getGitVersion());
            prepare(client);
            objects(client);
            lists(client);
            watches(client);
            informer(client);
            customObjects(client);
            prepare(client);
        } catch (Difference difference) {
            System.err.println("FAILED  " + difference.getMessage());
            System.exit(1);
        } catch (Exception error) {
            System.err.println("FAILED  an unexpected error: " + error);
            System.exit(1);
        }
    }
}
