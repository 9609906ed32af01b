//! A WebApp whose Deployment the API server fails to write for a while.

use super::*;
use crate::sim::{Action, Fault, When};
use crate::workqueue::Reasons;

#[tokio::test(start_paused = true)]
async fn deployment_failure_is_reported_but_fails_no_task() {
    for is_new in [true, false] {
        let mut rig = rig().await;
        let creates =
            Fault::new(When::verb("create").resource("deployments"), Action::refuse(500, "InternalError"));
        rig.create().await;
        if !is_new {
            rig.converge().await;
            rig.f.delete::<Deployment>("web").await;
            rig.f.catch_up().await;
        }
        let fault = rig.f.sim.fault(creates);
        let mut failed = 0;
        for _ in 0..50 {
            failed += usize::from(rig.f.pass("web", &Reasons::default()).await.0.is_err());
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            rig.f.pass_time(Duration::from_secs(10)).await;
        }
        assert!(failed > 3, "{failed}");
        assert_eq!(rig.f.ready("web").await, (false, "ChildFailing".to_owned()), "new: {is_new}");
        assert!(!rig.f.events().contains(&"TaskFailed"), "new: {is_new}");
        rig.f.sim.heal(fault);
        rig.converge().await;
        assert!(rig.f.ready("web").await.0, "new: {is_new}");
    }
}
