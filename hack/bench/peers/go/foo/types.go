// Package foo has the Foo of samplecontroller.k8s.io/v1alpha1 with its client, informer and lister, as client-go's code
// generators write them for a custom resource.
package foo

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of Foo.
var GroupVersion = schema.GroupVersion{Group: "samplecontroller.k8s.io", Version: "v1alpha1"}

// Foo asks for one Deployment.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// Spec is what a Foo asks for.
type Spec struct {
	DeploymentName string `json:"deploymentName"`
	Replicas       *int32 `json:"replicas"`
}

// Status is what was observed of the Deployment.
type Status struct {
	AvailableReplicas  int32 `json:"availableReplicas"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Of the peer that reports as much as windlass does; the others leave them out.
	Replicas   int32              `json:"replicas,omitempty"`
	Selector   string             `json:"selector,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// List is a list of Foos.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Foo `json:"items"`
}

// AddToScheme makes the types known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(GroupVersion.WithKind("Foo"), &Foo{})
	scheme.AddKnownTypeWithName(GroupVersion.WithKind("FooList"), &List{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// DeepCopyInto copies into another Foo.
func (in *Foo) DeepCopyInto(out *Foo) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if in.Spec.Replicas != nil {
		replicas := *in.Spec.Replicas
		out.Spec.Replicas = &replicas
	}
	out.Status.Conditions = slices.Clone(in.Status.Conditions)
}

// DeepCopy copies.
func (in *Foo) DeepCopy() *Foo {
	out := new(Foo)
	in.DeepCopyInto(out)
	return out
}

// DeepCopyObject copies.
func (in *Foo) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject copies.
func (in *List) DeepCopyObject() runtime.Object {
	out := &List{TypeMeta: in.TypeMeta}
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	if in.Items != nil {
		out.Items = make([]Foo, len(in.Items))
		for i := range in.Items {
			in.Items[i].DeepCopyInto(&out.Items[i])
		}
	}
	return out
}
