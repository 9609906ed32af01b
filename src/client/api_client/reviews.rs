//! Token and access reviews: who a bearer token belongs to, and what its user may do. A standby may request them, too.

use http::Method;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use serde_json::{Value, json};

use super::{ApiClient, Call, Error, Passage, decode};
use crate::api::ApiResource;

impl ApiClient {
    /// Returns the user of a bearer token; `None` if the token is not valid.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn review_token(&self, token: &str) -> Result<Option<UserInfo>, Error> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.review::<TokenReview>(&json!(review)).await?.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }

    /// Returns whether this user may get this path, which is not a resource.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn may_get(&self, user: UserInfo, path: &str) -> Result<bool, Error> {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let UserInfo { extra, groups, uid, username } = user;
        let spec = SubjectAccessReviewSpec {
            extra,
            groups,
            uid,
            user: username,
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = self.review::<SubjectAccessReview>(&json!(review)).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    /// Creates a review. The server stores no reviews, so the request passes the gate like a read.
    async fn review<T>(&self, review: &Value) -> Result<T, Error>
    where
        T: kube_core::Resource<DynamicType = ()> + serde::de::DeserializeOwned,
    {
        let path = ApiResource::of::<T>().path(None);
        let body = self.call(Call::new(Passage::Read, Method::POST, &path, Some(review))).await?;
        decode(&body, || format!("POST {path}"))
    }
}
