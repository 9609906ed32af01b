//! Reads any bytes as the body of a watch: no panic, and the same result however they are cut into pieces.

#![no_main]

use bytes::Bytes;
use k8s_openapi::api::apps::v1::Deployment;
use libfuzzer_sys::fuzz_target;
use windlass::cache::TypedObject;
use windlass::controller::kinds::deployment::ObservedDeployment;
use windlass::testing::{Media, watch_body};

mod pieces;

fuzz_target!(|data: &[u8]| {
    pieces::block_on(async {
        check::<Deployment>(Media::Json, data).await;
        check::<ObservedDeployment>(Media::Json, data).await;
        check::<ObservedDeployment>(Media::Protobuf, data).await;
    });
});

async fn check<K: TypedObject + std::fmt::Debug>(media: Media, data: &[u8]) {
    let whole = watch_body::<K>(media, [Bytes::copy_from_slice(data)]).await;
    let cut = watch_body::<K>(media, pieces::of(data)).await;
    assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
    assert!(whole.0.len() <= data.len() / 16, "an event takes more than 16 bytes");
}
