//! What the frame does when the server refuses, or cannot write, what a Redis needs.

use super::*;
use crate::workqueue::Reasons;

/// The first of a batch is refused, the second is to wait.
#[tokio::test(start_paused = true)]
async fn an_error_beside_a_refusal_is_not_lost() {
    let mut f = fixture().await;
    let creates = || When::verb("create").resource("pods").skip(1).times(1);
    let mut later = Action::refuse(503, "ServiceUnavailable");
    let Action::Refuse { retry_after, .. } = &mut later else { unreachable!() };
    *retry_after = Some(60);
    f.sim.fault(Fault::new(creates(), Action::refuse(403, "Forbidden")));
    f.sim.fault(Fault::new(creates(), later));
    f.create("x", spec(3)).await;
    f.sync("x").await;
    let (outcome, _) = f.pass("x", &Reasons::default()).await;
    assert_eq!(outcome.unwrap_err().at_least(), Duration::from_secs(60));
    assert_eq!(f.ready("x").await, (false, "ChildRefused".to_owned()), "the worse of the two");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_created_now_is_told_when_it_lasts() {
    let mut f = fixture().await;
    f.create("x", spec(2)).await;
    f.converge("x").await;
    let creates = When::verb("create").resource("pods");
    let fault = f.sim.fault(Fault::new(creates, Action::refuse(500, "InternalError")));
    f.delete::<Pod>("x-0").await;
    f.pass_time(Duration::from_secs(60)).await;
    for _ in 0..2 {
        assert!(f.pass("x", &Reasons::default()).await.0.is_err());
        f.pass_time(Duration::from_secs(10)).await;
    }
    assert_eq!(f.ready("x").await, (false, "ChildFailing".to_owned()));
    f.sim.heal(fault);
    f.converge("x").await;
    assert!(f.ready("x").await.0);
}
