package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// stamp writes the current time into one object after the other, at regular intervals, after a line on its standard
// input.
func stamp(arguments []string) error {
	flags := flag.NewFlagSet("stamp", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server")
	count := flags.Int("count", 1000, "number of writes")
	perSecond := flags.Int("rate", 100, "writes per second")
	seed := flags.Uint64("seed", 1, "seed of the objects")
	objects := flags.Int("objects", 1000, "number of objects")
	resource := flags.String("resource", "pods", "pods or widgets")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := writing(*kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	gvr := corev1.SchemeGroupVersion.WithResource("pods")
	if *resource == "widgets" {
		gvr = widgets
	}
	cluster := newCluster(*seed)
	var names []place
	for range *objects {
		pod := cluster.next()
		names = append(names, place{pod.Namespace, pod.Name})
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return fmt.Errorf("waiting for the line that starts the writes: %w", err)
	}
	return stampAll(client.Resource(gvr), names, *count, *perSecond)
}

type place struct{ namespace, name string }

func stampAll(client dynamic.NamespaceableResourceInterface, names []place, count, perSecond int) error {
	type result struct {
		version string
		err     error
	}
	results, places := make(chan result, count), make(chan struct{}, fillers)
	begun := time.Now()
	for number := range count {
		time.Sleep(time.Until(begun.Add(time.Duration(number) * time.Second / time.Duration(perSecond))))
		// A write that waits for a free slot is late. Its stamp is still the time of its request.
		places <- struct{}{}
		go func() {
			of := names[number*7919%len(names)]
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
				"bench.steadfast.dev/sent": fmt.Sprint(time.Now().UnixNano()),
			}}})
			if err != nil {
				fail(err)
			}
			changed, err := client.Namespace(of.namespace).Patch(context.Background(), of.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "bench"})
			<-places
			if err != nil {
				results <- result{err: err}
				return
			}
			results <- result{version: changed.GetResourceVersion()}
		}()
	}
	newest := ""
	for range count {
		result := <-results
		if result.err != nil {
			return result.err
		}
		if len(result.version) > len(newest) || len(result.version) == len(newest) && result.version > newest {
			newest = result.version
		}
	}
	printResponse(map[string]any{"phase": "stamped", "version": newest, "seconds": time.Since(begun).Seconds()})
	return nil
}
