//! The real control plane's launcher: its processes do not outlive it, and a failed start reports the cause.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use macro_rules_attribute::apply;
use rustix::process::Signal;

use crate::support::{Launcher, real_bed, wait_until};

/// Whether a process listens at the address of this URL.
fn answers(url: &str) -> bool {
    let address = url.trim_start_matches("http://");
    TcpStream::connect(address).is_ok()
}

#[apply(real_bed)]
#[why = "it tests the launcher of the real control plane"]
async fn closing_stdin_stops_the_control_plane() {
    let launcher = Launcher::start();
    let (etcd, dir) = (launcher.ready.etcd.clone(), launcher.ready.dir.clone());
    assert!(answers(&etcd) && dir.exists());
    drop(launcher);
    assert!(!answers(&etcd), "etcd is still running");
    assert!(!dir.exists(), "{} still exists", dir.display());
}

#[apply(real_bed)]
#[why = "it tests the launcher of the real control plane"]
async fn signal_to_the_launcher_stops_the_control_plane() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut launcher = Launcher::start();
        let (etcd, dir) = (launcher.ready.etcd.clone(), launcher.ready.dir.clone());
        launcher.signal(signal);
        launcher.wait();
        let what = format!("etcd is gone after {signal:?}");
        wait_until(&what, async || if answers(&etcd) { Err("it answers") } else { Ok(()) }).await;
        assert!(!dir.exists(), "{signal:?}: {} still exists", dir.display());
    }
}

#[apply(real_bed)]
#[why = "it tests the launcher of the real control plane"]
async fn failed_start_names_process_cause_and_log() {
    let dir = tempfile::tempdir().unwrap();
    for program in ["etcd", "kube-apiserver", "kubectl"] {
        let path = dir.path().join(program);
        std::fs::write(&path, "#!/bin/sh\necho 'this is no database'\nexit 3\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = Launcher::fails(&[("KUBEBUILDER_ASSETS", dir.path().to_str().unwrap())]);
    assert!(output.contains("ended with exit status: 3"), "{output}");
    assert!(output.contains("this is no database"), "{output}");
    assert!(output.contains("KUBEBUILDER_ASSETS"), "the source of each program is listed: {output}");
    let log = output.split(['(', ')']).find(|part| part.ends_with(".log")).expect("a log file is named");
    assert!(Path::new(log).exists(), "{log}");
    std::fs::remove_file(log).unwrap();

    std::fs::remove_file(dir.path().join("kubectl")).unwrap();
    let output = Launcher::fails(&[("KUBEBUILDER_ASSETS", dir.path().to_str().unwrap())]);
    assert!(
        output.contains("KUBEBUILDER_ASSETS is set, but") && output.contains("kubectl is not there"),
        "{output}"
    );
}
