package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Data:       map[string]string{"value": value},
	}
}

func objects(ctx context.Context, set *kubernetes.Clientset) {
	maps := set.CoreV1().ConfigMaps(namespace)
	made, err := maps.Create(ctx, configMap("one", "1"), metav1.CreateOptions{})
	must("create", err)
	holds("create sets UID, version and time", made.UID != "" && made.ResourceVersion != "" && !made.CreationTimestamp.IsZero(), made)
	_, err = maps.Create(ctx, configMap("one", "1"), metav1.CreateOptions{})
	refused("create it again", apierrors.IsAlreadyExists, err)
	_, err = maps.Get(ctx, "none", metav1.GetOptions{})
	refused("get a missing object", apierrors.IsNotFound, err)
	_, err = maps.Create(ctx, configMap("Not A Name", ""), metav1.CreateOptions{})
	refused("an invalid name", apierrors.IsInvalid, err)

	// Another writer is first, twice. The third attempt succeeds.
	attempts := 0
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		read, err := maps.Get(ctx, "one", metav1.GetOptions{})
		must("get", err)
		if attempts++; attempts < 3 {
			_, err := maps.Patch(ctx, "one", types.MergePatchType, fmt.Appendf(nil, `{"data":{"other":"%d"}}`, attempts), metav1.PatchOptions{})
			must("a write between", err)
		}
		read.Data["value"] = "2"
		_, err = maps.Update(ctx, read, metav1.UpdateOptions{})
		return err
	})
	must("RetryOnConflict", err)
	read, err := maps.Get(ctx, "one", metav1.GetOptions{})
	must("get", err)
	equal("RetryOnConflict: two conflicts, nothing overwritten", fmt.Sprint(attempts, read.Data), "3 map[other:2 value:2]")

	for _, patch := range []struct {
		kind         types.PatchType
		body, wanted string
	}{
		{types.StrategicMergePatchType, `{"data":{"other":null,"a":"3"}}`, `{"a":"3","value":"2"}`},
		{types.MergePatchType, `{"data":{"a":null}}`, `{"value":"2"}`},
		{types.JSONPatchType, `[{"op":"test","path":"/data/value","value":"2"},{"op":"add","path":"/data/b","value":"4"}]`, `{"b":"4","value":"2"}`},
	} {
		patched, err := maps.Patch(ctx, "one", patch.kind, []byte(patch.body), metav1.PatchOptions{})
		must(string(patch.kind), err)
		data, _ := json.Marshal(patched.Data)
		equal(string(patch.kind), string(data), patch.wanted)
	}
	_, err = maps.Patch(ctx, "one", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/value","value":"no"}]`), metav1.PatchOptions{})
	refused("a JSON patch whose test fails", apierrors.IsInvalid, err)

	another := types.UID("another")
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &another}})
	refused("delete with the UID of another object", apierrors.IsConflict, err)
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &made.ResourceVersion}})
	refused("delete an old version", apierrors.IsConflict, err)
	err = maps.Delete(ctx, "one", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &made.UID}})
	succeeds("delete with the right UID", err)
}

func pages(ctx context.Context, set *kubernetes.Clientset) {
	maps := set.CoreV1().ConfigMaps(namespace)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		_, err := maps.Create(ctx, configMap(name, "1"), metav1.CreateOptions{})
		must("create", err)
	}
	var seen, sizes []string
	options := metav1.ListOptions{Limit: 2, LabelSelector: "app"}
	for versions := map[string]bool{}; ; {
		page, err := maps.List(ctx, options)
		must("a page", err)
		for _, item := range page.Items {
			seen = append(seen, item.Name)
		}
		sizes = append(sizes, fmt.Sprint(len(page.Items)))
		versions[page.ResourceVersion] = true
		if options.Continue = page.Continue; options.Continue == "" {
			equal("all pages have one version", len(versions), 1)
			break
		}
		if len(sizes) == 1 {
			// An object that is created between two pages is not part of the list.
			_, err := maps.Create(ctx, configMap("cc", "1"), metav1.CreateOptions{})
			must("create", err)
		}
	}
	equal("list in pages", strings.Join(seen, "")+" "+strings.Join(sizes, ""), "abcde 221")
	selected, err := maps.List(ctx, metav1.ListOptions{LabelSelector: "app in (a,b,c),app!=b", FieldSelector: "metadata.name!=c"})
	must("list by selectors", err)
	equal("list by selectors", len(selected.Items), 1)
	err = maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app"})
	succeeds("delete a collection", err)
}

// Requests a table, as kubectl does.
func table(ctx context.Context, set *kubernetes.Clientset) {
	maps := set.CoreV1().ConfigMaps(namespace)
	_, err := maps.Create(ctx, configMap("row", "1"), metav1.CreateOptions{})
	must("create", err)
	body, err := set.CoreV1().RESTClient().Get().Namespace(namespace).Resource("configmaps").
		Param("labelSelector", "app=row").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").DoRaw(ctx)
	must("a table", err)
	var got metav1.Table
	must("a table", json.Unmarshal(body, &got))
	holds("a table has a row for each object", got.Kind == "Table" && len(got.Rows) == 1 && got.Rows[0].Cells[0] == "row", string(body))
	must("delete", maps.Delete(ctx, "row", metav1.DeleteOptions{}))
}
