//! Certificates and tokens: verified, rotated, missing.

use std::fs;
use std::path::Path;

use tokio::io::AsyncWriteExt;

use super::endpoint::{Authority, Endpoint, say};
use super::*;

/// Starts an endpoint with TLS; returns it with a spec that trusts the authorities in `ca`.
async fn tls(ca: &Path, acceptor: tokio_rustls::TlsAcceptor) -> (Endpoint, HttpSpec) {
    let endpoint = Endpoint::with_tls(acceptor, |_| say(200, "", "")).await;
    let spec = HttpSpec { ca_file: Some(ca.to_owned()), ..spec_of(&endpoint) };
    (endpoint, spec)
}

#[tokio::test]
async fn server_certificate_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, ours.pem()).unwrap();
    let (endpoint, spec) = tls(&ca, ours.acceptor("127.0.0.1", false)).await;
    assert_eq!(ended(&spec).await, Ok(()));
    assert_eq!(endpoint.seen().len(), 1);
    let refused = [
        ("another authority", theirs.acceptor("127.0.0.1", false)),
        ("another name", ours.acceptor("example.com", false)),
        ("expired", ours.acceptor("127.0.0.1", true)),
    ];
    for (why, acceptor) in refused {
        let (endpoint, spec) = tls(&ca, acceptor).await;
        assert_retry(ended(&spec).await, "no trusted certificate");
        assert!(endpoint.seen().is_empty(), "{why}: nothing was sent");
    }
}

#[tokio::test]
async fn endpoint_without_tls_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, Authority::new().pem()).unwrap();
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", plain.local_addr().unwrap());
    let spec = HttpSpec { ca_file: Some(ca), ..HttpSpec::new(&url).unwrap() };
    let answer = async {
        let (mut stream, _) = plain.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        stream
    };
    let (ended, _open) = tokio::join!(ended(&spec), answer);
    assert_retry(ended, "or does not speak TLS");
}

/// The system does not trust the test's own authority.
#[tokio::test]
async fn system_authorities_are_trusted_without_a_ca_file() {
    let endpoint =
        Endpoint::with_tls(Authority::new().acceptor("127.0.0.1", false), |_| say(200, "", "")).await;
    match HttpTask::new("notify", LONG, &spec_of(&endpoint), Clock::system()) {
        Ok(task) => assert_retry(run(&task, &call(Hook::Create)).await, "no trusted certificate"),
        // The system has no trusted certificates at all.
        Err(error) => assert!(error.to_string().contains("caFile"), "{error}"),
    }
    assert!(endpoint.seen().is_empty());
}

#[tokio::test]
async fn a_rotated_ca_file_is_used_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let ca = dir.path().join("ca.pem");
    fs::write(&ca, old.pem()).unwrap();
    let (_endpoint, spec) = tls(&ca, new.acceptor("127.0.0.1", false)).await;
    let task = task(&spec);
    let call = call(Hook::Create);
    assert_retry(run(&task, &call).await, "no trusted certificate");
    fs::write(&ca, new.pem()).unwrap();
    assert_eq!(run(&task, &call).await, Ok(()));
    // While the file is rewritten, its last good contents stay in use; a bundle is trusted as a whole.
    for contents in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        fs::write(&ca, contents).unwrap();
        assert_eq!(run(&task, &call).await, Ok(()), "{contents:?}");
    }
    fs::write(&ca, format!("{}{}", old.pem(), new.pem())).unwrap();
    assert_eq!(run(&task, &call).await, Ok(()));
    fs::write(&ca, old.pem()).unwrap();
    assert_retry(run(&task, &call).await, "no trusted certificate");
}

#[tokio::test]
async fn a_rotated_token_file_is_used_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let endpoint = Endpoint::new(|_| say(200, "", "")).await;
    let task = task(&HttpSpec { token_file: Some(token.clone()), ..spec_of(&endpoint) });
    for contents in ["one", "two\n", "two\n", " three \r\n"] {
        fs::write(&token, contents).unwrap();
        assert_eq!(run(&task, &call(Hook::Create)).await, Ok(()));
        let sent = endpoint.seen().pop().unwrap();
        assert_eq!(sent.header("authorization"), Some(format!("Bearer {}", contents.trim()).as_str()));
    }
}

#[tokio::test]
async fn missing_or_empty_file_keeps_the_last_value() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    let endpoint = Endpoint::new(|_| say(200, "", "")).await;
    let log = capture_log();
    let task = task(&HttpSpec { token_file: Some(token.clone()), ..spec_of(&endpoint) });
    let call = call(Hook::Create);
    for _ in 0..3 {
        assert_retry(run(&task, &call).await, "tokenFile cannot be used: No such file");
    }
    assert!(endpoint.seen().is_empty(), "nothing is sent without the token");
    assert_eq!(log.lines().len(), 2, "a warning about http without TLS, and one line: {:?}", log.lines());
    fs::write(&token, "one").unwrap();
    assert_eq!(run(&task, &call).await, Ok(()));
    let bad = [Some(""), Some("\n"), None, Some("two words"), Some("r\u{e9}sum\u{e9}")];
    for contents in bad {
        match contents {
            Some(contents) => fs::write(&token, contents).unwrap(),
            None => fs::remove_file(&token).unwrap(),
        }
        assert_eq!(run(&task, &call).await, Ok(()));
        assert_eq!(endpoint.seen().pop().unwrap().header("authorization"), Some("Bearer one"));
    }
    fs::remove_file(&token).unwrap();
    fs::create_dir(&token).unwrap();
    assert_eq!(run(&task, &call).await, Ok(()), "only regular files are opened");
    fs::remove_dir(&token).unwrap();
    fs::write(&token, "one").unwrap();
    assert_eq!(run(&task, &call).await, Ok(()));
    let lines: Vec<String> = log.lines().split_off(2);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("INFO A file of a task is usable again"), "{lines:?}");
    assert!(lines[1].starts_with("WARN Could not use a file of a task; keeping its last"), "{lines:?}");
    assert!(lines[2].starts_with("INFO A file of a task is usable again"), "{lines:?}");
}

#[tokio::test]
async fn unauthorized_with_a_rotated_token_is_retried() {
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    fs::write(&token, "old").unwrap();
    // The file changes while the request is under way.
    let rotated = token.clone();
    let endpoint = Endpoint::new(move |seen| {
        if seen.header("authorization") == Some("Bearer old") {
            fs::write(&rotated, "new").unwrap();
        }
        say(401, "", "")
    })
    .await;
    let spec = HttpSpec { token_file: Some(token.clone()), ..spec_of(&endpoint) };
    let task = task(&spec);
    let call = call(Hook::Create);
    assert_retry(run(&task, &call).await, "a token that is being rotated");
    assert_permanent(run(&task, &call).await, "401 Unauthorized");
    fs::write(&token, "").unwrap();
    assert_retry(run(&task, &call).await, "a token that is being rotated");
    let without = HttpSpec { token_file: None, ..spec };
    assert_permanent(ended(&without).await, "401 Unauthorized");
}
