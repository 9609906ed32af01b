//! Group `jiajunhuang.com`: a custom resource whose operator runs several tasks of several steps.

pub mod v1;
