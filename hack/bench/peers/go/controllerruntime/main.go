// The Foo operator on controller-runtime, in the structure of a kubebuilder project, written as its best users write it: a
// patch of the child and an update of the status, each only for a difference, and no event without news.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"windlass/bench/peers/foo"
)

// The package of the manager's flags defines -kubeconfig.
var (
	workers = flag.Int("workers", 2, "reconciles at once")
	metrics = flag.String("metrics", "0", "`address` of the metrics; 0 for none")
)

func main() {
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(foo.AddToScheme(scheme))
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                server.Options{BindAddress: *metrics},
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return err
	}
	reconciler := &FooReconciler{manager.GetClient(), scheme}
	if err := reconciler.SetupWithManager(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

// FooReconciler keeps the Deployment of each Foo.
type FooReconciler struct {
	client.Client
	scheme *runtime.Scheme
}

// SetupWithManager registers the controller.
func (r *FooReconciler) SetupWithManager(manager ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(manager).
		For(&foo.Foo{}).
		Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: *workers,
			RateLimiter: workqueue.NewTypedMaxOfRateLimiter(
				workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, 1000*time.Second),
				&workqueue.TypedBucketRateLimiter[reconcile.Request]{Limiter: rate.NewLimiter(50, 300)},
			),
		}).
		Complete(r)
}

// Reconcile makes the Deployment what the Foo asks for, then writes the status if it differs.
func (r *FooReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var wanted foo.Foo
	if err := r.Get(ctx, request.NamespacedName, &wanted); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name:      wanted.Spec.DeploymentName,
		Namespace: wanted.Namespace,
	}}
	_, err := controllerutil.CreateOrPatch(ctx, r.Client, deployment, func() error {
		if deployment.CreationTimestamp.IsZero() {
			deployment.Spec = newSpec(&wanted)
		}
		deployment.Spec.Replicas = wanted.Spec.Replicas
		return controllerutil.SetControllerReference(&wanted, deployment, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	observed := wanted.DeepCopy()
	observed.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	observed.Status.ObservedGeneration = wanted.Generation
	if equality.Semantic.DeepEqual(observed.Status, wanted.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Update(ctx, observed)
}

func newSpec(of *foo.Foo) appsv1.DeploymentSpec {
	labels := map[string]string{"app": "nginx", "controller": of.Name}
	return appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
		},
	}
}
