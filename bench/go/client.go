package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

var widgets = schema.GroupVersionResource{Group: "bench.steadfast.dev", Version: "v1", Resource: "widgets"}

// client runs a shared informer with one handler, and executes the commands on its standard input.
func client(arguments []string) error {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the server")
	expect := flags.Int("expect", 0, "number of objects")
	resource := flags.String("resource", "pods", "pods or widgets")
	json := flags.Bool("json", false, "request JSON instead of protobuf, the default for built-in types")
	paged := flags.Bool("paged", false, "use a list instead of streamed initial events")
	trim := flags.Bool("trim", false, "drop managedFields by a transform")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *paged {
		features.ReplaceFeatureGates(withoutStreamedLists{features.FeatureGates()})
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	started, used := time.Now(), processorTime()
	informer, err := makeInformer(config, *resource, *json)
	if err != nil {
		return err
	}
	if *trim {
		if err := informer.SetTransform(withoutManagedFields); err != nil {
			return err
		}
	}
	progress := &progress{latencies: make([]int64, 0, 1<<16)}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { progress.see(object) },
		UpdateFunc: func(_, object any) { progress.see(object) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("not synced")
	}
	objects := len(informer.GetStore().ListKeys())
	if objects != *expect {
		return fmt.Errorf("the store has %d objects, not %d", objects, *expect)
	}
	printResponse(map[string]any{"phase": "synced", "seconds": time.Since(started).Seconds(), "cpu": processorTime() - used, "objects": objects})
	return obey(informer, progress)
}

func withoutManagedFields(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

func makeInformer(config *rest.Config, resource string, json bool) (cache.SharedIndexInformer, error) {
	// The requests are not limited, so that the limiter does not affect the measurement.
	config.QPS = -1
	if resource == "widgets" {
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(widgets).Informer(), nil
	}
	if !json {
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	return factory.Core().V1().Pods().Informer(), nil
}

type withoutStreamedLists struct{ features.Gates }

func (gates withoutStreamedLists) Enabled(key features.Feature) bool {
	return key != features.WatchListClient && gates.Gates.Enabled(key)
}

// progress contains the events that the handler has seen. Only the handler writes it.
type progress struct {
	version   atomic.Uint64
	seen      atomic.Uint64
	first     atomic.Int64
	latencies []int64
}

func (p *progress) see(object any) {
	now := time.Now().UnixNano()
	meta, ok := object.(metav1.Object)
	if !ok {
		return
	}
	p.first.CompareAndSwap(0, now)
	if sent, err := strconv.ParseInt(meta.GetAnnotations()["bench.steadfast.dev/sent"], 10, 64); err == nil && sent > 0 && sent < now && len(p.latencies) < cap(p.latencies) {
		p.latencies = append(p.latencies, now-sent)
	}
	p.seen.Add(1)
	if version, err := strconv.ParseUint(meta.GetResourceVersion(), 10, 64); err == nil && version > p.version.Load() {
		p.version.Store(version)
	}
}

func obey(informer cache.SharedIndexInformer, progress *progress) error {
	var armed float64
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "memory":
			printResponse(memory())
		case "processor":
			printResponse(map[string]any{"phase": "processor", "seconds": processorTime()})
		case "reset-peak":
			if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
				return err
			}
			printResponse(map[string]any{"phase": "reset-peak"})
		case "arm":
			armed = arm(progress)
			printResponse(map[string]any{"phase": "arm"})
		case "until", "reached":
			version, err := strconv.ParseUint(words[1], 10, 64)
			if err != nil {
				return err
			}
			if words[0] == "until" {
				armed = arm(progress)
				printResponse(map[string]any{"phase": "armed"})
			}
			printResponse(reached(words[0], progress, version, armed))
		case "fields":
			started := time.Now()
			nodes := map[string]struct{}{}
			for _, object := range informer.GetStore().List() {
				nodes[nodeName(object)] = struct{}{}
			}
			printResponse(map[string]any{"phase": "fields", "seconds": time.Since(started).Seconds(), "distinct": len(nodes)})
		case "reads":
			seconds, err := strconv.ParseFloat(words[1], 64)
			if err != nil {
				return err
			}
			printResponse(reads(informer.GetIndexer(), time.Duration(seconds*float64(time.Second))))
		default:
			return fmt.Errorf("unknown command: %s", words[0])
		}
	}
	return lines.Err()
}

func nodeName(object any) string {
	switch object := object.(type) {
	case *corev1.Pod:
		return object.Spec.NodeName
	case *unstructured.Unstructured:
		name, _, _ := unstructured.NestedString(object.Object, "spec", "nodeName")
		return name
	}
	return ""
}

// arm resets the counters, and returns the processor time so far.
func arm(progress *progress) float64 {
	progress.seen.Store(0)
	progress.first.Store(0)
	progress.latencies = progress.latencies[:0]
	return processorTime()
}

// reached waits for an object with this version or a later one.
func reached(phase string, progress *progress, version uint64, usedBefore float64) map[string]any {
	for progress.version.Load() < version {
		time.Sleep(time.Millisecond)
	}
	response := map[string]any{
		"phase": phase, "seconds": time.Since(time.Unix(0, progress.first.Load())).Seconds(), "cpu": processorTime() - usedBefore, "seen": progress.seen.Load(),
	}
	addQuantiles(response, progress.latencies)
	return response
}
