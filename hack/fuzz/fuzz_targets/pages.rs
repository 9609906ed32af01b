//! Reads any bytes as the body of a list: no panic, and the same result however they are cut into pieces; a body that
//! lacks its last bracket is never a list.

#![no_main]

use bytes::Bytes;
use k8s_openapi::api::apps::v1::Deployment;
use libfuzzer_sys::fuzz_target;
use windlass::cache::TypedObject;
use windlass::controller::kinds::deployment::ObservedDeployment;
use windlass::testing::list_body;

mod pieces;

fuzz_target!(|data: &[u8]| {
    pieces::block_on(async {
        check::<Deployment>(data).await;
        check::<ObservedDeployment>(data).await;
    });
});

async fn check<K: TypedObject + std::fmt::Debug>(data: &[u8]) {
    let whole = list_body::<K>([Bytes::copy_from_slice(data)]).await;
    let cut = list_body::<K>(pieces::of(data)).await;
    assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
    if whole.is_ok() {
        let short = &data[..data.trim_ascii_end().len() - 1];
        assert!(list_body::<K>([Bytes::copy_from_slice(short)]).await.is_err());
    }
}
