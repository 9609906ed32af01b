package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"windlass/bench/peers/foo"
)

// handlers lists objects that are in memory and notifies so many handlers; its watch is silent.
func handlers(report reporter, count int) {
	list := &appsv1.DeploymentList{ListMeta: metav1.ListMeta{ResourceVersion: "90000000"}}
	for _, object := range deployments() {
		list.Items = append(list.Items, *object.(*appsv1.Deployment))
	}
	source := &cache.ListWatch{
		ListFunc:  func(metav1.ListOptions) (apiruntime.Object, error) { return list, nil },
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	informer := cache.NewSharedIndexInformer(withoutStreams{source}, &appsv1.Deployment{}, 0, cache.Indexers{ownerUID: byOwner})
	var added atomic.Int64
	var synced []cache.InformerSynced
	for range count {
		synced = append(synced, must(informer.AddEventHandler(counting(&added))).HasSynced)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	runtime.GC()
	start := processorTime()
	go informer.RunWithContext(ctx)
	waitFor(synced)
	report(fmt.Sprint("handlers, ", count), processorTime()-start, stored*count, 0)
	if added.Load() != int64(stored*count) {
		panic("lost notifications")
	}
}

// withoutStreams says that the source cannot stream lists.
type withoutStreams struct{ cache.ListerWatcher }

func (withoutStreams) IsWatchListSemanticsUnSupported() bool { return true }

func counting(added *atomic.Int64) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: func(any) { added.Add(1) }}
}

// waitFor does not use cache.WaitForCacheSync, which asks only every 100 ms.
func waitFor(synced []cache.InformerSynced) {
	for _, isSynced := range synced {
		for !isSynced() {
			time.Sleep(time.Millisecond)
		}
	}
}

// server answers lists and silent watches from memory; it cannot stream lists.
type server map[string][]byte

const (
	foosPath        = "/apis/samplecontroller.k8s.io/v1alpha1/foos"
	deploymentsPath = "/apis/apps/v1/deployments"
	invalid         = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}`
)

func (s server) RoundTrip(request *http.Request) (*http.Response, error) {
	contentType := apiruntime.ContentTypeJSON
	if strings.Contains(request.Header.Get("Accept"), "protobuf") {
		contentType = apiruntime.ContentTypeProtobuf
	}
	answer := func(code int, body io.Reader) (*http.Response, error) {
		header := http.Header{"Content-Type": {contentType}}
		return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(body), Request: request}, nil
	}
	query := request.URL.Query()
	switch {
	case query.Has("sendInitialEvents"):
		contentType = apiruntime.ContentTypeJSON
		return answer(http.StatusUnprocessableEntity, strings.NewReader(invalid))
	case query.Has("watch"):
		if contentType == apiruntime.ContentTypeProtobuf {
			contentType += ";stream=watch"
		}
		return answer(http.StatusOK, silence{request.Context()})
	default:
		// As a server's watch cache does, it ignores the page size.
		return answer(http.StatusOK, bytes.NewReader(s[request.URL.Path]))
	}
}

// silence is a body without a byte.
type silence struct{ until context.Context }

func (s silence) Read([]byte) (int, error) {
	<-s.until.Done()
	return 0, io.EOF
}

// coldStart starts the informers of Foos (JSON) and Deployments (protobuf), as a generated client has them.
func coldStart(report reporter, count int, size string) {
	answers := server{
		foosPath:        outside(newTemplate(fooTemplate).list(0, count)),
		deploymentsPath: deploymentList(count),
	}
	before := heap()
	peak := samplePeak()
	start := processorTime()
	config := &rest.Config{Host: "http://memory", Transport: answers, QPS: -1}
	typed := rest.CopyConfig(config)
	typed.ContentType = apiruntime.ContentTypeProtobuf
	typed.AcceptContentTypes = apiruntime.ContentTypeProtobuf + "," + apiruntime.ContentTypeJSON
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(typed), 0)
	all := factory.Apps().V1().Deployments().Informer()
	foos := foo.NewInformer(must(foo.NewForConfig(config)), 0)
	var added atomic.Int64
	synced := []cache.InformerSynced{
		must(foos.AddEventHandler(counting(&added))).HasSynced,
		must(all.AddEventHandler(counting(&added))).HasSynced,
	}
	ctx, stop := context.WithCancel(context.Background())
	go foos.RunWithContext(ctx)
	go all.RunWithContext(ctx)
	waitFor(synced)
	took := processorTime() - start
	highest := peak()
	report("cold start, "+size, took, count, heap()-before)
	report("cold start, "+size+": peak", 0, count, highest-before)
	if added.Load() != int64(2*count) {
		panic("lost notifications")
	}
	runtime.KeepAlive([]any{foos, all})
	stop()
	for _, body := range answers {
		release(body)
	}
}

func deploymentList(count int) []byte {
	list := &appsv1.DeploymentList{ListMeta: metav1.ListMeta{ResourceVersion: "90000000"}}
	for n := range count {
		list.Items = append(list.Items, *deployment(n))
	}
	return outside(asProtobuf(list))
}

// samplePeak looks at the heap every 2 ms, until the function that it returns is called.
func samplePeak() func() float64 {
	stop, highest := make(chan struct{}), make(chan float64)
	go func() {
		var peak uint64
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		ticker := time.NewTicker(2 * time.Millisecond)
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-ticker.C:
			case <-stop:
				highest <- float64(peak)
				return
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-highest
	}
}
