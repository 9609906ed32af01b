//! Requests that only kubectl sends.

use super::*;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test(start_paused = true)]
async fn protobuf_is_refused_with_advice() {
    let bed = Bed::new();
    let response = bed.send("POST", PODS, PROTOBUF, b"k8s\0".to_vec()).await.unwrap();
    assert_eq!(response.status(), 415);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    assert!(body.contains("--dry-run=client -o yaml and pipe it to kubectl apply -f -"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn access_reviews_always_allow() {
    let bed = Bed::new();
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let spec = json!({"resourceAttributes": {"verb": "get", "resource": "pods"}});
    let answer = bed.call("POST", path, json!({"spec": spec})).await;
    assert_eq!((answer.0, &answer.1["spec"], &answer.1["status"]), (201, &spec, &json!({"allowed": true})));
    let response = bed.send("POST", path, PROTOBUF, b"k8s\0".to_vec()).await.unwrap();
    assert_eq!(response.status(), 201, "kubectl sends protobuf");
}

#[tokio::test(start_paused = true)]
async fn autoscaling_v1_is_refused_with_advice() {
    let bed = Bed::new();
    let path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers";
    let refused = bed.call("POST", path, json!({})).await;
    assert_eq!(reason(&refused), (404, "NotFound"));
    assert!(refused.1["message"].as_str().unwrap().contains("autoscaling/v2 only"), "{}", refused.1);
}
