//! Group `samplecontroller.k8s.io`, that of the Go sample-controller.

pub mod v1alpha1;
