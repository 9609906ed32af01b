// The Foo operator on client-go, in the structure of Kubernetes' sample-controller. It writes as its best users do: the
// status when it differs, and no event without news; with --always as the sample does.
package main

import (
	"context"
	"flag"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	"k8s.io/klog/v2"

	"windlass/bench/peers/foo"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `file`")
	workers := flag.Int("workers", 2, "syncs at once")
	encoding := flag.String("encoding", "protobuf", "how Deployments and events travel: protobuf or json; Foos always as JSON")
	resync := flag.Duration("resync", 0, "how often the informers deliver everything again; 0 for never (sample-controller: 30s)")
	events := flag.Bool("events", true, "whether events are written to the API server")
	always := flag.Bool("always", false, "write status and an event in each sync, as sample-controller does")
	conditions := flag.Bool("conditions", false, "report conditions, replicas and selector in the status, too")
	metrics := flag.String("metrics", "", "`address` of the metrics; none by default")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *metrics != "" {
		go serveMetrics(*metrics)
	}
	if err := run(ctx, *kubeconfig, *encoding, *workers, *resync, *events, *always, *conditions); err != nil {
		klog.ErrorS(err, "Stopped")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func serveMetrics(address string) {
	http.Handle("/metrics", legacyregistry.Handler())
	klog.ErrorS(http.ListenAndServe(address, nil), "No metrics are served")
}

func run(ctx context.Context, kubeconfig, encoding string, workers int, resync time.Duration, events, always, conditions bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	builtin := rest.CopyConfig(config)
	builtin.ContentType = runtime.ContentTypeJSON
	if encoding == "protobuf" {
		builtin.ContentType = runtime.ContentTypeProtobuf
		builtin.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	kube, err := kubernetes.NewForConfig(builtin)
	if err != nil {
		return err
	}
	foos, err := foo.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(kube, resync)
	fooInformer := foo.NewInformer(foos, resync)
	controller := NewController(ctx, kube, foos, factory.Apps().V1().Deployments(), fooInformer, events, always, conditions)
	factory.Start(ctx.Done())
	go fooInformer.RunWithContext(ctx)
	return controller.Run(ctx, workers)
}
