//! Group `jiajunhuang.com`: a custom resource whose operator runs tasks, each with several hooks.

pub mod v1;
