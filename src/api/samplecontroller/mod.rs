//! Group `samplecontroller.k8s.io`, from the Go sample-controller.

pub mod v1alpha1;
